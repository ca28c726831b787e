"""Priors of network parameters, scaled by the fan-in of each layer."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd._support.errors import InputError, check_choice, check_kind, check_positive, plain

# Standard deviation of the logarithm of a layer's scale, a priori.
LOG_SCALE_SPREAD = 0.5


class ArrayPrior(eqx.Module):
    """Centre and standard deviation of the entries of one parameter array."""

    centre: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    scale: Float[Array, ""] = eqx.field(converter=jnp.asarray)


class AbstractPrior(eqx.Module):
    """Independent parameters, with one scale per array.

    The standard deviation of a weight is `scale`·√(2/fan-in), so that the size of the activations
    does not depend on the width of the layers (He et al., 2015); that of a bias is `scale`.
    Vectors of ones, such as the gains of a layer norm, have mean 1 instead of 0.
    """

    scale: float = eqx.field(default=1.0, converter=plain)

    def __check_init__(self):
        check_positive("scale", self.scale)

    @abstractmethod
    def log_density(self, standardised: Float[Array, "..."]) -> Float[Array, "..."]:
        """Log density of entries with mean 0 and standard deviation 1, up to a constant."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Entries with mean 0 and standard deviation 1."""

    @property
    def has_free_scales(self) -> bool:
        """Whether each array's scale is a parameter of its own."""
        return False


class AbstractNormal(AbstractPrior):
    """Normal entries."""

    def log_density(self, standardised):
        """−z²/2."""
        return -0.5 * standardised**2

    def draw(self, key, shape):
        """Normal draws."""
        return jax.random.normal(key, shape)


class Normal(AbstractNormal):
    """N(0, σ²) on every parameter, with σ from the fan-in of its layer.

    Arguments:
        scale: factor on all standard deviations.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = X[:, 0] ** 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     prior=nvgd.networks.Normal(scale=0.5),
        ... )
        >>> target.dim
        2
    """


class Laplace(AbstractPrior):
    """A Laplace distribution with the standard deviations of `Normal`; it favours sparse weights.

    Arguments:
        scale: factor on all standard deviations.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = X[:, 0] ** 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     prior=nvgd.networks.Laplace(scale=0.5),
        ... )
        >>> target.dim
        2
    """

    def log_density(self, standardised):
        """−√2|z|."""
        return -math.sqrt(2.0) * jnp.abs(standardised)

    def draw(self, key, shape):
        """Laplace draws with unit variance."""
        return jax.random.laplace(key, shape) / math.sqrt(2.0)


class Hierarchical(AbstractNormal):
    """`Normal`, with a scale per parameter array that is learned from the data.

    The logarithm of the factor on an array's standard deviation is N(0, ½²).

    Arguments:
        scale: factor on all standard deviations.

    Examples:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> y = X[:, 0] ** 2
        >>> target = nvgd.from_network(
        ...     lambda weights, row: row @ weights,
        ...     data=(X, y),
        ...     parameters=jnp.zeros((1, 1)),
        ...     prior=nvgd.networks.Hierarchical(scale=0.5),
        ... )
        >>> target.dim
        3
    """

    @property
    def has_free_scales(self):
        """Yes."""
        return True


PRIORS: dict[str, type[AbstractPrior]] = {
    "normal": Normal,
    "laplace": Laplace,
    "hierarchical": Hierarchical,
}


def as_prior(prior: AbstractPrior | str) -> AbstractPrior:
    """A prior of this name with its defaults, or the given one."""
    if isinstance(prior, str):
        check_choice("prior", prior, PRIORS)
        return PRIORS[prior]()
    check_kind("prior", prior, AbstractPrior, "networks.Normal(1.0)")
    return prior


class ParameterPrior(eqx.Module):
    """The prior of all parameters of one network.

    A position is `{"network": parameters}`, with `"log_scales"`, one number per array, if the
    scales are free.

    Arguments:
        prior: the distribution of standardised entries.
        arrays: an `ArrayPrior` per parameter array, in the order of `jax.tree.leaves`.
        form: the structure of the parameters.
        shapes: shapes of the parameter arrays.
    """

    prior: AbstractPrior
    arrays: list[ArrayPrior]
    form: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, prior: AbstractPrior, parameters: PyTree, output_axis: int) -> "ParameterPrior":
        """The prior for these parameters.

        Arguments:
            parameters: initial parameters, of which shapes and vectors of ones are used.
            output_axis: which axis of a weight counts its outputs: 0 or −1.
        """
        leaves, form = jax.tree.flatten(parameters)
        if not leaves:
            raise InputError(
                "network has no floating-point parameters to sample: pass an Equinox module with "
                "layers, or a function together with parameters=."
            )
        arrays = [_array_prior(leaf, prior.scale, output_axis) for leaf in leaves]
        return cls(prior, arrays, form, tuple(leaf.shape for leaf in leaves))

    def __call__(self, position: dict[str, PyTree]) -> Float[Array, ""]:
        """Log density of a position, up to a constant."""
        leaves = jax.tree.leaves(position["network"])
        total = jnp.zeros(())
        log_scales = position.get("log_scales")
        if log_scales is not None:
            total += -0.5 * jnp.sum((log_scales / LOG_SCALE_SPREAD) ** 2)
        for i, (leaf, own) in enumerate(zip(leaves, self.arrays, strict=True)):
            factor = 1.0 if log_scales is None else jnp.exp(log_scales[i])
            total += jnp.sum(self.prior.log_density((leaf - own.centre) / (own.scale * factor)))
            if log_scales is not None:
                total += -leaf.size * log_scales[i]
        return total

    def draw(self, key: PRNGKeyArray, num: int) -> dict[str, PyTree]:
        """Draws of positions, with a leading axis."""
        keys = jax.random.split(key, len(self.shapes) + 1)
        factors = jnp.ones((num, len(self.shapes)))
        drawn: dict[str, PyTree] = {}
        if self.prior.has_free_scales:
            log_scales = LOG_SCALE_SPREAD * jax.random.normal(keys[-1], factors.shape)
            drawn["log_scales"], factors = log_scales, jnp.exp(log_scales)
        leaves = [
            own.centre
            + own.scale
            * factors[:, i].reshape(-1, *(1 for _ in shape))
            * self.prior.draw(keys[i], (num, *shape))
            for i, (shape, own) in enumerate(zip(self.shapes, self.arrays, strict=True))
        ]
        return {"network": jax.tree.unflatten(self.form, leaves), **drawn}


def _array_prior(leaf: Array, scale: float, output_axis: int) -> ArrayPrior:
    outputs = leaf.shape[output_axis] if leaf.ndim else 1
    fan_in = 1 if leaf.ndim <= 1 else leaf.size // max(outputs, 1)
    is_gain = leaf.ndim == 1 and bool(jnp.all(leaf == 1.0))
    spread = scale * math.sqrt(2.0 / fan_in) if fan_in > 1 else scale
    return ArrayPrior(float(is_gain), spread)
