"""PyMC models as targets.

PyMC computes transforms and Jacobians and translates its graphs to JAX.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from nvgd._support.errors import InputError, first_line, optional_import
from nvgd.frontends.opaque import Opaque
from nvgd.frontends.pymc_minibatches import minibatch_graph, uses_minibatch
from nvgd.frontends.pymc_process import (
    pymc_for_jax,
    quiet_log,
    without_compiler,
    without_dtype_warnings,
)
from nvgd.targets.models import AbstractModel, Labels
from nvgd.targets.target import Target


def from_pymc(model: Any) -> Target:
    """A PyMC model as a `Target`.

        with pm.Model() as model:
            ...
        posterior = nvgd.sample(nvgd.from_pymc(model))

    The output has the names, shapes, dims and coords of the model's free and deterministic
    variables; `predict` is `pymc.sample_posterior_predictive`. The log density has JAX's precision,
    32 bits by default; PyMC's own samplers for JAX would switch the process to 64 bits.

    `pymc.Minibatch` with `total_size` gives minibatches of its batch size; deterministic variables
    of a batch are left out.

    Arguments:
        model: a `pymc.Model` with continuous free variables.

    Examples:
        >>> import pymc as pm
        >>> with pm.Model() as model:
        ...     scale = pm.HalfNormal("scale", 1.0)
        ...     value = pm.Normal("value", 0.0, scale, observed=[0.3, -1.2, 0.8])
        >>> target = nvgd.from_pymc(model)
        >>> target.dim
        1
    """
    pymc = optional_import("pymc", "pymc", "from_pymc")
    if not isinstance(model, pymc.Model):
        raise InputError(f"model must be a pymc.Model, got {model!r}.")
    _check_model(model)
    graph = minibatch_graph(model)
    value_names = [variable.name for variable in model.value_vars]
    observed_names = [variable.name for variable in model.observed_RVs]
    outputs = [v for v in (*model.free_RVs, *model.deterministics) if not uses_minibatch(v)]
    output_names = [variable.name for variable in outputs]
    values = {variable.name: variable for variable in model.unobserved_value_vars}
    with pymc_for_jax() as pymc_jax, without_dtype_warnings():
        jaxify = pymc_jax.get_jaxified_graph
        try:
            terms = model.logp(vars=model.observed_RVs, sum=False, jacobian=False)
            exact, inputs = model.logp, []
            if graph is not None:
                terms, inputs = graph.on_rows(terms), [graph.rows]
                sampled = set(graph.observed)
                exact = functools.partial(
                    model.logp, vars=[v for v in _terms(model) if v not in sampled]
                )
            functions = [
                jaxify(inputs=[*model.value_vars, *more], outputs=outputs)
                for outputs, more in (
                    ([exact()], []),
                    ([values[name] for name in output_names], []),
                    (terms, inputs),
                )
            ]
        except Exception as error:
            raise InputError(
                "the PyMC model cannot be translated to JAX; do its data have the length that it "
                f"says they have? {first_line(error)}"
            ) from error
    log_density, constrain, log_likelihoods = (
        _of_position(function, value_names) for function in functions
    )

    def show(position: PyTree) -> dict[str, Array]:
        return dict(zip(output_names, constrain(position), strict=True))

    def log_likelihood(position: PyTree, *rows: Array) -> dict[str, Array]:
        return dict(zip(observed_names, log_likelihoods(position, *rows), strict=True))

    def log_likelihood_of_rows(position: PyTree, rows: Array) -> Array:
        assert graph is not None
        return graph.in_batches(functools.partial(log_likelihood, position), rows)

    def log_likelihood_of_all(position: PyTree) -> dict[str, Array]:
        if graph is None:
            return log_likelihood(position)
        name = graph.observed[0].name
        return {name: log_likelihood_of_rows(position, jnp.arange(graph.num_rows))}

    minibatches = (
        {}
        if graph is None
        else {
            "log_likelihood": log_likelihood_of_rows,
            "data": jnp.arange(graph.num_rows),
            "batch_size": graph.batch_size,
            "vectorised": True,
        }
    )
    return Target(
        lambda position: log_density(position)[0],
        example={
            name: jnp.asarray(value, jnp.result_type(float))
            for name, value in _start(model).items()
        },
        constrain=show,
        model=PyMCModel(
            Opaque(model),
            show,
            log_likelihood_of_all,
            Opaque(_observed(model)),
            Opaque(_labels(model)),
        ),
        **minibatches,
    )


class PyMCModel(AbstractModel):
    """The parts of a PyMC model besides its log density."""

    pymc_model: Opaque
    show: Callable[[PyTree], dict[str, Array]]
    log_likelihood: Callable[[PyTree], dict[str, Array]]
    # As in the log density, the data at the time of `from_pymc`, even after `pymc.set_data`.
    data: Opaque
    own_labels: Opaque

    def draw_prior(self, key, num):
        """Draws by PyMC, in unconstrained space."""
        from pymc.initial_point import make_initial_point_fn

        model = self.pymc_model.value
        flat = [v.name for v in model.free_RVs if v.owner.op.name in ("flat", "half_flat")]
        if flat:
            raise InputError(
                f"PyMC cannot draw {', '.join(flat)} from the prior, which is flat: leave "
                'initial="prior" out, or use a proper distribution.'
            )
        with without_compiler():
            draw = make_initial_point_fn(
                model=model, default_strategy="prior", return_transformed=True
            )
            seeds = np.asarray(jax.random.randint(key, (num,), 0, 2**31 - 1))
            points = [draw(int(seed)) for seed in seeds]
        return {name: jnp.asarray(np.stack([p[name] for p in points])) for name in points[0]}

    def draw_start(self, key, num):
        """PyMC's initial point, jittered as PyMC does: uniform on (−1, 1), unconstrained."""
        point = {name: jnp.asarray(v) for name, v in _start(self.pymc_model.value).items()}
        keys = jax.random.split(key, len(point))
        return {
            name: value + jax.random.uniform(its_key, (num, *value.shape), minval=-1.0)
            for its_key, (name, value) in zip(keys, point.items(), strict=True)
        }

    def predict(self, key, positions, *args, **kwargs):
        """Draws by `pymc.sample_posterior_predictive`, with the data that the model has now."""
        import pymc
        import xarray

        if args:
            raise InputError(
                "a PyMC model takes no arguments to predict: change its data by pymc.set_data, and "
                "pass keywords of pymc.sample_posterior_predictive only."
            )
        model = self.pymc_model.value
        draws = jax.lax.map(self.show, positions)
        dims, coords = _labels(model)
        shown: dict[str, Any] = {}
        for variable in model.free_RVs:
            name, value = variable.name, np.asarray(draws[variable.name], np.float64)[None]
            axes = dims.get(name, [f"{name}_dim_{i}" for i in range(value.ndim - 2)])
            shown[name] = (("chain", "draw", *axes), value)
        # PyMC redraws variables from the prior if their coordinates differ from the model's.
        used = {axis for axes, _ in shown.values() for axis in axes}
        known = {name: list(values) for name, values in coords.items() if name in used}
        dataset = xarray.Dataset(shown, known)
        options = {"random_seed": int(jax.random.randint(key, (), 0, 2**31 - 1)), **kwargs}
        with without_compiler(), quiet_log("pymc"), model:
            drawn = pymc.sample_posterior_predictive(
                dataset, return_inferencedata=False, progressbar=False, **options
            )
        return {name: jnp.asarray(value[0]) for name, value in drawn.items()}

    def log_likelihoods(self, positions):
        """Log likelihood of every observed value."""
        return jax.lax.map(self.log_likelihood, positions)

    def observed(self):
        """The observed values."""
        return self.data.value

    def labels(self):
        """Dims and coords of the model."""
        return self.own_labels.value

    def deterministics(self):
        """Deterministic variables."""
        return tuple(variable.name for variable in self.pymc_model.value.deterministics)


