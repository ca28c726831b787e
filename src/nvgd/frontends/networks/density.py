"""Prior and likelihood of a network."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from nvgd.frontends.networks.likelihood import AbstractLikelihood
from nvgd.frontends.networks.modules import Apply
from nvgd.frontends.networks.numeric_likelihoods import LOG_NOISE_CENTRE, LOG_NOISE_SPREAD
from nvgd.frontends.networks.priors import ParameterPrior
from nvgd.frontends.networks.scaling import Scaling


class BayesianNetwork(eqx.Module):
    """Prior and likelihood of a network, as functions of a position.

    A position is a dictionary: the parameters, `network`; the logarithm of a learned noise sd,
    `log_noise`; and logarithms of learned prior scales, `log_scales`.

    Arguments:
        apply: the network, a function of parameters and one row.
        likelihood: distribution of targets, in standardised units.
        prior: prior of the parameters.
        targets: how targets were standardised.
        noise_shape: shape of the likelihood's own parameter, None if it has none.
    """

    apply: Apply
    likelihood: AbstractLikelihood
    prior: ParameterPrior
    targets: Scaling
    noise_shape: tuple[int, ...] | None = eqx.field(static=True)

    def log_prior(self, position: dict[str, PyTree]) -> Array:
        """Log prior density of parameters and noise."""
        value = self.prior(position)
        if self.noise_shape is not None:
            away = (position["log_noise"] - LOG_NOISE_CENTRE) / LOG_NOISE_SPREAD
            value += -0.5 * jnp.sum(away**2)
        return value

    def log_likelihood(self, position: dict[str, PyTree], datum: dict[str, Array]) -> Array:
        """Log likelihood of one row."""
        output = self.apply(position["network"], datum["x"])
        return self.likelihood.log_likelihood(output, position.get("log_noise"), datum["y"])

    def constrain(self, position: dict[str, PyTree]) -> dict[str, PyTree]:
        """Noise in the units of the targets; scales instead of their logarithms."""
        shown = {"network": position["network"]}
        if "log_scales" in position:
            shown["scales"] = jnp.exp(position["log_scales"])
        if "log_noise" in position:
            shown["noise"] = jnp.exp(position["log_noise"]) * self.targets.scale
        return shown

    def draw(self, key: PRNGKeyArray, num: int) -> dict[str, PyTree]:
        """Positions from the prior, with a leading axis."""
        parameter_key, noise_key = jax.random.split(key)
        drawn = self.prior.draw(parameter_key, num)
        if self.noise_shape is not None:
            steps = jax.random.normal(noise_key, (num, *self.noise_shape))
            drawn["log_noise"] = LOG_NOISE_CENTRE + LOG_NOISE_SPREAD * steps
        return drawn
