"""References by long runs of NUTS, for targets whose moments nobody ships.

python -m benchmarks.inference_gym.references [--only NAME ...] [--cache-dir DIR]
"""

import argparse
import dataclasses
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks.inference_gym.targets import GymTarget, Truth, load
from benchmarks.posteriors.posterior import double_precision
from nvgd._support.files import cache_directory, output_directory, write_atomically
from nvgd._support.tables import align

NUM_CHAINS, NUM_WARMUP, NUM_KEPT = 4, 2000, 10_000
LARGEST_DENSE = 100
TARGET_ACCEPT = (0.9, 0.99)
# Largest share of divergent transitions; with more, the chains would avoid some region.
MOST_DIVERGENT = 1e-3
SEED = 20_240_501


@dataclasses.dataclass(frozen=True)
class Reference:
    """Moments of the constrained scalars and of their squares, and how far they can be trusted."""

    mean: np.ndarray
    sd: np.ndarray
    mean_square: np.ndarray
    sd_square: np.ndarray
    r_hat: float
    """Largest split R-hat over the scalars and their squares."""
    effective_size: float
    """Smallest effective sample size over the scalars and their squares."""
    mean_effective_size: float
    """Harmonic mean of the effective sample sizes of the scalars."""
    num_divergent: int

    @property
    def is_trusted(self) -> bool:
        """R-hat below 1.01, more than 1000 effective draws, and hardly any divergence."""
        few_divergent = self.num_divergent <= MOST_DIVERGENT * NUM_CHAINS * NUM_KEPT
        return self.r_hat < 1.01 and self.effective_size > 1000 and few_divergent

    def truth(self) -> Truth:
        """The moments in the form of those that the gym ships."""
        return Truth(self.mean, self.sd, self.mean_effective_size**-0.5)


def gym_directory(path: Path | None = None) -> Path:
    """The directory of references and of NUTS's records: `path`, or the user's cache."""
    return output_directory(cache_directory() / "inference_gym" if path is None else path)


def reference(target: GymTarget, directory: Path) -> Reference:
    """The target's reference, made on first use and then read from `directory`."""
    path = directory / f"{target.name}.npz"
    if not path.is_file():
        fields = dataclasses.asdict(_made(target))
        write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **fields))
    with np.load(path, allow_pickle=False) as stored:
        values = {field.name: stored[field.name] for field in dataclasses.fields(Reference)}
    return Reference(**{name: v if v.ndim else v.item() for name, v in values.items()})


def truth_of(target: GymTarget, directory: Path) -> Truth | None:
    """The shipped moments, or those of the reference; None if it cannot be trusted."""
    if target.truth is not None:
        return target.truth
    made = reference(target, directory)
    if not made.is_trusted:
        print(
            f"{target.name}: left out, since its reference cannot be trusted (R-hat "
            f"{made.r_hat:.3g}, effective size {made.effective_size:.0f}, {made.num_divergent} "
            "divergent)."
        )
        return None
    return made.truth()


def _made(target: GymTarget) -> Reference:
    """Chains of ever shorter steps, until hardly any transition diverges."""
    made = None
    for target_accept in TARGET_ACCEPT:
        made = _nuts(target, target_accept)
        if made.is_trusted:
            break
    assert made is not None
    return made


def _nuts(target: GymTarget, target_accept: float) -> Reference:
    from numpyro.diagnostics import (  # pyright: ignore[reportMissingImports]
        effective_sample_size,
        split_gelman_rubin,
    )
    from numpyro.infer import MCMC, NUTS  # pyright: ignore[reportMissingImports]

    with double_precision():
        kernel = NUTS(
            potential_fn=lambda z: -target.log_density(z),
            dense_mass=target.dim <= LARGEST_DENSE,
            target_accept_prob=target_accept,
        )
        mcmc = MCMC(
            kernel,
            num_warmup=NUM_WARMUP,
            num_samples=NUM_KEPT,
            num_chains=NUM_CHAINS,
            chain_method="sequential",
            progress_bar=False,
        )
        start_key, run_key = jax.random.split(jax.random.key(SEED))
        starts = 0.5 * jax.random.normal(start_key, (NUM_CHAINS, target.dim))
        mcmc.run(run_key, init_params=starts, extra_fields=("diverging",))
        samples = mcmc.get_samples(group_by_chain=True)
        chains = np.asarray(jax.jit(jax.vmap(jax.vmap(target.constrain)))(samples), np.float64)
        num_divergent = int(mcmc.get_extra_fields()["diverging"].sum())
    squares = chains**2
    sizes = effective_sample_size(chains)
    return Reference(
        mean=chains.mean(axis=(0, 1)),
        sd=chains.std(axis=(0, 1)),
        mean_square=squares.mean(axis=(0, 1)),
        sd_square=squares.std(axis=(0, 1)),
        r_hat=float(max(split_gelman_rubin(chains).max(), split_gelman_rubin(squares).max())),
        effective_size=float(min(sizes.min(), effective_sample_size(squares).min())),
        mean_effective_size=float(1 / np.mean(1 / sizes)),
        num_divergent=num_divergent,
    )


def main() -> None:
    """Make the missing references, and print their checks beside the shipped moments."""
    parser = argparse.ArgumentParser(description="Make and check the references.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="all without shipped moments")
    parser.add_argument("--cache-dir", type=Path)
    options = parser.parse_args()
    directory = gym_directory(options.cache_dir)
    rows = [("target", "dim", "R-hat", "ESS", "divergent", "mean off", "sd ratio", "trusted")]
    for target in load(options.only):
        if options.only is None and target.truth is not None:
            continue
        started = time.perf_counter()
        made = reference(target, directory)
        print(f"{target.name}: {time.perf_counter() - started:.0f} s", flush=True)
        apart = ("", "")
        if target.truth is not None:
            largest = np.max(np.abs(made.mean - target.truth.mean) / target.truth.sd)
            ratio = made.sd / target.truth.sd
            apart = f"{largest:.3f}", f"{ratio.min():.3f} to {ratio.max():.3f}"
        rows.append(
            (
                target.name,
                str(target.dim),
                f"{made.r_hat:.4f}",
                f"{made.effective_size:.0f}",
                str(made.num_divergent),
                *apart,
                "yes" if made.is_trusted else "NO",
            )
        )
    print(align(rows))


if __name__ == "__main__":
    main()
