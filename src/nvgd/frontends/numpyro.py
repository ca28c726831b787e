"""NumPyro models as targets.

NumPyro computes transforms, Jacobians and starting points. A plate with a `subsample_size` becomes
minibatches: the library chooses the rows, the sites inside the plate are the likelihood, and all
other sites are the prior.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.errors import InputError, check_callable, first_line, optional_import
from nvgd.frontends.numpyro_sites import Sites, over_rows, read_sites
from nvgd.frontends.opaque import Opaque
from nvgd.targets.models import AbstractModel, Labels
from nvgd.targets.target import Target


def from_numpyro(
    model: Callable, *args: Any, init_strategy: Callable | None = None, **kwargs: Any
) -> Target:
    """A NumPyro model, called with `args` and `kwargs`, as a `Target`.

        posterior = nvgd.sample(nvgd.from_numpyro(model, x, y=y))

    The output has the names, shapes and supports of the model's latent and deterministic sites;
    `predict` draws the observed sites. A plate of N rows with `subsample_size` B gives minibatches
    of B rows; deterministic sites inside it change with the rows and are left out of the output.

    Arguments:
        model: a function of NumPyro primitives, with continuous latent variables.
        init_strategy: a strategy of NumPyro, such as `numpyro.infer.init_to_median`, that draws
            the starting particles; `init_to_uniform` if omitted, which is uniform on (−2, 2) in
            unconstrained space. `sample(initial="prior")` draws them from the prior instead.

    Examples:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def model(values):
        ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        ...     numpyro.sample("value", dist.Normal(0.0, scale), obs=values)
        >>> target = nvgd.from_numpyro(model, jnp.array([0.3, -1.2, 0.8]))
        >>> target.dim
        1
    """
    optional_import("numpyro", "numpyro", "from_numpyro")
    check_callable("model", model)
    check_callable("init_strategy", init_strategy, optional=True)
    args, kwargs = jax.tree.map(_on_device, (args, kwargs))
    sites = read_sites(model, args, kwargs)
    # Traced data are not constants of the compiled program, which can then be used for other data
    # of the same shape. A model that reads values, as in `len(np.unique(groups))`, needs them
    # concrete.
    numpyro_model = NumPyroModel(model, (args, kwargs), sites, init_strategy)
    if not _runs(numpyro_model):
        numpyro_model = NumPyroModel(model, Opaque((args, kwargs)), sites, init_strategy)
    plain: dict[str, Any] = {
        "example": sites.zeros(),
        "constrain": numpyro_model.constrain,
        "model": numpyro_model,
    }
    if sites.subsampled is None:
        return Target(numpyro_model.log_density, **plain)
    return Target(
        numpyro_model.log_prior,
        log_likelihood=numpyro_model.log_likelihood_of_rows,
        data=jnp.arange(sites.num_rows),
        batch_size=sites.batch_size,
        vectorised=True,
        **plain,
    )


class NumPyroModel(AbstractModel):
    """A NumPyro model with its arguments."""

    function: Callable
    arguments: PyTree
    """Positional and keyword arguments; `Opaque` if the model does not run with traced arrays."""
    sites: Sites = eqx.field(static=True)
    init_strategy: Callable | None

    def _arguments(self) -> tuple[tuple, dict[str, Any]]:
        return self.arguments.value if isinstance(self.arguments, Opaque) else self.arguments

    def _over(self, rows: Array | None, *, is_masked: bool = False) -> Callable:
        """The model with its subsampled plate, if it has one, on these rows; None for all rows."""
        if self.sites.subsampled is None:
            return self.function
        return over_rows(self.function, self.sites.subsampled, rows, is_masked=is_masked)

    def log_density(self, position: PyTree) -> Array:
        """Log joint density in unconstrained space."""
        return self._log_joint(self.function, position)

    def log_prior(self, position: PyTree) -> Array:
        """Log joint density of the sites outside the subsampled plate."""
        return self._log_joint(self._over(jnp.arange(1), is_masked=True), position)

    def _log_joint(self, function: Callable, position: PyTree) -> Array:
        from numpyro.infer.util import potential_energy

        args, kwargs = self._arguments()
        return -jnp.asarray(potential_energy(function, args, kwargs, position))

    def log_likelihood_of_rows(self, position: PyTree, rows: Array) -> Array:
        """Log likelihood of each of these rows of the subsampled plate."""
        assert self.sites.subsampled is not None
        total = jnp.zeros(len(rows))
        for site in self._trace(position, rows).values():
            axes = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
            if site["type"] == "sample" and self.sites.subsampled in axes:
                terms = _log_probability(site)
                by_row = jnp.moveaxis(terms, terms.ndim + axes[self.sites.subsampled], 0)
                total = total + by_row.reshape(len(rows), -1).sum(axis=1)
        return total

    def _trace(self, position: PyTree, rows: Array | None) -> dict[str, Any]:
        """All sites, with their values in constrained space."""
        from numpyro import handlers
        from numpyro.infer.util import constrain_fn

        args, kwargs = self._arguments()
        function = self._over(rows)
        values = constrain_fn(function, args, kwargs, position)
        return handlers.trace(handlers.substitute(function, values)).get_trace(*args, **kwargs)

    def constrain(self, position: PyTree) -> dict[str, Array]:
        """Values of the latent and deterministic sites, in constrained space."""
        rows = None if self.sites.subsampled is None else jnp.arange(1)
        trace = self._trace(position, rows)
        return {name: jnp.asarray(trace[name]["value"]) for name in self.sites.output}

    def draw_prior(self, key, num):
        """Draws of all latent sites from their distributions."""
        from numpyro.infer import init_to_sample

        if self.sites.undrawable:
            names = ", ".join(repr(name) for name in self.sites.undrawable)
            raise InputError(
                f"NumPyro cannot draw {names} from the prior, which is improper or has no sample "
                'method: leave initial="prior" out, or use a distribution that can be sampled.'
            )
        return _draw(self, init_to_sample, jax.random.split(key, num))

    def draw_start(self, key, num):
        """Draws by `init_strategy`."""
        from numpyro.infer import init_to_uniform

        return _draw(self, self.init_strategy or init_to_uniform, jax.random.split(key, num))

    def predict(self, key, positions, *args, **kwargs):
        """Draws of the observed sites by NumPyro's `Predictive`.

        Without arguments the model's own are used. Given arguments must leave the sites to predict
        unobserved.
        """
        from numpyro import handlers
        from numpyro.infer import Predictive
        from numpyro.infer.util import constrain_fn

        own_args, own_kwargs = self._arguments()
        function = self._over(None)
        constrain = jax.vmap(lambda at: constrain_fn(function, own_args, own_kwargs, at))
        latents = jax.jit(constrain)(positions)
        if not (args or kwargs):
            args, kwargs = own_args, own_kwargs
            function = handlers.uncondition(function)
        try:
            drawn = Predictive(function, latents, parallel=True)(key, *args, **kwargs)
        except Exception as error:
            raise InputError(
                f"the model could not predict with these arguments: {first_line(error)}"
            ) from error
        return {name: value for name, value in drawn.items() if name not in self.sites.factors}

    def log_likelihoods(self, positions):
        """Log likelihood of every observed value."""

        def evaluate(position: PyTree) -> dict[str, Array]:
            trace = self._trace(position, None)
            return {name: _log_probability(trace[name]) for name in self.sites.observed}

        return jax.lax.map(evaluate, positions)

    def observed(self):
        """Values of the observed sites."""

        def look(position: PyTree) -> dict[str, Array]:
            trace = self._trace(position, None)
            return {name: jnp.asarray(trace[name]["value"]) for name in self.sites.observed}

        # Compiled, so that latent values, on which the data do not depend, are not computed.
        return {name: np.asarray(v) for name, v in jax.jit(look)(self.sites.zeros()).items()}

    def labels(self):
        """Plates as axes, with numbered rows."""
        return Labels(dict(self.sites.dims), {name: range(n) for name, n in self.sites.plates})

    def deterministics(self):
        """Deterministic sites."""
        latent = dict(self.sites.unconstrained)
        return tuple(name for name in self.sites.output if name not in latent)


def _log_probability(site: dict[str, Any]) -> Array:
    """Log probability of every entry of the site, times the scale that a handler may have set."""
    values = site["fn"].log_prob(site["value"])
    return values if site["scale"] is None else site["scale"] * values


@compiled
def _draw(model: NumPyroModel, strategy: Callable, keys: Key[Array, " n"]) -> PyTree:
    from numpyro import handlers
    from numpyro.distributions import biject_to

    if not isinstance(strategy, functools.partial):
        # A strategy of NumPyro that is called without a site returns a function of sites.
        strategy = strategy()
    args, kwargs = model._arguments()

    def draw_one(key: PRNGKeyArray) -> dict[str, Array]:
        function = handlers.substitute(handlers.seed(model.function, key), substitute_fn=strategy)
        trace = handlers.trace(function).get_trace(*args, **kwargs)
        return {
            name: biject_to(trace[name]["fn"].support).inv(trace[name]["value"])
            for name, _ in model.sites.unconstrained
        }

    return jax.vmap(draw_one)(keys)


def _on_device(leaf: Any) -> Any:
    is_numeric = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc"
    return jnp.asarray(leaf) if is_numeric else leaf


def _runs(model: NumPyroModel) -> bool:
    """Whether the model runs with traced arguments."""

    def run(model: NumPyroModel, position: PyTree, rows: Array) -> Any:
        return [site["value"] for site in model._trace(position, rows).values()]

    try:
        eqx.filter_eval_shape(run, model, model.sites.zeros(), jnp.arange(2))
    except Exception:  # an error with another cause is raised again with concrete arguments
        return False
    return True
