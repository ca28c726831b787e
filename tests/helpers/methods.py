"""Every method that the conformance suite drives: a new one is a line here."""

import optax

import nvgd
from nvgd import coordinates, directions, movers, stein

NETWORK = directions.Neural(learning_rate=1e-2, max_inner_steps=5)


def flow(direction, mover, frames=None):
    """A flow of parts, in the coordinates x if no others are given."""
    return nvgd.ParticleFlow(frames or coordinates.Identity(), direction, mover)


METHODS: dict[str, nvgd.ParticleFlow] = {
    "nvgd": nvgd.NVGD(),
    "nvgd-paper": nvgd.NVGD.paper(0.1, learning_rate=1e-2, max_inner_steps=10),
    "nvgd-paper-variants": nvgd.NVGD.paper(
        optimizer=optax.adam(2e-2),
        learning_rate=1e-2,
        divergence=stein.HutchinsonDivergence("gaussian", num_probes=2),
        restore_best=False,
    ),
    "nvgd-regularised": nvgd.NVGD.paper(
        0.1, learning_rate=1e-2, max_inner_steps=10, regulariser=stein.PowerNorm(3.0)
    ),
    "svgd": nvgd.SVGD(0.3),
    "svgd-imq": nvgd.SVGD(0.3, kernel=stein.IMQ()),
    "svgd-rescaled": nvgd.SVGD(0.05, rescale=True),
    "svgd-rmsprop": nvgd.SVGD(optimizer=optax.rmsprop(2e-2)),
    "svgd-diagonal": nvgd.SVGD(0.3, coordinates=coordinates.Diagonal()),
    "svgd-whitened": nvgd.SVGD(0.3, coordinates=coordinates.Whitened()),
    "svgd-curved": nvgd.SVGD(0.3, coordinates=coordinates.Curved()),
    "ula": nvgd.ULA(0.05),
    "sgld": nvgd.SGLD(movers.polynomial_decay(0.1, offset=10.0, power=0.5)),
    "fraction": flow(directions.LangevinFraction(directions.Kernel(), 0.3), movers.Euler(0.1)),
    "annealed": flow(
        directions.Annealed(directions.LangevinFraction(directions.Kernel(), 0.5), num_steps=40),
        movers.Resampled(movers.Euler(0.1), directions.Cycles(), num_steps=40),
    ),
    "projected": flow(directions.Projected(NETWORK, 1), movers.Euler(0.1), coordinates.Diagonal()),
    "self-repulsive": flow(
        directions.SelfRepulsive(directions.Langevin(), memory=3, every=2), movers.Euler(0.05)
    ),
    "momentum": flow(
        directions.Langevin(), movers.Momentum(0.02), coordinates.Preconditioned([1.0, 2.0])
    ),
}

# They accept or reject, and so evaluate proposals too, on all data alone.
EXACT_METHODS: dict[str, nvgd.ParticleFlow] = {
    "mala": nvgd.MALA(0.3),
    "nvgd-metropolis": nvgd.NVGD.metropolis(0.3, max_inner_steps=3),
}

# They look into batches.
MINIBATCH_METHODS: dict[str, nvgd.ParticleFlow] = {
    "stochastic": flow(directions.Stochastic(NETWORK, num_batches=2), movers.Euler(0.05)),
    "noise-aware": flow(directions.Langevin(), movers.NoiseAware(movers.Euler(0.01), num_parts=2)),
}
