"""Accept/reject and importance weights: what is exact, and at what cost."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import kstest

import nvgd
from benchmarks.extensions.common import (
    NETWORK,
    Table,
    cell,
    energy_to,
    exact_energy,
    target_of,
)
from nvgd.densities import Banana, Funnel, Gaussian


def invariance(seeds: int) -> Table:
    """p-values of Kolmogorov–Smirnov tests: 100 × 50 exact draws, moved 20 times."""
    del seeds
    rows: Table = [("moves", "target", "acceptance", "p, first", "p, second")]
    for name, method in (
        ("MALA, ε = .4", nvgd.MALA(0.4)),
        ("NVGD on halves, ε = .4", nvgd.NVGD.metropolis(0.4, width=16, max_inner_steps=5)),
        ("ULA, ε = .4, not corrected", nvgd.ULA(0.4)),
    ):
        for label, density in (("funnel", Funnel(2)), ("banana", Banana())):
            starts = density.sample(jax.random.key(3), 5000).reshape(100, 50, 2)
            ends, accepted = _replicates(method, target_of(density), starts)
            first, second = ends[..., 0], ends[..., 1]
            if label == "funnel":
                second = second * jnp.exp(-first / 2)
            else:
                second = second - 0.1 * (first**2 - 9.0)
            values = [
                kstest(np.nan_to_num(np.asarray(column, np.float64).ravel()), "norm").pvalue
                for column in (first / 3.0, second)
            ]
            shown = "–" if accepted is None else f"{float(jnp.mean(accepted)):.2f}"
            rows.append((name, label, shown, *(f"{value:.2g}" for value in values)))
    return rows


@eqx.filter_jit
def _replicates(method, target, starts):
    def one(start, key):
        state = method.init(target, start, key=key)
        return jax.lax.scan(lambda s, _: method.step(target, s, key=key), state, length=20)

    state, infos = jax.vmap(one)(starts, jax.random.split(jax.random.key(4), len(starts)))
    return state.particles, infos.diagnostics.get("acceptance")


def finish(seeds: int) -> Table:
    """Energy distances on the funnel before and after a finish of 2000 corrected moves."""
    density = Funnel(2)
    target, measure = target_of(density), energy_to(density)
    rows: Table = [("method", "before", "after MALA, ε = .1", "exact draws")]
    for name, method in (
        ("ULA, ε = .1", nvgd.ULA(0.1)),
        ("NVGD, ε = .02", nvgd.NVGD.paper(0.02, **NETWORK)),
    ):
        before, after = [], []
        for seed in range(seeds):
            options = {"seed": seed, "progress": False}
            start = nvgd.sample(target, method, num_particles=200, num_steps=500, **options)
            end = nvgd.sample(
                target, nvgd.MALA(0.1), initial=start.particles, num_steps=2000, **options
            )
            before.append(measure(start))
            after.append(measure(end))
        rows.append((name, cell(before), cell(after), cell(exact_energy(density, 200, seeds))))
    return rows


def evidence(seeds: int) -> Table:
    """Log evidence of five targets from 4000 fresh draws."""
    del seeds
    rows: Table = [
        ("target", "log evidence", "truth", "errors off", "Pareto k̂", "effective of 4000")
    ]
    for name, truth, target, method, options in _evidence_cases():
        transport = nvgd.learn_transport(target, method, **options)
        weighted = transport.weigh(4000, seed=1)
        away = (weighted.log_evidence - truth) / weighted.standard_error
        rows.append(
            (
                name,
                f"{weighted.log_evidence:.3f} ± {weighted.standard_error:.3f}",
                f"{truth:.3f}",
                f"{away:+.1f}",
                f"{weighted.pareto_shape:.2f}",
                f"{weighted.effective_size:.0f}",
            )
        )
    return rows


def _evidence_cases():
    paper = nvgd.NVGD.paper(0.05, **NETWORK)
    gaussian = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
    whitened = nvgd.SVGD(0.3, coordinates=nvgd.coordinates.Whitened())
    yield (
        "normal, d = 2, SVGD",
        0.0,
        target_of(gaussian),
        whitened,
        {"num_particles": 200, "num_steps": 100},
    )
    yield (
        "banana, NVGD",
        0.0,
        target_of(Banana()),
        paper,
        {"num_particles": 200, "num_steps": 150},
    )
    target, truth = _regression()
    curved = nvgd.SVGD(0.3, coordinates=nvgd.coordinates.Curved())
    yield (
        "conjugate regression, d = 4, SVGD",
        truth,
        target,
        curved,
        {"num_particles": 200, "num_steps": 100},
    )
    for dim, inner, particles in ((2, 20, 200), (10, 30, 500)):
        witness = nvgd.stein.MLP(dim, width=32, key=jax.random.key(1)).zeroed()
        adaptive = nvgd.NVGD.paper(
            0.05,
            witness=witness,
            learning_rate=2e-3,
            max_inner_steps=inner,
            patience=inner,
            coordinates=nvgd.coordinates.Adaptive(),
        )
        options = {"num_particles": particles, "num_steps": 120}
        yield f"funnel, d = {dim}, NVGD", 0.0, target_of(Funnel(dim)), adaptive, options


def _regression() -> tuple[nvgd.Target, float]:
    """y = Xβ + N(0, ½²), β ~ N(0, I): y ~ N(0, XXᵀ + ¼I)."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(30, 4))
    response = features @ rng.normal(size=4) + 0.5 * rng.normal(size=30)
    covariance = features @ features.T + 0.25 * np.eye(30)
    truth = -0.5 * response @ np.linalg.solve(covariance, response)
    truth -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    x, y = jnp.asarray(features), jnp.asarray(response)

    def log_joint(beta: jax.Array) -> jax.Array:
        prior = jnp.sum(jax.scipy.stats.norm.logpdf(beta))
        return prior + jnp.sum(jax.scipy.stats.norm.logpdf(y, x @ beta, 0.5))

    return nvgd.Target(log_joint, dim=4), float(truth)


def determinants(seeds: int) -> Table:
    """Stochastic log determinants against exact ones, normals of growing dimension."""
    del seeds
    rows: Table = [("d", "exact", "stochastic", "sd of the estimate's error in log weight")]
    for dim in (10, 20):
        density = Gaussian(np.ones(dim), np.linspace(0.5, 2.0, dim))
        transport = nvgd.learn_transport(
            target_of(density),
            nvgd.SVGD(1.0, coordinates=nvgd.coordinates.Whitened()),
            num_particles=200,
            num_steps=50,
        )
        exact, estimate = (transport.weigh(1000, kind) for kind in ("exact", "stochastic"))
        error = np.std(estimate.log_weights - exact.log_weights)
        rows.append(
            (
                str(dim),
                f"{exact.log_evidence:.3f} ± {exact.standard_error:.3f}",
                f"{estimate.log_evidence:.3f} ± {estimate.standard_error:.3f}",
                f"{error:.3f}",
            )
        )
    return rows
