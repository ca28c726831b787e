"""Ways to draw starting particles."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_positive, plain
from nvgd.targets.positions import Position
from nvgd.targets.target import Target


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
        return target.flatten(positions, "what the model starts from")


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
        return target.flatten(positions, "what prior returns")


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
        centre = target.flatten(one, "the position to jitter, repeated for every particle,")
        return centre + self.scale * jax.random.normal(key, (num, target.dim), centre.dtype)
