"""Rivals with the networks and the number of gradients of the particles.

Each is a function of target, rate, number of steps, seed and number of networks, and returns
positions of networks with a leading axis. Rates are chosen per split (`tuning`).
"""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

import nvgd
from benchmarks.networks.deep_ensemble import annealed_adam, deep_ensemble
from nvgd._support.compilation import Form
from nvgd._support.errors import RunStoppedWarning
from nvgd.experiments.mnist import adam
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.targets.target import Target

NUM_NETWORKS = 100
# Networks with which rates are chosen.
NUM_TUNED = 20
# Probability that MC dropout drops a hidden unit.
DROPOUT = 0.05


def ensemble(
    target: Target, rate: float, num_steps: int, seed: int, num: int = NUM_NETWORKS
) -> Any:
    """A deep ensemble."""
    return deep_ensemble(target, num_members=num, num_steps=num_steps, rate=rate, seed=seed)


def sgld(target: Target, rate: float, num_steps: int, seed: int, num: int = NUM_NETWORKS) -> Any:
    """Stochastic gradient Langevin dynamics: the last states of as many chains.

    The rate is in units of 1/N, N the number of rows.
    """
    return _sampled(target, nvgd.SGLD(jnp.asarray(rate / target.num_rows)), num_steps, seed, num)


def svgd(target: Target, rate: float, num_steps: int, seed: int, num: int = NUM_NETWORKS) -> Any:
    """Stein variational gradient descent, moved by Adam."""
    return _sampled(target, nvgd.SVGD(optimizer=adam(rate)), num_steps, seed, num)


def _sampled(target: Target, flow: ParticleFlow, num_steps: int, seed: int, num: int) -> Any:
    with warnings.catch_warnings():
        # A rate that is too large ends a run; its particles are judged like others.
        warnings.simplefilter("ignore", RunStoppedWarning)
        posterior = nvgd.sample(
            target,
            flow,
            num_particles=num,
            num_steps=num_steps,
            seed=seed,
            progress=False,
        )
    return jax.vmap(target.structure)(posterior.particles)


def mc_dropout(
    target: Target, rate: float, num_steps: int, seed: int, num: int = NUM_NETWORKS
) -> Any:
    """One network, trained with dropout for as many gradients as `num` networks, and 100 masks.

    The penalty is the log prior (Gal and Ghahramani, 2016).
    """
    start_key, train_key, mask_key = jax.random.split(jax.random.key(seed), 3)
    start = target.flatten(target.model.draw_start(start_key, 1))[0]
    num_steps = num_steps * num
    trained = _train(*Form.of(target), start, num_steps, jnp.asarray(rate), train_key)
    keys = jax.random.split(mask_key, NUM_NETWORKS)
    return jax.vmap(lambda key: _with_mask(target.structure(trained), key))(keys)


def _with_mask(position: dict[str, Any], key: Array) -> dict[str, Any]:
    """The network without some of its hidden units."""
    leaves, form = jax.tree.flatten(position["network"])
    # The weights of the output layer, (outputs, units), are the only leaf with one row.
    index = next(i for i, leaf in enumerate(leaves) if leaf.ndim == 2 and leaf.shape[0] == 1)
    kept = jax.random.bernoulli(key, 1 - DROPOUT, leaves[index].shape)
    leaves[index] = leaves[index] * kept / (1 - DROPOUT)
    return {**position, "network": jax.tree.unflatten(form, leaves)}


@functools.partial(jax.jit, static_argnums=(0, 3))
def _train(
    static: Any, arrays: Any, start: Array, num_steps: int, rate: Array, key: Array
) -> Array:
    target: Target = static.tree(arrays)
    likelihood: Any = target.log_likelihood
    optimizer = annealed_adam(rate, num_steps)

    def loss(flat: Array, batch: Any, keys: Array) -> Array:
        position: Any = target.structure(flat)
        terms = jax.vmap(lambda row, key: likelihood(_with_mask(position, key), row))(batch, keys)
        prior: Any = target.log_prior(position)
        return -jnp.mean(terms) - prior / target.num_rows

    def step(carry: tuple[Array, Any], number: Array) -> tuple[tuple[Array, Any], None]:
        flat, state = carry
        row_key, mask_key = jax.random.split(jax.random.fold_in(key, number))
        size = target.batch_size or target.num_rows
        batch = target.batch(jax.random.randint(row_key, (size,), 0, target.num_rows))
        gradient = jax.grad(loss)(flat, batch, jax.random.split(mask_key, size))
        updates, state = optimizer.update(gradient, state)
        return (flat + jnp.asarray(updates), state), None

    numbers = jnp.arange(num_steps)
    (flat, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), numbers)
    return flat


ADAM_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
RIVALS = {
    "deep ensemble": (ensemble, ADAM_RATES[1:]),
    "SGLD": (sgld, (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    "SVGD": (svgd, ADAM_RATES),
    "MC dropout": (mc_dropout, (3e-4, 1e-3, 3e-3, 1e-2)),
}
