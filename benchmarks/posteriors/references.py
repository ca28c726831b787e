"""Reference draws of every posterior: exact, or by long runs of NUTS in double precision.

python -m benchmarks.posteriors.references [--only NAME ...] [--data-dir DIR] [--cache-dir DIR]
"""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from benchmarks.posteriors.models import load
from benchmarks.posteriors.posterior import BenchmarkPosterior, double_precision
from nvgd._support.errors import InputError
from nvgd._support.files import cache_directory, output_directory, write_atomically
from nvgd._support.tables import align

NUM_DRAWS = 4000
NUM_CHAINS, NUM_WARMUP, NUM_KEPT = 4, 1000, 5000
TARGET_ACCEPT = (0.95, 0.99, 0.997)
# Largest share of divergent transitions; with more, the chains would avoid some region.
MOST_DIVERGENT = 1e-3
SEED = 20_240_501
# Log densities that are evaluated together.
PROPOSALS_AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Reference:
    """Reference draws, and how far they can be trusted."""

    draws: np.ndarray
    method: str
    """"exact", "NUTS" or "independence Metropolis"."""
    r_hat: float
    """Largest split R-hat over the coordinates."""
    effective_size: float
    """Smallest effective sample size over the coordinates, before thinning."""
    num_divergent: int
    num_kept: int = NUM_KEPT
    """Draws of each chain, before thinning."""

    @property
    def is_trusted(self) -> bool:
        """R-hat below 1.01, more than 1000 effective draws, and hardly any divergence."""
        few_divergent = self.num_divergent <= MOST_DIVERGENT * NUM_CHAINS * self.num_kept
        return self.r_hat < 1.01 and self.effective_size > 1000 and few_divergent


def reference_directory(path: Path | None = None) -> Path:
    """The directory of the references: `path`, or the user's cache."""
    return output_directory(cache_directory() / "posteriors" if path is None else path)


def reference(
    posterior: BenchmarkPosterior, directory: Path, makers: Sequence["Maker"] = ()
) -> Reference:
    """The posterior's reference, made on first use and then read from `directory`.

    Arguments:
        makers: ways to make it, tried in this order until one is trusted; long runs of NUTS if
            omitted.
    """
    path = directory / f"{posterior.name}.npz"
    if not path.is_file():
        if posterior.draw is not None:
            made = _exact(posterior)
        else:
            made = _first_trusted(posterior, makers or NUTS_RUNS)
        fields = {**dataclasses.asdict(made), "draws": made.draws.astype(np.float32)}
        write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **fields))
    with np.load(path, allow_pickle=False) as stored:
        made = Reference(
            draws=stored["draws"],
            method=str(stored["method"]),
            r_hat=float(stored["r_hat"]),
            effective_size=float(stored["effective_size"]),
            num_divergent=int(stored["num_divergent"]),
            num_kept=int(stored.get("num_kept", NUM_KEPT)),
        )
    if made.draws.shape != (NUM_DRAWS, posterior.dim):
        raise InputError(
            f"{str(path)!r} is no reference of {posterior.name}, whose draws have shape "
            f"{(NUM_DRAWS, posterior.dim)}, got {made.draws.shape}: delete it."
        )
    return made


def _exact(posterior: BenchmarkPosterior) -> Reference:
    assert posterior.draw is not None
    draws = posterior.draw(SEED, NUM_DRAWS)
    return Reference(draws, "exact", *_checks(draws.reshape(NUM_CHAINS, -1, posterior.dim)), 0)


def _first_trusted(posterior: BenchmarkPosterior, makers: Sequence["Maker"]) -> Reference:
    made = None
    for maker in makers:
        made = maker(posterior) or made
        if made is not None and made.is_trusted:
            break
    assert made is not None
    return made


