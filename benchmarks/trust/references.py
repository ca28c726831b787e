"""Reference draws of every model in constrained space: exact, or by NUTS in double precision.

python -m benchmarks.trust.references [--only NAME ...] [--cache-dir DIR]

Each missing reference is made in a process of its own, since JAX's 64-bit mode, and what PyMC
changes in JAX, would otherwise stay.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.trust.model import Exact, NumPyroNUTS, PyMCNUTS, TrustModel
from benchmarks.trust.models import MODELS, load
from nvgd._support.errors import InputError
from nvgd._support.files import cache_directory, output_directory, write_atomically
from nvgd._support.tables import align

NUM_DRAWS = 4000
NUM_CHAINS = 4
# Target acceptance, warm-up and draws per chain of each attempt, until a reference can be trusted.
ATTEMPTS = ((0.9, 500, 1000), (0.95, 1500, 5000), (0.99, 1500, 10_000), (0.995, 1500, 25_000))
LARGEST_R_HAT, SMALLEST_SIZE = 1.005, 2000
# Largest share of divergent transitions; with more, the chains would avoid some region.
MOST_DIVERGENT = 2e-4
SEED = 20_240_601

Draws = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Reference:
    """Reference draws by name, shape (4000, ...), and how far they can be trusted."""

    draws: Draws
    means: Draws
    """Means of all draws, before thinning."""
    mean_errors: Draws
    """Their standard errors."""
    method: str
    """"exact" or "NUTS"."""
    dim: int
    """Number of parameters of the target."""
    r_hat: float
    """Largest rank-normalised split R-hat over the scalars."""
    effective_size: float
    """Smallest effective sample size, of the bulk or a tail of a scalar, before thinning."""
    num_divergent: int
    num_transitions: int
    """Transitions of all chains after warmup; none of exact draws."""

    @property
    def is_trusted(self) -> bool:
        """R-hat at most 1.005, more than 2000 effective draws, and hardly any divergence."""
        few_divergent = self.num_divergent <= MOST_DIVERGENT * self.num_transitions
        is_mixed = self.r_hat <= LARGEST_R_HAT and self.effective_size > SMALLEST_SIZE
        return is_mixed and few_divergent


ARRAYS = ("draws", "means", "mean_errors")
FACTS = ("method", "dim", "r_hat", "effective_size", "num_divergent", "num_transitions")


def reference_directory(path: Path | None = None) -> Path:
    """The directory of the references: `path`, or the user's cache."""
    return output_directory(cache_directory() / "trust" if path is None else path)


def reference(model: TrustModel, directory: Path) -> Reference:
    """The model's reference, made on first use and then read from `directory`."""
    path = directory / f"{model.name}.npz"
    if not path.is_file():
        command = [sys.executable, "-m", "benchmarks.trust.references", "--make", model.name]
        environment = {**os.environ, "JAX_ENABLE_X64": "1"}
        subprocess.run([*command, "--cache-dir", str(directory)], check=True, env=environment)
    with np.load(path, allow_pickle=False) as stored:
        arrays: list[Draws] = [{} for _ in ARRAYS]
        for key in stored.files:
            kind, _, name = key.partition("/")
            if name:
                arrays[ARRAYS.index(kind)][name] = stored[key]
        return Reference(*arrays, **{name: stored[name].item() for name in FACTS})


def make(model: TrustModel, directory: Path) -> None:
    """Sample the reference, and write it to `directory`; JAX must be in its 64-bit mode."""
    target = model.target()
    like = target.present(jnp.zeros((1, target.dim)))
    made = None
    for target_accept, num_warmup, num_kept in ATTEMPTS:
        chains, num_divergent = _chains(model, target_accept, num_warmup, num_kept)
        chains = {name: np.asarray(chains[name]) for name in like}
        r_hat, effective_size = _checks(chains)
        draws = {name: _thinned(chains[name]) for name in like}
        means = {name: chains[name].mean(axis=(0, 1)) for name in like}
        errors = {name: _mean_errors(chains[name]) for name in like}
        method = "exact" if isinstance(model.recipe, Exact) else "NUTS"
        num_transitions = 0 if method == "exact" else NUM_CHAINS * num_kept
        facts = (method, target.dim, r_hat, effective_size, num_divergent, num_transitions)
        made = Reference(draws, means, errors, *facts)
        if made.is_trusted:
            break
    assert made is not None
    for name, value in like.items():
        if made.draws[name].shape != (NUM_DRAWS, *value.shape[1:]):
            raise InputError(
                f"the reference of {model.name} has {name} of shape {made.draws[name].shape[1:]}, "
                f"the target has {value.shape[1:]}."
            )
    arrays: dict[str, Any] = {
        f"{kind}/{name}": values for kind in ARRAYS for name, values in getattr(made, kind).items()
    }
    arrays |= {name: np.asarray(getattr(made, name)) for name in FACTS}
    path = directory / f"{model.name}.npz"
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def _thinned(chains: np.ndarray) -> np.ndarray:
    """4000 draws, evenly from all chains, in single precision."""
    step = chains.shape[0] * chains.shape[1] // NUM_DRAWS
    return chains[:, ::step].reshape(-1, *chains.shape[2:])[:NUM_DRAWS].astype(np.float32)