def _check_model(model: Any) -> None:
    if not model.free_RVs:
        raise InputError(
            "the PyMC model has no latent variable to sample: every variable in it is observed."
        )
    if model.discrete_value_vars:
        names = ", ".join(variable.name for variable in model.discrete_value_vars)
        raise InputError(
            f"discrete latent variables cannot follow a gradient, and {names} is discrete: sum it "
            "out, for instance with pymc.Mixture."
        )


def _terms(model: Any) -> list[Any]:
    """All variables and potentials of which the log density is a sum."""
    return [*model.free_RVs, *model.observed_RVs, *model.potentials]


def _observed(model: Any) -> dict[str, np.ndarray]:
    """The observed values, except those that PyMC cannot extract from an expression."""
    from pymc.pytensorf import extract_obs_data

    found = {}
    with without_compiler():
        for variable in model.observed_RVs:
            with suppress(TypeError):
                value = extract_obs_data(model.rvs_to_values[variable])
                found[variable.name] = np.asarray(value)
    return found


def _labels(model: Any) -> Labels:
    dims = {
        name: tuple(axes)
        for name, axes in model.named_vars_to_dims.items()
        if all(axis is not None for axis in axes)
    }
    coords = {name: values for name, values in model.coords.items() if values is not None}
    return Labels(dims, coords)


def _start(model: Any) -> dict[str, np.ndarray]:
    with without_compiler():
        return model.initial_point()


def _of_position(function: Callable, names: list[str]) -> Callable[..., Any]:
    """A function of values in the order of `names`, as a function of a dictionary."""

    def evaluate(position: PyTree, *rows: Array) -> Any:
        with without_dtype_warnings():
            return function(*(position[name] for name in names), *rows)

    return evaluate
