"""Distributions of starting particles."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nvgd._support.errors import InputError, check_positive, plain
from nvgd._support.random_bits import random_normals
from nvgd.targets.positions import Position
from nvgd.targets.target import Target


class AbstractStart(eqx.Module):
    """A way to draw starting particles; draws are repeated where the log density is not finite."""

    def prepared(self, target: Target, key: PRNGKeyArray) -> "AbstractStart":
        """The start to draw from; a start that must be fitted first returns the fitted one."""
        del target, key
        return self

    @abstractmethod
    def draw(self, target: Target, num: int, key: PRNGKeyArray) -> Float[Array, "n d"]:
        """`num` flat positions."""


class OwnStart(AbstractStart):
    """Draws as in the model's own package, or from N(0, I) if there is none."""

    def draw(self, target, num, key):
        """Draws from the model's start, or standard normal draws."""
        positions = target.model.draw_start(key, num)
        if positions is None:
            return random_normals(key, (num, target.dim), jnp.result_type(float))
        return target.flatten(positions, "the starting positions of the model")


class PriorStart(AbstractStart):
    """Draws from the prior of the target's model."""

    def draw(self, target, num, key):
        """Draws from the model's prior."""
        positions = target.model.draw_prior(key, num)
        if positions is None:
            raise InputError(
                'initial="prior" needs a target that can draw from its prior: pass '
                "Target(..., model=nvgd.Model(prior=lambda key, n: ...))."
            )
        return target.flatten(positions, "the output of prior")


class Jittered(AbstractStart):
    """Normal draws around a position: a guess, an optimum, or the mean of an earlier run.

    Arguments:
        position: the centre, in unconstrained space and in the form that the log density takes.
        scale: standard deviation of each coordinate.

    Examples:
        >>> start = nvgd.Jittered(jnp.array([5.0, 5.0]), scale=0.5)
        >>> far = lambda x: -0.5 * jnp.sum((x - 5.0) ** 2)
        >>> posterior = nvgd.sample(far, nvgd.ULA(0.1), dim=2, initial=start, num_steps=50)
        >>> round(float(posterior.particles.mean()))
        5
    """

    position: Position
    scale: float = eqx.field(default=0.1, converter=plain)

    def __check_init__(self):
        check_positive("scale", self.scale)

    def draw(self, target, num, key):
        """The position plus normal noise."""
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], self.position)
        centre = target.flatten(one, "the position of Jittered, repeated for every particle,")
        return centre + self.scale * random_normals(key, (num, target.dim), centre.dtype)