def independence(
    posterior: BenchmarkPosterior, num_kept: int = 4000, least_share: float = 0.25
) -> Reference | None:
    """Metropolis chains whose proposals are standard normal in the easy coordinates.

    Where these are whitened at a mode and the posterior is nearly normal, most proposals are
    accepted, and a draw takes one log density. Elsewhere, chains would stay in the tails: None
    if the effective sample size is below `least_share` of the draws.
    """
    with double_precision():
        restore, log_density = _easy(posterior)
        rng = np.random.default_rng(SEED)
        proposals = rng.normal(size=(NUM_CHAINS * num_kept, posterior.dim))
        evaluate = jax.jit(lambda z: jax.lax.map(log_density, z, batch_size=PROPOSALS_AT_ONCE))
        weights = np.asarray(evaluate(proposals)) + 0.5 * np.sum(proposals**2, axis=1)
        weights = np.nan_to_num(weights, nan=-np.inf).reshape(NUM_CHAINS, num_kept)
        levels = np.log(rng.random(weights.shape))
        states = np.zeros(weights.shape, int)
        for chain in range(NUM_CHAINS):
            at = int(np.argmax(np.isfinite(weights[chain])))
            for i in range(num_kept):
                if levels[chain, i] < weights[chain, i] - weights[chain, at]:
                    at = i
                states[chain, i] = chain * num_kept + at
        chains = np.asarray(jax.jit(jax.vmap(restore))(proposals))[states]
    made = _of_chains(posterior, "independence Metropolis", chains, 0)
    return made if made.effective_size > least_share * NUM_CHAINS * num_kept else None


def nuts(
    posterior: BenchmarkPosterior,
    target_accept: float,
    num_warmup: int = NUM_WARMUP,
    num_kept: int = NUM_KEPT,
    *,
    is_whitened: bool = False,
) -> Reference:
    """NumPyro's NUTS in the easy coordinates.

    Arguments:
        num_warmup, num_kept: steps of each of four chains; `num_kept` is a multiple of 1000.
        is_whitened: the easy coordinates need no mass matrix, so that a short warm-up suffices.
    """
    chains, num_divergent = _chains(
        posterior, target_accept, num_warmup, num_kept, is_whitened=is_whitened
    )
    return _of_chains(posterior, "NUTS", chains, num_divergent)


Maker = Callable[[BenchmarkPosterior], Reference | None]
# Chains of ever shorter steps, until hardly any transition diverges.
NUTS_RUNS = tuple(functools.partial(nuts, target_accept=rate) for rate in TARGET_ACCEPT)


