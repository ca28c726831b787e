"""Moments of the test suite's models by NUTS, for `tests/targets/references.json`.

    PYTHONPATH=tests/helpers python tests/targets/make_references.py

Four chains of NumPyro's NUTS for its models, four of PyMC's for its own. Stored are of every scalar
mean, standard deviation, first, fifth and ninth decile, the mean's Monte Carlo error and R-hat.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pymc as pm
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from numpyro_models import MODELS, eight_schools_not_centred
from pymc_models import regression

from nvgd._support.files import write_atomically
from nvgd.posterior.summary import scalars

NUM_WARMUP, NUM_DRAWS, NUM_CHAINS = 2000, 10_000, 4
OUT = Path(__file__).parent / "references.json"


def by_numpyro(model, args, kwargs):
    """Draws with leading axes (chain, draw)."""
    kernel = NUTS(model, target_accept_prob=0.95)
    sampler = MCMC(
        kernel,
        num_warmup=NUM_WARMUP,
        num_samples=NUM_DRAWS,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(jax.random.key(0), *args, **kwargs)
    return sampler.get_samples(group_by_chain=True)


def by_pymc(model):
    """The same, by PyMC's own sampler."""
    with model:
        found = pm.sample(
            draws=NUM_DRAWS // 4,
            tune=NUM_WARMUP // 2,
            chains=NUM_CHAINS,
            cores=1,
            random_seed=0,
            progressbar=False,
            target_accept=0.9,
        )
    posterior = found["posterior"]
    return {str(name): np.asarray(posterior[name]) for name in posterior.data_vars}


def moments(draws):
    """What is stored of every scalar."""
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    flat = {name: np.reshape(v, (-1, *v.shape[2:])) for name, v in draws.items()}
    names, values = scalars(flat)
    rows = {}
    for name, column in zip(names, values.T, strict=True):
        chains = column.reshape(num_chains, num_draws)
        if chains.std() < 1e-4:
            continue  # the diagonal of a correlation matrix
        size = float(effective_sample_size(chains))
        rows[name] = {
            "mean": round(float(chains.mean()), 5),
            "sd": round(float(chains.std()), 5),
            "deciles": np.round(np.quantile(chains, (0.1, 0.5, 0.9)), 5).tolist(),
            "error": round(float(chains.std() / np.sqrt(size)), 5),
            "r_hat": round(float(split_gelman_rubin(chains)), 4),
        }
    return rows


def main() -> None:
    """Sample every model and write the file."""
    references = {}
    for name, (model, args, kwargs) in MODELS.items():
        # The centred form's own geometry defeats NUTS: its posterior is that of the other form.
        used = eight_schools_not_centred if name == "eight schools" else model
        references[name] = moments(by_numpyro(used, args, kwargs))
        if name == "eight schools":
            kept = references[name].items()
            references[name] = {key: row for key, row in kept if "decentered" not in key}
    references["regression in PyMC"] = moments(by_pymc(regression()))
    text = json.dumps(references, indent=1) + "\n"
    write_atomically(OUT, lambda path: path.write_text(text))
    for name, rows in references.items():
        worst = max(row["r_hat"] for row in rows.values())
        error = max(row["error"] / row["sd"] for row in rows.values())
        print(f"{name}: {len(rows)} scalars, R-hat ≤ {worst}, error ≤ {error:.3f} sd")


if __name__ == "__main__":
    main()
