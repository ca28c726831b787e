"""Langevin fraction, annealing, preconditioning, regularisers, memory, momentum, projection."""

import jax
import jax.numpy as jnp
import numpy as np

import nvgd
from benchmarks.extensions.common import (
    Table,
    cell,
    energy_to,
    exact_energy,
    flow,
    ill_conditioned,
    network,
    over_seeds,
    target_of,
    whitened_error,
)
from nvgd.densities import Banana, Funnel, GaussianMixture
from nvgd.movers import AbstractMover


def langevin_fraction(seeds: int) -> Table:
    """Energy distance on funnels for shares τ of noise."""
    rows: Table = [("target", "method", "τ = 0", "τ = .2", "τ = .5", "τ = 1 (ULA)", "exact draws")]
    for dim, name, inner in (
        (2, "NVGD", network()),
        (20, "SVGD", nvgd.directions.Kernel(rescale=True)),
    ):
        density = Funnel(dim)
        measure, exact = energy_to(density), cell(exact_energy(density, 200, seeds))
        cells = [
            cell(
                over_seeds(
                    target_of(density),
                    flow(nvgd.directions.LangevinFraction(inner, share), nvgd.movers.Euler(0.02)),
                    seeds,
                    measure,
                    num_particles=200,
                    num_steps=500,
                )
            )
            for share in (0.0, 0.2, 0.5, 1.0)
        ]
        rows.append((f"funnel, d = {dim}", name, *cells, exact))
    return rows


def annealing(seeds: int) -> Table:
    """The share of particles in the right mode of .3 N(−4, 1) + .7 N(4, 1), from the left one."""
    density = GaussianMixture([[-4.0, 0.0], [4.0, 0.0]], 1.0, [0.3, 0.7])
    target, num_steps = target_of(density), 1000
    start = jax.random.normal(jax.random.key(0), (200, 2)) - jnp.array([4.0, 0.0])
    rows: Table = [("direction", "plain", "annealed", "annealed, resampled", "two cycles", "truth")]
    step = nvgd.movers.Euler(0.2)
    for name, inner in (
        ("NVGD, τ = .3", nvgd.directions.LangevinFraction(network(), 0.3)),
        ("ULA", nvgd.directions.Langevin()),
    ):
        one, two = nvgd.directions.Cycles(power=3.0), nvgd.directions.Cycles(2, power=3.0)
        flows = [
            (flow(inner, step), 1),
            (flow(nvgd.directions.Annealed(inner, one), step), 1),
            (flow(nvgd.directions.Annealed(inner, one), nvgd.movers.Resampled(step, one)), 1),
            (flow(nvgd.directions.Annealed(inner, two), nvgd.movers.Resampled(step, two)), 2),
        ]
        cells = [
            cell(
                over_seeds(
                    target,
                    method,
                    seeds,
                    lambda p: float(jnp.mean(p.particles[:, 0] > 0)),
                    initial=start,
                    num_steps=length * num_steps,
                ),
                2,
            )
            for method, length in flows
        ]
        rows.append((name, *cells, ".70"))
    return rows


def preconditioning(seeds: int) -> Table:
    """Largest relative error of a standard deviation of a normal with condition number 1000."""
    density = ill_conditioned(10)
    target, measure = target_of(density), whitened_error(density)
    capped_mover = nvgd.movers.Reborn(nvgd.movers.Capped(1.0))
    capped_label = "error with Reborn(Capped(1.0))"
    heading = ("error, SVGD, best ε of five", "ε", capped_label, "gradients per step")
    rows: Table = [("coordinates", *heading)]
    for name, coordinates in (
        ("Identity", nvgd.coordinates.Identity()),
        ("Diagonal", nvgd.coordinates.Diagonal()),
        ("Preconditioned (true covariance)", nvgd.coordinates.Preconditioned(density.covariance)),
        ("Whitened (particles' covariance)", nvgd.coordinates.Whitened()),
        ("Curved (from scores)", nvgd.coordinates.Curved()),
        ("Curved (Hessian)", nvgd.coordinates.Curved(nvgd.coordinates.hessian_information(target))),
    ):

        def errors(mover: AbstractMover, coordinates=coordinates) -> list[float]:
            method = flow(nvgd.directions.Kernel(), mover, coordinates)
            return over_seeds(target, method, seeds, measure, num_particles=200, num_steps=300)

        # A run that stopped early keeps its last particles, which have a large error.
        of_sizes = {size: errors(nvgd.movers.Euler(size)) for size in (1e-3, 1e-2, 0.1, 0.5, 2.0)}
        best = min(of_sizes, key=lambda size: float(np.mean(of_sizes[size])))
        capped = cell(errors(capped_mover), 2)
        gradients = 200 + coordinates.extra_gradients(200, 10)
        rows.append((name, cell(of_sizes[best], 2), str(best), capped, str(gradients)))
    return rows


def regularisers(seeds: int) -> Table:
    """Energy distance after 500 steps with the regulariser |f|ᵖ/p."""
    density = Funnel(2)
    rows: Table = [("p", "energy distance, funnel, d = 2")]
    for name, direction in (
        ("1.5", network(regulariser=nvgd.stein.PowerNorm(1.5))),
        ("2 (paper)", network()),
        ("3", network(regulariser=nvgd.stein.PowerNorm(3.0))),
    ):
        energies = over_seeds(
            target_of(density),
            flow(direction, nvgd.movers.Euler(0.02)),
            seeds,
            energy_to(density),
            num_particles=200,
            num_steps=500,
        )
        rows.append((name, cell(energies)))
    rows.append(("exact draws", cell(exact_energy(density, 200, seeds))))
    return rows


