"""Ways to draw starting particles."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd.errors import InputError, check_positive, plain
from nvgd.positions import Position
from nvgd.target import Target


class AbstractStart(eqx.Module):
    """Draws particles to start from; drawn again where the log density is not finite."""

    def prepared(self, target: Target, key: PRNGKeyArray) -> "AbstractStart":
        """What to draw from; a start that has to be fitted first returns what came out."""
        del target, key
        return self

    @abstractmethod
    def draw(self, target: Target, num: int, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """`num` flat positions."""


class OwnStart(AbstractStart):
    """As the model's own package starts, where there is one; else N(0, I)."""

    def draw(self, target, num, key):
        """Draws by the model, or standard normal ones."""
        positions = target.model.draw_start(key, num)
        if positions is None:
            return jax.random.normal(key, (num, target.dim))
        return flatten(target, positions, "what the model starts from")


class PriorStart(AbstractStart):
    """Draws from the prior, which the target's model must know."""

    def draw(self, target, num, key):
        """Draws by the model."""
        positions = target.model.draw_prior(key, num)
        if positions is None:
            raise InputError(
                'initial="prior" needs a target that can draw from its prior: pass '
                "Target(..., model=nvgd.Model(prior=lambda key, n: ...))."
            )
        return flatten(target, positions, "what prior returns")


class Jittered(AbstractStart):
    """Normal draws around a point: a guess, an optimum, or the mean of an earlier run.

    Arguments:
        position: in the form that the log density takes, in unconstrained space.
        scale: standard deviation of every coordinate around it.
    """

    position: Position
    scale: float = eqx.field(default=0.1, converter=plain)

    def __check_init__(self):
        check_positive("scale", self.scale)

    def draw(self, target, num, key):
        """The point plus noise."""
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], self.position)
        centre = flatten(target, one, "the position to jitter, repeated for every particle,")
        return centre + self.scale * jax.random.normal(key, (num, target.dim), centre.dtype)


def flatten(target: Target, positions: PyTree, name: str = "initial") -> Float[Array, "n d"]:
    """Positions with a leading axis as one array, if they fit the target's."""
    flat = jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype)
    like = jax.eval_shape(target.structure, flat)
    wanted = f"an array (num_particles, {target.dim})"
    if target.unravel is not None:
        shapes = jax.tree.map(lambda leaf: ("num_particles", *leaf.shape), like)
        wanted += f" or a pytree of arrays with shapes {shapes}"
    try:
        if jax.tree.structure(like) == jax.tree.structure(0) and not isinstance(positions, dict):
            positions = np.asarray(positions)
        if target.unravel is not None and (
            jax.tree.structure(positions) == jax.tree.structure(like)
        ):
            arrays = jax.tree.map(jnp.asarray, positions)
            leaves = jax.tree.leaves(arrays)
            trailing = [leaf.shape[1:] for leaf in leaves]
            if trailing == [leaf.shape for leaf in jax.tree.leaves(like)] and all(
                leaf.ndim and len(leaf) == len(leaves[0]) for leaf in leaves
            ):
                positions = jax.vmap(lambda position: ravel_pytree(position)[0])(arrays)
        if isinstance(positions, dict):
            raise TypeError("a dictionary")
        particles = jnp.asarray(positions)
    except (TypeError, ValueError):
        found = jax.tree.map(np.shape, positions)
        raise InputError(f"{name} must be {wanted}, got shapes {found}.") from None
    if particles.ndim != 2 or particles.shape[1] != target.dim or not len(particles):
        raise InputError(f"{name} must be {wanted}, got shape {particles.shape}.")
    # Whole numbers do not move; in half precision there is no linear algebra.
    if jnp.issubdtype(particles.dtype, jnp.integer) or particles.dtype.itemsize < 4:
        particles = particles.astype(jnp.zeros(()).dtype)
    if not jnp.issubdtype(particles.dtype, jnp.floating):
        raise InputError(f"{name} must hold real numbers, got {particles.dtype}.")
    return particles
