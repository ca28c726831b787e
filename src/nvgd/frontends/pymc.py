"""PyMC models as targets: transforms and Jacobians are PyMC's own, compiled by JAX."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from nvgd.errors import InputError, first_line, optional_import
from nvgd.models import AbstractModel, Labels
from nvgd.target import Target


def from_pymc(model: Any) -> Target:
    """A PyMC model as a `Target`.

        with pm.Model() as model:
            ...
        posterior = nvgd.sample(nvgd.from_pymc(model))

    Output has the model's names, shapes, dims and coords, with its deterministics; `predict` is
    `pymc.sample_posterior_predictive`. The precision is JAX's, as it was before the call.

    Arguments:
        model: a `pymc.Model` with continuous free variables.
    """
    pymc = optional_import("pymc", "pymc", "from_pymc")
    if not isinstance(model, pymc.Model):
        raise InputError(f"model must be a pymc.Model, got {model!r}.")
    _check_model(model)
    value_names = [variable.name for variable in model.value_vars]
    observed_names = [variable.name for variable in model.observed_RVs]
    output_names = [v.name for v in (*model.free_RVs, *model.deterministics)]
    values = {variable.name: variable for variable in model.unobserved_value_vars}
    with _jax_left_as_it_was():
        jaxify = optional_import("pymc.sampling.jax", "pymc", "from_pymc").get_jaxified_graph
        try:
            terms = model.logp(vars=model.observed_RVs, sum=False, jacobian=False)
            functions = [
                jaxify(inputs=model.value_vars, outputs=outputs)
                for outputs in ([model.logp()], [values[name] for name in output_names], terms)
            ]
        except Exception as error:
            raise InputError(
                "the PyMC model cannot be compiled by JAX; do its data have the length that it "
                f"says they have? {first_line(error)}"
            ) from error
    log_density, constrain, log_likelihoods = (
        _of_position(function, value_names) for function in functions
    )

    def show(position: PyTree) -> dict[str, Array]:
        return dict(zip(output_names, constrain(position), strict=True))

    def terms_of(position: PyTree) -> dict[str, Array]:
        return dict(zip(observed_names, log_likelihoods(position), strict=True))

    return Target(
        lambda position: log_density(position)[0],
        example={
            name: jnp.asarray(value, jnp.zeros(()).dtype) for name, value in _start(model).items()
        },
        constrain=show,
        model=PyMCModel(_Held(model), show, terms_of),
    )


class _Held:
    """A PyMC model inside a pytree; compared by identity."""

    def __init__(self, value: Any):
        self.value = value


class PyMCModel(AbstractModel):
    """What a PyMC model knows beyond its log density."""

    pymc_model: _Held
    show: Callable[[PyTree], dict[str, Array]]
    log_likelihood: Callable[[PyTree], dict[str, Array]]

    def draw_prior(self, key, num):
        """Draws by PyMC, brought to unconstrained space."""
        from pymc.initial_point import make_initial_point_fn

        with _without_compiler():
            draw = make_initial_point_fn(
                model=self.pymc_model.value, default_strategy="prior", return_transformed=True
            )
            seeds = np.asarray(jax.random.randint(key, (num,), 0, 2**31 - 1))
            points = [draw(int(seed)) for seed in seeds]
        return {name: jnp.asarray(np.stack([p[name] for p in points])) for name in points[0]}

    def draw_start(self, key, num):
        """PyMC's initial point with its jitter, uniform on (−1, 1) in unconstrained space."""
        point = {name: jnp.asarray(v) for name, v in _start(self.pymc_model.value).items()}
        keys = jax.random.split(key, len(point))
        return {
            name: value + jax.random.uniform(its_key, (num, *value.shape), minval=-1.0)
            for its_key, (name, value) in zip(keys, point.items(), strict=True)
        }

    def predict(self, key, positions, *args, **kwargs):
        """Draws by `pymc.sample_posterior_predictive`; for other data, `pymc.set_data` before."""
        import pymc
        import xarray

        if args:
            raise InputError(
                "a PyMC model takes no arguments to predict: change its data by pymc.set_data, and "
                "pass keywords of pymc.sample_posterior_predictive only."
            )
        model = self.pymc_model.value
        draws = jax.lax.map(self.show, positions)
        dims, coords = self.labels()
        shown: dict[str, Any] = {}
        for variable in model.free_RVs:
            name, value = variable.name, np.asarray(draws[variable.name], np.float64)[None]
            axes = dims.get(name, [f"{name}_dim_{i}" for i in range(value.ndim - 2)])
            shown[name] = (("chain", "draw", *axes), value)
        # PyMC draws anew what depends on coordinates other than the model's.
        used = {axis for axes, _ in shown.values() for axis in axes}
        known = {name: list(values) for name, values in coords.items() if name in used}
        dataset = xarray.Dataset(shown, known)
        options = {"random_seed": int(jax.random.randint(key, (), 0, 2**31 - 1)), **kwargs}
        with _without_compiler(), _quiet_log("pymc"), model:
            drawn = pymc.sample_posterior_predictive(
                dataset, return_inferencedata=False, progressbar=False, **options
            )
        return {name: jnp.asarray(value[0]) for name, value in drawn.items()}

    def log_likelihoods(self, positions):
        """Log likelihood of every observed value."""
        return jax.lax.map(self.log_likelihood, positions)

    def observed(self):
        """The observed values."""
        model = self.pymc_model.value
        return {v.name: np.asarray(model.rvs_to_values[v].data) for v in model.observed_RVs}

    def labels(self):
        """The model's own."""
        model = self.pymc_model.value
        dims = {
            name: tuple(axes)
            for name, axes in model.named_vars_to_dims.items()
            if all(axis is not None for axis in axes)
        }
        coords = {name: values for name, values in model.coords.items() if values is not None}
        return Labels(dims, coords)


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
    minibatched = [
        variable.name
        for variable in model.observed_RVs
        if type(variable.owner.op).__name__ == "MinibatchRandomVariable"
    ]
    if minibatched:
        raise InputError(
            f"pymc.Minibatch, as {', '.join(minibatched)} uses it, draws its rows where JAX cannot "
            "see it: pass all data, or write the model for nvgd.from_numpyro or nvgd.Target."
        )


def _start(model: Any) -> dict[str, np.ndarray]:
    with _without_compiler():
        return model.initial_point()


def _of_position(function: Callable, names: list[str]) -> Callable[[PyTree], Any]:
    """PyMC's function of values in order, as one of a dictionary, in JAX's present precision."""

    def evaluate(position: PyTree) -> Any:
        with warnings.catch_warnings():
            # The graph is written for 64 bits; that JAX has 32 is the user's choice.
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            return function(*(position[name] for name in names))

    return evaluate


@contextmanager
def _jax_left_as_it_was() -> Iterator[None]:
    """Undo what importing PyMC's JAX part does to the process: 64 bits, and 100 CPU devices."""
    flags = os.environ.get("XLA_FLAGS")
    with ThreadPoolExecutor(1) as pool:
        # Another thread sees the process's setting, not that of a `with jax.enable_x64` here.
        precision = pool.submit(lambda: jax.config.read("jax_enable_x64")).result()
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", precision)
        if flags is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = flags


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Let PyTensor run small graphs in Python: building C for them takes half a minute."""
    from pytensor.configdefaults import config

    with config.change_flags(cxx="", mode="FAST_COMPILE"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytensor")
        yield


@contextmanager
def _quiet_log(name: str) -> Iterator[None]:
    """Only warnings from this package's log."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
