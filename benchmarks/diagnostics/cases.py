"""Posteriors whose quality is known: good ones, and ones with a known fault."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from nvgd.densities import AbstractDensity, Banana, Funnel, Gaussian, GaussianMixture, Ring
from nvgd.running.starts import AbstractStart
from nvgd.stein import RBF

GOOD = ("converged",)
CLOSE = ("variance too small",)
EARLY = ("not yet",)
WILD = ("diverged",)
MODES = ("multimodal disagreement",)


class Case(NamedTuple):
    """A kind of posterior, with one posterior per seed."""

    group: str
    name: str
    right: tuple[str, ...]
    """The right verdicts."""
    make: Callable[[int], nvgd.Posterior]
    num_replicates: int = 0
    max_seeds: int = 1000
    """The most runs, for cases in which a run takes long."""


def correlated(dim: int, correlation: float = 0.5) -> Gaussian:
    """A normal with correlations that fall with distance, and scales from 0.1 to 10."""
    index = np.arange(dim)
    scales = np.geomspace(0.1, 10.0, dim) if dim > 1 else np.ones(1)
    matrix = correlation ** np.abs(index[:, None] - index)
    return Gaussian(np.linspace(-1, 1, dim), matrix * scales[:, None] * scales)


DENSITIES: dict[str, AbstractDensity] = {
    "normal, d = 1": correlated(1),
    "normal, d = 2": correlated(2),
    "normal, d = 10": correlated(10),
    "normal, d = 50": correlated(50),
    "banana": Banana(),
    "funnel, d = 2": Funnel(2),
    "funnel, d = 10": Funnel(10),
    "two modes": GaussianMixture(),
    "ring": Ring(),
}


def given(density: AbstractDensity, particles: Any) -> nvgd.Posterior:
    """A posterior of these particles, without the history of a run."""
    particles = jnp.asarray(particles)
    target = nvgd.Target(density.log_density, density.dim)
    return nvgd.Posterior(particles, {}, {}, "completed", 1, "given", 0, target=target)


def exact(density: AbstractDensity, num: int) -> Callable[[int], nvgd.Posterior]:
    """Independent draws."""
    return lambda seed: given(density, density.sample(jax.random.key(seed), num))


def changed(
    density: AbstractDensity, num: int, change: Callable[[np.ndarray], np.ndarray]
) -> Callable[[int], nvgd.Posterior]:
    """Independent draws with a change that makes them wrong."""
    return lambda seed: given(density, change(np.array(density.sample(jax.random.key(seed), num))))


def sampled(
    density: AbstractDensity, flow: nvgd.ParticleFlow, num: int, num_steps: int, **options: Any
) -> Callable[[int], nvgd.Posterior]:
    """A run."""
    target = nvgd.Target(density.log_density, density.dim)
    return lambda seed: nvgd.sample(
        target,
        flow,
        num_particles=num,
        num_steps=num_steps,
        seed=seed,
        progress=False,
        **options,
    )


def shrunk(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    """Deviations from the mean multiplied by a factor."""
    return lambda x: x.mean(axis=0) + factor * (x - x.mean(axis=0))


def flattened(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    """Deviations along the narrowest principal direction multiplied by a factor."""

    def change(x: np.ndarray) -> np.ndarray:
        centred = (x - x.mean(axis=0)) / x.std(axis=0)
        direction = np.linalg.eigh(np.cov(centred.T))[1][:, 0]
        lost = (1 - factor) * np.outer(centred @ direction, direction)
        return x - lost * x.std(axis=0)

    return change


def shifted(amount: float) -> Callable[[np.ndarray], np.ndarray]:
    """The last coordinate shifted by a number of standard deviations."""
    return lambda x: x + amount * x.std(axis=0) * np.eye(x.shape[1])[-1]


def copied(num_distinct: int) -> Callable[[np.ndarray], np.ndarray]:
    """Copies of `num_distinct` draws."""
    return lambda x: x[np.arange(len(x)) % num_distinct]


class OneSide(AbstractStart):
    """All particles near one corner, chosen at random for each ensemble."""

    def draw(self, target, num, key):
        """Normal draws around the corner."""
        corner_key, key = jax.random.split(key)
        corner = 4.0 * jax.random.rademacher(corner_key, (1, target.dim), float)
        return corner + jax.random.normal(key, (num, target.dim))


def cases() -> list[Case]:
    """All cases, good ones first."""
    exact_draws = [
        Case("exact draws", f"{name}, n = {num}", GOOD, exact(density, num))
        for name, density in DENSITIES.items()
        for num in (30, 100, 500)
    ]
    without_corrections = _collapsed() + _too_early() + _too_wild() + _several_modes() + _strays()
    return exact_draws + _good_runs() + _bare_calls() + without_corrections + _chains()


TWO, TEN = DENSITIES["normal, d = 2"], DENSITIES["normal, d = 10"]
UNIT = Gaussian(np.ones(10), np.ones(10))
BANANA = DENSITIES["banana"]
PAPER = nvgd.NVGD.paper(1e-2, max_inner_steps=10)


def _good_runs() -> list[Case]:
    group, few = "good runs", 6
    ula = sampled(UNIT, nvgd.ULA(0.02), 100, 600)
    return [
        Case(group, "NVGD, normal, d = 2", GOOD, sampled(TWO, nvgd.NVGD(), 100, 300), 0, few),
        Case(group, "NVGD, normal, d = 10", GOOD, sampled(TEN, nvgd.NVGD(), 100, 300), 0, few),
        Case(group, "NVGD, funnel", GOOD, sampled(Funnel(2), nvgd.NVGD(), 100, 300), 0, few),
        Case(group, "SVGD, normal, d = 1", GOOD, sampled(correlated(1), nvgd.SVGD(0.5), 50, 300)),
        Case(group, "SVGD, banana", GOOD, sampled(BANANA, nvgd.SVGD(0.5), 100, 3000)),
        Case(group, "ULA, normal, d = 10", GOOD, ula),
        Case(group, "ULA, normal, d = 10, two replicates", GOOD, ula, 2),
    ]


def bare(density: AbstractDensity) -> Callable[[int], nvgd.Posterior]:
    """The bare call."""
    target = nvgd.Target(density.log_density, density.dim)
    return lambda seed: nvgd.sample(target, seed=seed, progress=False)


def chained(
    log_density: Callable[..., Any], dim: int, **options: Any
) -> Callable[[int], nvgd.Posterior]:
    """A run with corrections that cannot end well."""
    target = nvgd.Target(log_density, dim)
    return lambda seed: nvgd.sample(target, seed=seed, progress=False, **options)


def _bare_calls() -> list[Case]:
    group = "good runs with corrections"
    wide = {name: density for name, density in DENSITIES.items() if density.dim < 50}
    return [Case(group, name, GOOD, bare(density)) for name, density in wide.items()]


def _strays() -> list[Case]:
    def thrown(number: int, distance: float) -> Callable[[np.ndarray], np.ndarray]:
        """The first coordinate of some particles, moved away by so many standard deviations."""

        def change(x: np.ndarray) -> np.ndarray:
            x[:number, 0] += distance * x[:, 0].std()
            return x

        return change

    group = "strays"
    return [
        Case(group, "1 of 256, 12 sd", WILD, changed(TEN, 256, thrown(1, 12.0))),
        Case(group, "5 of 256, 20 sd", WILD, changed(TEN, 256, thrown(5, 20.0))),
        Case(group, "2 of 100, d = 2, 10 sd", WILD, changed(TWO, 100, thrown(2, 10.0))),
    ]


def _chains() -> list[Case]:
    group = "broken runs with corrections"

    def neck(x):
        """A funnel of 30 coordinates in the wrong units, too long a neck for a short run."""
        return -0.5 * (x[0] / 5) ** 2 - 0.5 * jnp.sum(jnp.exp(-2 * x[0]) * x[1:] ** 2) - 30 * x[0]

    def modes(x):
        """Modes that hardly any jump connects."""
        centres = jnp.stack([jnp.full(100, -3.0), jnp.full(100, 3.0)])
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - centres) ** 2, axis=1))

    def rounded(x):
        """Single precision leaves steps of 2 in every log density."""
        return 3e7 - 0.5 * jnp.sum(x**2)

    def flat(x):
        return -0.5 * x[0] ** 2

    def unbounded(x):
        """A mixture one of whose components may shrink onto a data point."""
        narrow = -0.5 * (x[0] * jnp.exp(-x[1])) ** 2 - x[1]
        return 20 * jnp.logaddexp(narrow, -0.5 * x[0] ** 2) - 0.5 * x[0] ** 2

    def weights(x):
        """A straight mode of weight .3 and a bent one, whose curvature tells a wrong mass."""
        straight = jnp.log(0.3) - 0.5 * jnp.sum(x.at[0].add(6.0) ** 2)
        first = x[0] - 6.0
        bent = x.at[0].set(first).at[1:10].add(-1.5 * (first**2 - 1))
        return jnp.logaddexp(straight, jnp.log(0.7) - 0.5 * jnp.sum(bent**2))

    short = {"num_steps": 500}
    apart = {"initial": nvgd.Jittered(jnp.zeros(100), 3.0), "num_steps": 1000}
    return [
        Case(group, "neck, 500 steps", ("improper", *EARLY), chained(neck, 31, **short)),
        Case(group, "modes in 100 dimensions, 1000 steps", EARLY, chained(modes, 100, **apart)),
        Case(group, "rounding of single precision", EARLY, chained(rounded, 10, num_steps=1000)),
        Case(group, "improper", ("improper",), chained(flat, 2, num_steps=1000)),
        Case(group, "not bounded", ("improper", *EARLY), chained(unbounded, 2, num_steps=1000)),
        Case(group, "weights of modes, 1000 steps", EARLY, chained(weights, 20, num_steps=1000)),
        Case(group, "minibatches of 4 rows, 700 steps", EARLY, few_rows, 0, 2),
    ]


def few_rows(seed: int) -> nvgd.Posterior:
    """Logistic regression, corrected on a subsample that is too small: biased by .2 to .4 sd."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((20_000, 1)), rng.standard_t(2.5, size=(20_000, 9))], axis=1)
    labels = rng.random(len(x)) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 10)))
    rows = {"x": x.astype(np.float32), "y": labels.astype(np.float32)}

    def log_likelihood(slopes, row):
        logit = row["x"] @ slopes
        return row["y"] * logit - jnp.logaddexp(0.0, logit)

    target = nvgd.Target(
        lambda slopes: -0.5 * jnp.sum(slopes**2),
        dim=10,
        log_likelihood=log_likelihood,
        data=rows,
        batch_size=4,
    )
    return nvgd.sample(target, num_steps=700, seed=seed, progress=False)


