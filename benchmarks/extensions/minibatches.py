"""Stochastic Stein discrepancies and noise models, where theory says what to expect."""

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.extensions.common import Table, cell, flow


def noise_models(seeds: int) -> Table:
    """SGLD's stationary variance over the target's, against theory, by step size."""
    num_rows, batch_size = 1000, 10
    target, noise = _location(num_rows, batch_size, 0.16)
    rows: Table = [("ε", "SGLD: theory", "SGLD", "NoiseAware: theory", "NoiseAware")]
    for step_size in (1e-4, 2e-4, 4e-4, 8e-4):
        ula = 1 / (1 - step_size * num_rows / 2)
        brought = step_size * noise / 2
        measured = []
        for mover in (
            nvgd.movers.Euler(step_size),
            nvgd.movers.NoiseAware(nvgd.movers.Euler(step_size), num_parts=5),
        ):
            ratios = []
            for seed in range(seeds):
                posterior = nvgd.sample(
                    target,
                    flow(nvgd.directions.Langevin(), mover),
                    initial=jnp.zeros((20, 1)),
                    num_steps=20_000,
                    thin=10,
                    seed=seed,
                    progress=False,
                )
                states = np.asarray(posterior.particles, np.float64)[2000:]
                ratios.append(num_rows * np.mean(states**2))
            measured.append(cell(ratios, 2))
        # NoiseAware can remove at most the noise that it would inject.
        rest = max(brought - 1, 0.0)
        rows.append(
            (
                f"{step_size:g}",
                f"{ula * (1 + brought):.2f}",
                measured[0],
                f"{ula * (1 + rest):.2f}",
                measured[1],
            )
        )
    return rows


def noisy_flows(seeds: int) -> Table:
    """The same for SVGD: variance over time and particles over the target's."""
    num_rows, batch_size, step_size = 1000, 10, 4e-4
    target, noise = _location(num_rows, batch_size, 0.16)
    rows: Table = [("steps", "variance over the target's", "noise share of the batches")]
    for name, mover in (
        ("plain", nvgd.movers.Euler(step_size)),
        ("NoiseAware", nvgd.movers.NoiseAware(nvgd.movers.Euler(step_size), num_parts=5)),
    ):
        ratios = []
        for seed in range(seeds):
            posterior = nvgd.sample(
                target,
                flow(nvgd.directions.Kernel(rescale=True), mover),
                initial=0.03 * jax.random.normal(jax.random.key(seed), (50, 1)),
                num_steps=3000,
                thin=5,
                seed=seed,
                progress=False,
            )
            states = np.asarray(posterior.particles, np.float64)[5000:]
            ratios.append(num_rows * np.mean(states**2))
        rows.append((name, cell(ratios, 2), f"{step_size * noise / 2:.2f}"))
    return rows


def stochastic_stein(seeds: int) -> Table:
    """How far from the full-data field a trained field ends, by which batches trained it."""
    data = jax.random.normal(jax.random.key(0), (2000, 2)) + jnp.array([1.0, 0.0])

    def target(batch_size: int) -> nvgd.Target:
        return nvgd.Target(
            lambda x: -0.5 * x @ x,
            dim=2,
            log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2) / 100,
            data=data,
            batch_size=batch_size,
        )

    options = {"learning_rate": 3e-3, "max_inner_steps": 20, "patience": 20}
    rows: Table = [
        ("training", "rows per step", "sd of the mean's jitter over target sd", "sd over target sd")
    ]
    precision = 1 + 20
    sd = precision**-0.5
    for name, direction, batch_size, cost in (
        ("fixed batch of 10", nvgd.directions.Neural(**options), 10, 10),
        (
            "refreshed, 4 more batches of 10",
            nvgd.directions.Stochastic(nvgd.directions.Neural(**options), num_batches=4),
            10,
            50,
        ),
        (
            "refreshed, each particle its own",
            nvgd.directions.Stochastic(
                nvgd.directions.Neural(**options), num_batches=4, independent=True
            ),
            10,
            "10 + 40 per particle",
        ),
        ("fixed batch of 50", nvgd.directions.Neural(**options), 50, 50),
    ):
        jitters, spreads = [], []
        for seed in range(seeds):
            posterior = nvgd.sample(
                target(batch_size),
                flow(direction, nvgd.movers.Euler(0.02)),
                initial=sd * jax.random.normal(jax.random.key(seed), (100, 2)),
                num_steps=600,
                thin=5,
                seed=seed,
                progress=False,
            )
            states = np.asarray(posterior.particles, np.float64).reshape(120, 100, 2)[40:]
            jitters.append(states.mean(axis=1).std(axis=0).mean() / sd)
            spreads.append(states.std(axis=1).mean() / sd)
        rows.append((name, str(cost), cell(jitters), cell(spreads, 2)))
    return rows


def _location(num_rows: int, batch_size: int, scale: float) -> tuple[nvgd.Target, float]:
    """N(0, 1/N) as a posterior of N rows, and the variance of a batch's score."""
    data = scale * jax.random.normal(jax.random.key(2), (num_rows, 1))
    data = data - jnp.mean(data)
    target = nvgd.Target(
        lambda x: 0.0 * x[0],
        dim=1,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=data,
        batch_size=batch_size,
    )
    share = 1 - batch_size / num_rows
    return target, num_rows**2 / batch_size * share * float(jnp.var(data, ddof=1))