def quadratic_forms(seeds: int) -> Table:
    """A quadratic form as preconditioner: errors on a normal with variances .01 to 1."""
    density = nvgd.densities.Gaussian.ill_conditioned(5, smallest=1e-2)
    target, measure = target_of(density), whitened_error(density)
    precision = 1 / np.diagonal(density.covariance)
    rows: Table = [("regulariser", "ε", "largest error of a standard deviation")]
    for name, regulariser, size in (
        ("½|f|² (paper)", nvgd.stein.PowerNorm(2.0), 0.005),
        ("½fᵀQf, Q = Σ⁻¹", nvgd.stein.QuadraticForm(precision), 0.05),
    ):
        method = flow(network(regulariser=regulariser), nvgd.movers.Euler(size))
        errors = over_seeds(target, method, seeds, measure, num_particles=200, num_steps=300)
        rows.append((name, str(size), cell(errors, 2)))
    return rows


def memory(seeds: int) -> Table:
    """Energy distance of one Langevin chain's states, every 20th of 6000, by its repulsion."""
    rows: Table = [("target", "plain (α = 0)", "α = 2", "α = 10", "exact draws")]
    for name, density, bandwidth in (
        ("correlated normal", nvgd.densities.Gaussian([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]]), 1.0),
        ("banana", Banana(), 1.5),
    ):
        cells = []
        for strength in (0.0, 2.0, 10.0):
            direction = nvgd.directions.SelfRepulsive(
                nvgd.directions.Langevin(), strength, memory=20, kernel=nvgd.stein.RBF(bandwidth)
            )
            cells.append(
                cell(
                    over_seeds(
                        target_of(density),
                        flow(direction, nvgd.movers.Euler(0.02)),
                        seeds + 5,
                        energy_to(density),
                        initial=jnp.zeros((1, 2)),
                        num_steps=6000,
                        thin=20,
                    )
                )
            )
        rows.append((name, *cells, cell(exact_energy(density, 300, seeds + 5))))
    return rows


def momentum(seeds: int) -> Table:
    """Largest error of a standard deviation on a normal with condition number 1000."""
    density, size = ill_conditioned(10), 2e-4
    target, measure = target_of(density), whitened_error(density)
    cells = [
        cell(
            over_seeds(
                target,
                flow(nvgd.directions.Langevin(), mover),
                seeds,
                measure,
                initial=2.0 * jax.random.normal(jax.random.key(0), (200, 10)),
                num_steps=500,
            ),
            2,
        )
        for mover in (nvgd.movers.Euler(size), nvgd.movers.Momentum(size))
    ]
    return [("direction", "plain steps", "Momentum"), ("Langevin, ε = .0002", *cells)]


def projection(seeds: int) -> Table:
    """Five informative directions of a thousand, 200 particles, 200 steps."""
    dim, rank, noise = 1000, 5, 0.5
    basis = jnp.linalg.qr(jax.random.normal(jax.random.key(0), (dim, rank)))[0]
    data = jnp.array([2.0, -2.0, 1.0, -1.0, 0.5])
    scales = jnp.geomspace(0.5, 2.0, dim)

    def log_density(x: jax.Array) -> jax.Array:
        prior = -0.5 * jnp.sum((x / scales) ** 2)
        return prior - 0.5 * jnp.sum((basis.T @ x - data) ** 2) / noise**2

    covariance = np.linalg.inv(np.diag(1 / scales**2) + (basis @ basis.T) / noise**2)
    mean = covariance @ np.asarray(basis @ data) / noise**2
    inside_mean = np.asarray(basis).T @ mean
    inside_sd = np.sqrt(np.diag(np.asarray(basis).T @ covariance @ np.asarray(basis)))
    rows: Table = [
        ("direction", "mean, error in sd", "sd ratio, 5 directions", "sd ratio, all coordinates")
    ]
    target = nvgd.Target(log_density, dim=dim)
    start = jax.random.normal(jax.random.key(1), (200, dim))
    for name, direction, size in (
        ("SVGD", nvgd.directions.Kernel(), 1.0),
        ("NVGD", network(), 0.1),
        ("SVGD, projected", nvgd.directions.Projected(nvgd.directions.Kernel(), rank), 0.4),
        ("NVGD, projected", nvgd.directions.Projected(network(), rank), 0.1),
    ):
        method = flow(direction, nvgd.movers.Euler(size), nvgd.coordinates.Diagonal())
        results = []
        for seed in range(seeds):
            end = nvgd.sample(
                target, method, initial=start, num_steps=200, seed=seed, progress=False
            )
            seen = np.asarray(end.particles @ basis, np.float64)
            ratios = np.asarray(end.particles).std(axis=0) / np.sqrt(np.diag(covariance))
            results.append(
                (
                    np.max(np.abs(seen.mean(axis=0) - inside_mean) / inside_sd),
                    np.mean(seen.std(axis=0) / inside_sd),
                    np.mean(ratios),
                )
            )
        rows.append((name, *(cell(column, 2) for column in zip(*results, strict=True))))
    return rows