def _mean_errors(chains: np.ndarray) -> np.ndarray:
    """Standard errors of the means over all chains, from their autocorrelations."""
    from numpyro.diagnostics import effective_sample_size

    number = chains.shape[0] * chains.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.minimum(effective_sample_size(chains), number)
    # Constants have no effective size, and no error.
    return chains.std(axis=(0, 1)) / np.sqrt(np.where(sizes > 0, sizes, number))


def _chains(
    model: TrustModel, target_accept: float, num_warmup: int, num_kept: int
) -> tuple[Draws, int]:
    """Chains (c, n, ...) by name, and how many transitions diverged."""
    match model.recipe:
        case Exact(draw):
            draws = draw(np.random.default_rng(SEED), NUM_DRAWS)
            return {
                name: value.reshape(NUM_CHAINS, -1, *value.shape[1:])
                for name, value in draws.items()
            }, 0
        case NumPyroNUTS(build):
            return _numpyro_chains(build(), target_accept, num_warmup, num_kept)
        case PyMCNUTS(build):
            return _pymc_chains(build(), target_accept, num_warmup, num_kept)


def _numpyro_chains(
    called: tuple[Any, ...], target_accept: float, num_warmup: int, num_kept: int
) -> tuple[Draws, int]:
    import jax
    from numpyro.infer import MCMC, NUTS

    function, *args = called
    mcmc = MCMC(
        NUTS(function, target_accept_prob=target_accept),
        num_warmup=num_warmup,
        num_samples=num_kept,
        num_chains=NUM_CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(SEED), *args, extra_fields=("diverging",))
    chains = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    return chains, int(mcmc.get_extra_fields()["diverging"].sum())


def _pymc_chains(
    model: Any, target_accept: float, num_warmup: int, num_kept: int
) -> tuple[Draws, int]:
    import pymc as pm

    with model:
        found = pm.sample(
            draws=num_kept,
            tune=num_warmup,
            chains=NUM_CHAINS,
            target_accept=target_accept,
            random_seed=SEED,
            nuts_sampler="numpyro",
            nuts_sampler_kwargs={"chain_method": "sequential"},
            progressbar=False,
            compute_convergence_checks=False,
        )
    chains = {str(name): np.asarray(values) for name, values in found.posterior.items()}
    return chains, int(found.sample_stats["diverging"].sum())


def _checks(chains: Draws) -> tuple[float, float]:
    """Largest rank-normalised split R-hat, smallest effective size of bulk and tails."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from scipy.stats import norm, rankdata

    r_hats, sizes = [], []
    for values in chains.values():
        values = values.reshape(*values.shape[:2], -1)
        # Some entries are constants, such as those above the diagonal of a Cholesky factor.
        values = values[:, :, np.ptp(values, axis=(0, 1)) > 0]
        if not values.shape[2]:
            continue
        num = values.shape[0] * values.shape[1]
        folded = np.abs(values - np.median(values, axis=(0, 1)))
        for form in (values, folded):
            ranks = rankdata(form.reshape(num, -1), axis=0).reshape(form.shape)
            scores = norm.ppf((ranks - 0.375) / (num + 0.25))
            r_hats.append(split_gelman_rubin(scores).max())
            if form is values:
                sizes.append(effective_sample_size(scores).min())
        for level in (0.05, 0.95):
            below = (values <= np.quantile(values, level, axis=(0, 1))).astype(float)
            sizes.append(effective_sample_size(below).min())
    return float(max(r_hats)), float(min(sizes))


def table(models: list[TrustModel], directory: Path) -> str:
    """The checks of the references, one row per model."""
    rows = [("model", "d", "scalars", "method", "R-hat", "ESS", "divergent", "of", "trusted")]
    for model in models:
        made = reference(model, directory)
        num_scalars = sum(draws[0].size for draws in made.draws.values())
        rows.append(
            (
                model.name,
                str(made.dim),
                str(num_scalars),
                made.method,
                f"{made.r_hat:.4f}",
                f"{made.effective_size:.0f}",
                str(made.num_divergent),
                str(made.num_transitions),
                "yes" if made.is_trusted else "NO",
            )
        )
    return align(rows)


def main() -> None:
    """Make the missing references, and print their checks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trust.references", description="Make and check the references."
    )
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--make", choices=list(MODELS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    directory = reference_directory(options.cache_dir)
    if options.make:
        make(MODELS[options.make], directory)
        return
    try:
        models = load(options.only)
    except InputError as error:
        parser.exit(2, f"{error}\n")
    for model in models:
        started = time.perf_counter()
        made = reference(model, directory)
        seconds = time.perf_counter() - started
        print(f"{model.name}: {made.method}, {seconds:.1f} s", flush=True)
    print(table(models, directory))


if __name__ == "__main__":
    main()
