"""Why a run stopped, in a sentence; errors of the log density."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax

from nvgd._support.errors import InputError
from nvgd.posterior.diagnostics.verdict import FAULTY_ROW, INTERRUPTED, RAISED

# What JAX raises for an error in a callback.
CALLBACK_ERRORS = (jax.errors.JaxRuntimeError, ValueError)
# What follows if there is a checkpoint of that step.
RESUMES = "The same call resumes from there."

Result = TypeVar("Result")


def raised(step: int, error: Exception) -> str:
    """The log density raised an error in the step after `step`."""
    return (
        f"stopped after step {step}: the log density {RAISED} ({_last_line(error)}); the particles "
        "of that step are returned. Fix it and run again."
    )


def moved_nowhere(step: int, num_faulty: int, num_particles: int) -> str:
    """A move made particles non-finite."""
    return (
        f"stopped at step {step}: the move made {num_faulty} of {num_particles} particles "
        f"non-finite; the particles of step {step - 1} are returned. Try a smaller step size."
    )


def not_finite(step: int, num_faulty: int, num_particles: int, last_good: int) -> str:
    """The log density is not finite where particles went."""
    return (
        f"stopped at step {step}: the log density or its gradient is not finite at {num_faulty} of "
        f"{num_particles} particles; the particles of step {last_good} are returned. Try a smaller "
        "step size, check the log density far from its mode, or write it in unconstrained "
        "coordinates (log of a scale, logit of a probability)."
    )


def faulty_row(step: int, row: int, last_good: int) -> str:
    """The log likelihood of a row is not finite."""
    return (
        f"stopped at step {step}: {FAULTY_ROW} {row}; the particles of step {last_good} are "
        "returned. Look for missing or impossible values there, and leave such rows out."
    )


def interrupted(step: int, end: int) -> str:
    """Ctrl-C."""
    return f"{INTERRUPTED} after step {step} of {end}; the particles of that step are returned."


def can_go_on(status: str) -> bool:
    """Whether the run was stopped from outside, in a state from which it can go on."""
    return INTERRUPTED in status or RAISED in status


def is_from_callback(error: Exception) -> bool:
    """Whether a callback raised the error; only the user's log density has callbacks."""
    return "callback" in str(error).lower()


@contextlib.contextmanager
def at_the_start() -> Iterator[None]:
    """Context manager: an error of the log density is an `InputError`, as no step was taken yet."""
    try:
        yield
    except CALLBACK_ERRORS as error:
        if isinstance(error, InputError) or not is_from_callback(error):
            raise
        raise InputError(
            f"the log density {RAISED} at the starting particles ({_last_line(error)}): fix it, or "
            "start elsewhere with initial=."
        ) from error


def longest(take: Callable[[int], Result], length: int) -> Result | None:
    """The result of as many steps as raise no error, if `length` steps raise one.

    Returns None if the first step does.
    """
    # JAX logs the traceback of every error in a callback. That of the first one is enough.
    logger = logging.getLogger("jax._src.callback")
    was_disabled, logger.disabled = logger.disabled, True
    good, bad, found = 0, length, None
    try:
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                found, good = take(middle), middle
            except CALLBACK_ERRORS:
                bad = middle
    finally:
        logger.disabled = was_disabled
    return found


def _last_line(error: Exception) -> str:
    """The final line of a Python traceback inside an XLA error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (raised or lines or [type(error).__name__])[-1][:200]