def _collapsed() -> list[Case]:
    group = "collapsed"
    fifty = Gaussian(np.zeros(50), np.ones(50))
    ascent = nvgd.SVGD(5.0, kernel=RBF(1e-3))
    return [
        Case(group, "variances × .49, d = 10, n = 100", CLOSE, changed(TEN, 100, shrunk(0.7))),
        Case(group, "variances × .64, d = 2, n = 500", CLOSE, changed(TWO, 500, shrunk(0.8))),
        Case(group, "one direction × .09, n = 100", CLOSE, changed(TEN, 100, flattened(0.3))),
        Case(group, "one direction × .36, n = 500", CLOSE, changed(TEN, 500, flattened(0.6))),
        Case(group, "copies of 20, n = 100", CLOSE, changed(TWO, 100, copied(20))),
        Case(group, "SVGD, d = 50, n = 50", CLOSE, sampled(fifty, nvgd.SVGD(5.0), 50, 600)),
        Case(group, "ascent without repulsion", CLOSE, sampled(UNIT, ascent, 50, 400)),
    ]


def _too_early() -> list[Case]:
    group = "too few steps"
    far = Gaussian([10.0, 0.0], [1.0, 1.0])
    return [
        Case(group, "draws .5 sd beside, n = 100", EARLY, changed(TWO, 100, shifted(0.5))),
        Case(group, "draws 1 sd beside, d = 10, n = 30", EARLY, changed(TEN, 30, shifted(1.0))),
        Case(group, "ULA, normal, 20 steps", EARLY, sampled(UNIT, nvgd.ULA(0.02), 100, 20)),
        Case(group, "ULA, tiny steps", EARLY, sampled(TWO, nvgd.ULA(1e-6), 100, 200)),
        Case(group, "SVGD, banana, 40 steps", EARLY, sampled(BANANA, nvgd.SVGD(0.3), 100, 40)),
        Case(group, "NVGD, d = 10, 25 steps", EARLY, sampled(TEN, nvgd.NVGD(), 100, 25), 0, 6),
        Case(group, "the paper's, far away", EARLY, sampled(far, PAPER, 100, 100), 0, 6),
    ]


def _too_wild() -> list[Case]:
    group, ring = "step size too large", Ring()
    unit = Gaussian([0.0, 0.0], [1.0, 1.0])
    paper = nvgd.NVGD.paper(3.0, max_inner_steps=10, learning_rate=1e-3)
    return [
        Case(group, "ULA, variance × 1.6", WILD, sampled(UNIT, nvgd.ULA(0.75), 100, 300)),
        Case(group, "ULA, banana", WILD, sampled(BANANA, nvgd.ULA(0.8), 200, 300)),
        Case(group, "SVGD, ring", WILD + EARLY, sampled(ring, nvgd.SVGD(8.0), 100, 300)),
        Case(group, "the paper's, normal", WILD, sampled(unit, paper, 100, 200), 0, 6),
    ]


def _several_modes() -> list[Case]:
    group, modes = "several modes", GaussianMixture([[-6.0, 0.0], [6.0, 0.0]])
    apart = {"initial": OneSide()}
    return [
        Case(group, "ULA", MODES, sampled(modes, nvgd.ULA(0.05), 100, 300, **apart), 3),
        Case(group, "SVGD", MODES, sampled(modes, nvgd.SVGD(0.5), 100, 600, **apart), 3),
    ]
