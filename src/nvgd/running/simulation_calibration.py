"""Simulation-based calibration: does the sampler recover parameters of simulated data?"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from nvgd._support.compilation import Form
from nvgd._support.errors import (
    InputError,
    RunStoppedWarning,
    check_callable,
    check_count,
    check_not_traced,
    check_seed,
)
from nvgd._support.processes import is_first_process
from nvgd.posterior.diagnostics.calibration import CalibrationResult
from nvgd.posterior.posterior import Posterior
from nvgd.running.progress import Progress
from nvgd.running.sampling import sample, sample_or_interrupt
from nvgd.targets.coercion import as_target
from nvgd.targets.positions import element_name
from nvgd.targets.target import LogDensity, Target

# Options of `sample` that this module sets, or that a series of runs cannot share.
REFUSED = ("target", "seed", "progress", "checkpoint", "checkpoint_every")


def simulation_based_calibration(
    simulate: Callable[[PRNGKeyArray], tuple[Mapping[str, Any], Any]],
    num_simulations: int = 200,
    *,
    make_target: Callable[[PyTree], Target | LogDensity] | None = None,
    num_ranks: int = 50,
    seed: int = 0,
    on_run: Callable[[int, Posterior], Any] | None = None,
    progress: bool = True,
    **sample_options: Any,
) -> CalibrationResult:
    """Check model and sampler together on simulated data with known parameters.

    Draw parameters from the prior, then data from the likelihood, then posterior draws from
    `nvgd.sample`. If the sampler is right, the rank of the true parameter among independent
    posterior draws is uniform (Talts, Betancourt, Simpson, Vehtari & Gelman, 2018).

        def simulate(key):
            first, second = jax.random.split(key)
            mean = jax.random.normal(first)
            return {"mean": mean}, mean + jax.random.normal(second, (20,))

        def log_density(position, data):
            mean = position["mean"]
            return -0.5 * mean**2 - 0.5 * jnp.sum((data - mean) ** 2)

        def make_target(data):
            return nvgd.Target(jax.tree_util.Partial(log_density, data=data), example={"mean": 0.0})

        result = nvgd.simulation_based_calibration(simulate, make_target=make_target)
        print(result)

    One compilation serves all simulations if their targets differ only in arrays: define functions
    once, outside `make_target`, and pass data of a fixed shape as arrays, by
    `jax.tree_util.Partial` as above, in fields of an `eqx.Module`, or as `Target(..., data=data)`.
    A new lambda or closure per data set is compiled each time, and a warning says so.

    Arguments:
        simulate: maps a JAX key to parameters drawn from the prior and data drawn from the
            likelihood. The parameters are a dictionary from names to arrays, like the posterior's
            `draws`, in constrained space; it may leave out some of them.
        num_simulations: number of data sets; discrepancies of order 1/√num_simulations show.
        make_target: maps the data to the target. If omitted, `simulate` returns the target itself
            in place of the data.
        num_ranks: number of possible ranks. The true value is compared with one draw fewer, evenly
            spaced among the draws of a run: few enough that they are nearly independent.
        seed: the same seed gives the same result.
        on_run: called with the number of every simulation and its posterior, for instance to keep
            `posterior.diagnose().verdict`.
        progress: whether to show the number of simulations done, as `sample` does its steps.
        sample_options: passed to `nvgd.sample`, for instance `flow`, `num_particles`, `num_steps`.

    Examples:
        >>> def simulate(key):
        ...     first, second = jax.random.split(key)
        ...     mean = jax.random.normal(first)
        ...     return {"mean": mean}, mean + jax.random.normal(second, (20,))
        >>> def log_density(position, data):
        ...     mean = position["mean"]
        ...     return -0.5 * mean**2 - 0.5 * jnp.sum((data - mean) ** 2)
        >>> def make_target(data):
        ...     return nvgd.Target(
        ...         jax.tree_util.Partial(log_density, data=data), example={"mean": 0.0}
        ...     )
        >>> result = nvgd.simulation_based_calibration(
        ...     simulate, 5, make_target=make_target, flow=nvgd.ULA(0.01), num_steps=200
        ... )
        >>> result.ranks.shape
        (5, 1)
    """
    check_not_traced("nvgd.simulation_based_calibration")
    check_callable("simulate", simulate)
    check_callable("make_target", make_target, optional=True)
    check_callable("on_run", on_run, optional=True)
    check_count("num_simulations", num_simulations, minimum=2)
    check_count("num_ranks", num_ranks, minimum=2)
    check_seed(seed)
    _check_options(sample_options)
    described = {name: sample_options.pop(name, None) for name in ("dim", "example")}
    key, random = jax.random.key(seed), np.random.default_rng(seed)
    seeds = np.random.SeedSequence(int(seed)).generate_state(num_simulations)
    first_truth: dict[str, np.ndarray] = {}
    form, ranks, stopped = None, [], []
    with Progress(num_simulations, is_shown=progress and is_first_process()) as shown:
        shown.enter_stage("simulations")
        for number in range(num_simulations):
            truth, rest = _simulated(simulate, jax.random.fold_in(key, number))
            if make_target is not None:
                rest = make_target(jax.tree.map(_as_array, rest))
            target = as_target(rest, **described)
            if number == 0:
                _check_shapes(truth, target)
                first_truth = truth
            _check_same_shapes(first_truth, truth)
            form = _same_form(form, target, number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RunStoppedWarning)
                posterior = sample_or_interrupt(
                    target, seed=int(seeds[number]), progress=False, **sample_options
                )
            if not posterior.completed:
                stopped.append(number)
            if on_run is not None:
                on_run(number, posterior)
            ranks.append(_ranks(truth, posterior.draws, num_ranks - 1, random))
            shown.advance(number + 1, num_simulations, {})
    names = [
        element_name(name, index)
        for name, value in first_truth.items()
        for index in np.ndindex(value.shape)
    ]
    return CalibrationResult(tuple(names), np.stack(ranks), int(num_ranks), tuple(stopped))


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in REFUSED:
            raise InputError(
                f"{name} cannot be set for the runs of simulation_based_calibration: leave it out."
            )
        if name not in inspect.signature(sample).parameters:
            raise InputError(f"nvgd.sample has no argument {name!r}.")


def _simulated(
    simulate: Callable[..., Any], key: PRNGKeyArray
) -> tuple[dict[str, np.ndarray], Any]:
    """The true parameters as arrays of numbers, and the data or target."""
    found = simulate(key)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Mapping):
        raise InputError(
            "simulate must return a pair: a dictionary of parameters, and the data or the target; "
            f"got a {type(found).__name__}."
        )
    try:
        truth = {str(name): np.asarray(value, np.float64) for name, value in found[0].items()}
    except (TypeError, ValueError):
        truth = {}
    if not truth or not all(np.isfinite(value).all() for value in truth.values()):
        raise InputError(
            "the parameters that simulate returns must be finite numbers or arrays by name, got "
            f"{dict(found[0])!r}."
        )
    return truth, found[1]


def _as_array(leaf: Any) -> Any:
    """Numbers as arrays: a program is compiled for each value of a Python number."""
    return jnp.asarray(leaf) if isinstance(leaf, int | float | np.generic) else leaf


def _check_shapes(truth: Mapping[str, np.ndarray], target: Target) -> None:
    """Compare the names and shapes of the true parameters with those that the target presents."""
    particle = jax.ShapeDtypeStruct((1, target.dim), jnp.result_type(float))
    shown = {
        name: leaf.shape[1:] for name, leaf in jax.eval_shape(target.present, particle).items()
    }
    for name, value in truth.items():
        if name not in shown:
            raise InputError(
                f"simulate returns the parameter {name!r}, but the posterior's draws are "
                f"{', '.join(shown)}."
            )
        if value.shape != shown[name]:
            raise InputError(
                f"simulate returns the parameter {name!r} with shape {value.shape}, but a draw of "
                f"the posterior has shape {shown[name]}."
            )


def _check_same_shapes(first: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> None:
    shapes = [{name: value.shape for name, value in each.items()} for each in (first, truth)]
    if shapes[0] != shapes[1]:
        raise InputError(
            "simulate must return parameters with the same names and shapes every time, got "
            f"{shapes[0]}, then {shapes[1]}."
        )


def _same_form(form: tuple[Any, ...] | None, target: Target, number: int) -> tuple[Any, ...]:
    """What a compiled program depends on; warns if the second target differs from the first."""
    static, arrays = Form.of(target)
    found = (static, [(jnp.shape(array), jnp.result_type(array)) for array in arrays])
    if number == 1 and found != form:
        warnings.warn(
            "the targets of two simulations differ in more than the values of arrays, so the log "
            "density is compiled for each of them: define its functions once, and pass data of a "
            "fixed shape as arrays, for instance by jax.tree_util.Partial(log_density, data=data).",
            stacklevel=3,
        )
    return found


def _ranks(
    truth: Mapping[str, np.ndarray], draws: Mapping[str, Any], number: int, random: Any
) -> np.ndarray:
    """How many of `number` evenly spaced draws are below the truth, for each scalar."""
    columns = []
    for name, value in truth.items():
        # Leading axes count draws, and perhaps chains.
        array = np.asarray(draws[name])
        array = array.reshape(-1, value.size)
        if len(array) < number:
            raise InputError(
                f"num_ranks must be at most one more than the {len(array)} draws of a run, got "
                f"{number + 1}: raise num_particles, or lower num_ranks."
            )
        chosen = array[((np.arange(number) + 0.5) * len(array) / number).astype(int)]
        # A parameter of single precision is compared in single precision.
        exact = value.ravel().astype(np.result_type(array.dtype, np.float16))
        ties = np.sum(chosen == exact, axis=0)
        columns.append(np.sum(chosen < exact, axis=0) + random.integers(0, ties + 1))
    return np.concatenate(columns)
