"""Errors, warnings and input checks."""

import importlib
import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from jax.core import Tracer


class InputError(ValueError):
    """An invalid argument; the message names it, the value given, and what is accepted.

    Examples:
        >>> try:
        ...     nvgd.SVGD(-1.0)
        ... except nvgd.InputError as error:
        ...     print(error)
        step_size must be a finite number > 0, got -1.0.
    """


class MissingExtraError(InputError, ImportError):
    """An optional package is not installed; the message says how to install it.

    Examples:
        >>> issubclass(nvgd.MissingExtraError, ImportError)
        True
    """


class RunStoppedWarning(UserWarning):
    """A run stopped before its last step and returned its last valid state.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     posterior = nvgd.sample(
        ...         lambda x: jnp.sum(x**4), nvgd.ULA(1.0), dim=2, num_particles=10, num_steps=50
        ...     )
        >>> [warning.category.__name__ for warning in caught], posterior.completed
        (['RunStoppedWarning'], False)
    """


class DataOrderWarning(UserWarning):
    """A stream of batches whose rows are not shuffled, or whose length is not `num_rows`."""


class NotConvergedWarning(UserWarning):
    """A run reached `max_steps` before it had converged, or its flow failed before the corrections.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("error", nvgd.NotConvergedWarning)  # such a run raises instead
    """


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or was unusable and an earlier one was used instead.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("error", nvgd.CheckpointWarning)  # raises instead
    """


def first_line(error: Exception) -> str:
    """The first line of another library's error message, with a full stop."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if line.endswith(".") else line + "."


def is_concrete(value: Any) -> bool:
    """Whether `value` is concrete, not a tracer of `jit`, `vmap` or `grad`."""
    return not isinstance(value, Tracer)


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number; return anything else unchanged.

    Settings that must be static under `eqx.filter_jit` are Python numbers; it would trace NumPy
    scalars.
    """
    return value.item() if isinstance(value, np.generic) else value


def is_tracing() -> bool:
    """Whether JAX is tracing a function now."""
    from jax._src import core

    # Not part of JAX's public API. If it disappears, JAX's own errors are raised instead.
    return not getattr(core, "trace_state_clean", lambda: True)()


def check_not_traced(name: str) -> None:
    """Refuse to run inside a function that JAX is tracing."""
    if is_tracing():
        raise InputError(
            f"{name} runs on the host and cannot be called inside jax.jit, vmap or grad: call it "
            "outside, or step a flow by hand with flow.init and flow.step."
        )


def check_positive(name: str, value: Any, *, zero_allowed: bool = False) -> None:
    """Refuse a scalar that is not finite and positive; tracers are not checked."""
    if not is_concrete(value):
        return
    wanted = "a finite number ≥ 0" if zero_allowed else "a finite number > 0"
    try:
        number = float(np.asarray(value))
    except (TypeError, ValueError):
        raise InputError(f"{name} must be {wanted}, got {value!r}.") from None
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise InputError(f"{name} must be {wanted}, got {value!r}.")
    if number == 0 and not zero_allowed:
        raise InputError(f"{name} must be {wanted}, got {value!r}.")


def check_fraction(name: str, value: float) -> None:
    """Refuse a value that does not lie strictly between 0 and 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


def check_share(name: str, value: Any) -> None:
    """Refuse a value outside [0, 1]."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise InputError(f"{name} must lie between 0 and 1, got {value!r}.")


def check_count(name: str, value: Any, *, minimum: int = 1) -> None:
    """Refuse a value that is not an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InputError(f"{name} must be a whole number ≥ {minimum}, got {value!r}.")


def check_seed(seed: Any) -> None:
    """Refuse a seed that is not an integer in [0, 2³²), where JAX keeps all seeds distinct."""
    check_count("seed", seed, minimum=0)
    if seed >= 2**32:
        raise InputError(f"seed must be below 2³², got {seed}.")


def check_choice(name: str, value: Any, accepted: Collection[str]) -> None:
    """Refuse a value that is not among `accepted`."""
    if value not in accepted:
        listed = ", ".join(repr(word) for word in accepted)
        raise InputError(f"{name} must be one of {listed}, got {value!r}.")


def check_names(name: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that are not among `known`."""
    if isinstance(given, str):
        raise InputError(f"{name} must be a list of names, got {given!r}: write [{given!r}].")
    unknown = [str(each) for each in given if each not in known]
    if unknown:
        raise InputError(f"{name} must be among {', '.join(known)}, got {', '.join(unknown)}.")


def check_callable(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse a value that is not callable; None passes if the argument is optional."""
    if not callable(value) and not (optional and value is None):
        raise InputError(f"{name} must be a function, got {value!r}.")


def check_kind(name: str, value: Any, kind: type, examples: str) -> None:
    """Refuse a value that is not an instance of `kind`, a class of this library."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be an nvgd object such as {examples}, got {value!r}.")


def check_transformation(name: str, value: Any) -> None:
    """Refuse a value without the `init` and `update` of an Optax transformation."""
    if not all(callable(getattr(value, method, None)) for method in ("init", "update")):
        raise InputError(
            f"{name} must be an optax transformation such as optax.adam(1e-3), got {value!r}."
        )


def check_step_size(name: str, value: Any) -> None:
    """Refuse a step size that is neither a positive number nor a schedule."""
    if not callable(value):
        check_positive(name, value)


def positive_matrix(name: str, value: Any) -> np.ndarray:
    """Check that a matrix is symmetric positive definite and return it in double precision.

    A vector stands for a diagonal matrix.
    """
    matrix = np.asarray(value, np.float64)
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not is_square or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise InputError(
            f"{name} must be a symmetric matrix (d, d), or a vector of d positive numbers, got "
            f"shape {np.shape(value)}."
        )
    if np.linalg.eigvalsh(matrix)[0] <= 0:
        raise InputError(f"{name} must be positive definite, and it is not.")
    return matrix


def check_matrix_fits(name: str, matrix: Any, dim: int) -> None:
    """Refuse a matrix that does not have `dim` rows."""
    if len(matrix) != dim:
        raise InputError(
            f"{name} must have one row for each of the {dim} dimensions, got {len(matrix)}."
        )


def optional_import(module: str, extra: str, purpose: str) -> Any:
    """Import an optional package; if it is missing, raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the package {module.partition('.')[0]}, which cannot be imported "
            f"here ({first_line(error)[:-1]}): run `pip install 'nvgd[{extra}]'`."
        ) from error
