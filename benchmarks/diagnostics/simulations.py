"""Simulation-based calibration of the default method on three small models.

python -m benchmarks.diagnostics.simulations [--only NAME ...] [--number K]
"""

import argparse
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats

import nvgd
from nvgd._support.tables import markdown

# Fewer particles and steps than by default, so that hundreds of runs are affordable.
OPTIONS: dict[str, Any] = {"num_particles": 64, "num_steps": 700}
FEATURES = jax.random.normal(jax.random.key(7), (30, 2))
NUM_GROUPS, PER_GROUP = 4, 5


class Simulated(NamedTuple):
    """A model from which data can be simulated."""

    simulate: Callable[[Any], tuple[dict[str, Any], Any]]
    log_density: Callable[..., Any]
    example: dict[str, Any]


def _normal(key: Any) -> tuple[dict[str, Any], Any]:
    first, second = jax.random.split(key)
    mean, log_scale = jax.random.normal(first, (2,))
    outcome = mean + jnp.exp(log_scale) * jax.random.normal(second, (10,))
    return {"mean": mean, "log_scale": log_scale}, outcome


def _normal_density(at: dict[str, Any], data: Any) -> Any:
    prior = stats.norm.logpdf(at["mean"]) + stats.norm.logpdf(at["log_scale"])
    return prior + jnp.sum(stats.norm.logpdf(data, at["mean"], jnp.exp(at["log_scale"])))


def _logistic(key: Any) -> tuple[dict[str, Any], Any]:
    first, second = jax.random.split(key)
    slopes = 1.5 * jax.random.normal(first, (2,))
    return {"slopes": slopes}, jax.random.bernoulli(second, jax.nn.sigmoid(FEATURES @ slopes))


def _logistic_density(at: dict[str, Any], data: Any) -> Any:
    logits = jnp.where(data, 1.0, -1.0) * (FEATURES @ at["slopes"])
    prior = jnp.sum(stats.norm.logpdf(at["slopes"], 0.0, 1.5))
    return prior + jnp.sum(jax.nn.log_sigmoid(logits))


def _groups(key: Any) -> tuple[dict[str, Any], Any]:
    keys = jax.random.split(key, 4)
    mean, log_scale = jax.random.normal(keys[0]), 0.7 * jax.random.normal(keys[1])
    effects = mean + jnp.exp(log_scale) * jax.random.normal(keys[2], (NUM_GROUPS,))
    outcome = effects[:, None] + jax.random.normal(keys[3], (NUM_GROUPS, PER_GROUP))
    return {"mean": mean, "log_scale": log_scale, "effects": effects}, outcome


def _groups_density(at: dict[str, Any], data: Any) -> Any:
    prior = stats.norm.logpdf(at["mean"]) + stats.norm.logpdf(at["log_scale"], 0.0, 0.7)
    prior += jnp.sum(stats.norm.logpdf(at["effects"], at["mean"], jnp.exp(at["log_scale"])))
    return prior + jnp.sum(stats.norm.logpdf(data, at["effects"][:, None]))


MODELS = {
    "mean and scale": Simulated(_normal, _normal_density, {"mean": 0.0, "log_scale": 0.0}),
    "logistic": Simulated(_logistic, _logistic_density, {"slopes": jnp.zeros(2)}),
    "centred groups": Simulated(
        _groups, _groups_density, {"mean": 0.0, "log_scale": 0.0, "effects": jnp.zeros(NUM_GROUPS)}
    ),
}


def _target(model: Simulated, data: Any) -> nvgd.Target:
    log_density = jax.tree_util.Partial(model.log_density, data=data)
    return nvgd.Target(log_density, example=model.example)


def main() -> None:
    """Calibrate every chosen model, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnostics.simulations",
        description="Simulation-based calibration of the default method.",
    )
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--number", type=int, default=200, metavar="K", help="data sets per model")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    rows = [("model", "parameters", "data sets", "smallest p", "uniform", "CPU s per run")]
    for name in options.only:
        model, started = MODELS[name], time.process_time()
        result = nvgd.simulation_based_calibration(
            model.simulate,
            options.number,
            make_target=functools.partial(_target, model),
            progress=False,
            **OPTIONS,
        )
        seconds = (time.process_time() - started) / options.number
        uniform = "yes" if result.is_uniform else "NO"
        smallest = f"{min(result.p_values.values()):.2g}"
        number = str(len(result.names))
        rows.append((name, number, str(options.number), smallest, uniform, f"{seconds:.2f}"))
        print(" | ".join(rows[-1]), flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