def _of_chains(
    posterior: BenchmarkPosterior, method: str, chains: np.ndarray, num_divergent: int
) -> Reference:
    """The reference of chains (c, n, d), thinned."""
    num_kept = chains.shape[1]
    thinned = chains[:, :: NUM_CHAINS * num_kept // NUM_DRAWS].reshape(-1, posterior.dim)
    return Reference(thinned, method, *_checks(chains), num_divergent, num_kept)


def long_chains(posterior: BenchmarkPosterior, num_warmup: int, num_kept: int) -> np.ndarray:
    """Chains (c, n, d) of NUTS, at the least target acceptance without many divergences."""
    chains = np.empty(0)
    for target_accept in TARGET_ACCEPT:
        chains, num_divergent = _chains(posterior, target_accept, num_warmup, num_kept)
        if num_divergent <= MOST_DIVERGENT * NUM_CHAINS * num_kept:
            break
    return chains


def _chains(
    posterior: BenchmarkPosterior,
    target_accept: float,
    num_warmup: int,
    num_kept: int,
    *,
    is_whitened: bool = False,
) -> tuple[np.ndarray, int]:
    """Chains (c, n, d) in the posterior's coordinates, and how many transitions diverged."""
    from numpyro.infer import MCMC, NUTS  # pyright: ignore[reportMissingImports]

    with double_precision():
        restore, log_density = _easy(posterior)
        kernel = NUTS(
            potential_fn=lambda z: -log_density(z),
            dense_mass=not is_whitened,
            adapt_mass_matrix=not is_whitened,
            target_accept_prob=target_accept,
        )
        mcmc = MCMC(
            kernel,
            num_warmup=num_warmup,
            num_samples=num_kept,
            num_chains=NUM_CHAINS,
            chain_method="sequential",
            progress_bar=False,
        )
        start_key, run_key = jax.random.split(jax.random.key(SEED))
        starts = 0.5 * jax.random.normal(start_key, (NUM_CHAINS, posterior.dim))
        mcmc.run(run_key, init_params=starts, extra_fields=("diverging",))
        samples = mcmc.get_samples(group_by_chain=True)
        chains = np.asarray(jax.jit(jax.vmap(jax.vmap(restore)))(samples))
        return chains, int(mcmc.get_extra_fields()["diverging"].sum())


def _easy(posterior: BenchmarkPosterior) -> tuple[Callable, Callable]:
    """The map from NUTS's coordinates to the posterior's, and the log density in NUTS's."""
    easy = posterior.easy
    if easy is None:
        return lambda z: z, posterior.log_density
    return easy.restore, lambda z: posterior.log_density(easy.restore(z)) + easy.log_jacobian(z)


def _checks(chains: np.ndarray) -> tuple[float, float]:
    """Largest split R-hat and smallest effective sample size of chains (c, n, d)."""
    from numpyro.diagnostics import (  # pyright: ignore[reportMissingImports]
        effective_sample_size,
        split_gelman_rubin,
    )

    return float(split_gelman_rubin(chains).max()), float(effective_sample_size(chains).min())


def stein_score(posterior: BenchmarkPosterior, draws: np.ndarray) -> float:
    """Largest |z| of the Stein identities E sᵢ = 0 and E xᵢsᵢ = −1, s = ∇log p.

    Above about five, the draws do not belong to the log density: one of them is wrong, or the file
    in the cache is from another version.
    """
    with double_precision():
        scores = np.asarray(jax.jit(jax.vmap(jax.grad(posterior.log_density)))(draws.astype(float)))
    centred = draws - draws.mean(axis=0)
    terms = np.concatenate([scores, centred * scores + 1], axis=1)
    return float(np.max(np.abs(terms.mean(axis=0)) / terms.std(axis=0)) * len(draws) ** 0.5)


def gradient_seconds(posterior: BenchmarkPosterior) -> float:
    """Seconds for one gradient at each of 256 particles, in single precision."""
    particles = jax.random.normal(jax.random.key(0), (256, posterior.dim))
    gradients = jax.jit(jax.vmap(jax.grad(posterior.log_density)))
    gradients(particles).block_until_ready()
    started = time.perf_counter()
    for _ in range(20):
        gradients(particles).block_until_ready()
    return (time.perf_counter() - started) / 20


def main() -> None:
    """Make the missing references, and print their checks."""
    parser = argparse.ArgumentParser(description="Make and check the references.")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cache-dir", type=Path)
    options = parser.parse_args()
    directory = reference_directory(options.cache_dir)
    head = (
        "posterior",
        "dim",
        "method",
        "R-hat",
        "ESS",
        "divergent",
        "Stein",
        "gradient",
        "trusted",
    )
    rows = [head]
    for posterior in load(options.only, options.data_dir):
        started = time.perf_counter()
        made = reference(posterior, directory)
        seconds = time.perf_counter() - started
        print(f"{posterior.name}: {made.method}, {seconds:.1f} s", flush=True)
        rows.append(
            (
                posterior.name,
                str(posterior.dim),
                made.method,
                f"{made.r_hat:.4f}",
                f"{made.effective_size:.0f}",
                str(made.num_divergent),
                f"{stein_score(posterior, made.draws):.1f}",
                f"{1e3 * gradient_seconds(posterior):.2f} ms",
                "yes" if made.is_trusted else "NO",
            )
        )
    print(align(rows))


if __name__ == "__main__":
    main()
