"""A witness that sees standardised positions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from nvgd.stein.divergences import values_and_tangents
from nvgd.stein.witnesses import AbstractBatchedWitness, Witness

# Added to the particles' standard deviation before division by it.
SMALLEST_SPREAD = 1e-5


class StandardisedWitness(AbstractBatchedWitness):
    """f(x) = g((x − m)/s): a network that sees standardised positions; its output stays in x units.

    Arguments:
        network: g.
        centre, spread: m and s, of the particles that the network is trained on.
    """

    network: Witness
    centre: Float[Array, " d"]
    spread: Float[Array, " d"]

    def at(self, particles: Float[Array, "n d"]) -> "StandardisedWitness":
        """The same network, with mean and standard deviation of these particles."""
        centre, spread = jnp.mean(particles, axis=0), jnp.std(particles, axis=0)
        return StandardisedWitness(self.network, centre, spread + SMALLEST_SPREAD)

    def __call__(self, x):
        """The field at one position."""
        return self.network((x - self.centre) / self.spread)

    def values_and_tangents(self, positions, directions):
        """The network's, by the chain rule."""
        return values_and_tangents(
            self.network, (positions - self.centre) / self.spread, directions / self.spread
        )


def split_trained(arrays: PyTree) -> tuple[PyTree, PyTree]:
    """Of the arrays of a witness, those that training changes, and the others."""
    is_trained = jax.tree.map(eqx.is_inexact_array, arrays)
    if isinstance(arrays, StandardisedWitness):
        is_trained = eqx.tree_at(lambda w: (w.centre, w.spread), is_trained, (False, False))
    return eqx.partition(arrays, is_trained)
