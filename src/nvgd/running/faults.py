"""Why a run stopped, in a sentence."""

import re


def raised(step: int, length: int, error: Exception) -> str:
    """The log density raised an error in one of `length` steps after `step`."""
    return (
        f"stopped between steps {step} and {step + length}: the log density raised an error "
        f"({_last_line(error)}); the particles of step {step} are returned. Fix it and run again; "
        "with checkpoint= the run resumes from its last checkpoint."
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


def interrupted(step: int, end: int, is_saved: bool) -> str:
    """Ctrl-C."""
    text = f"stopped by Ctrl-C after step {step} of {end}; the particles of that step are returned."
    return f"{text} The same call resumes from there." if is_saved else text


def is_from_callback(error: Exception) -> bool:
    """Whether a callback raised the error; only the user's log density has callbacks."""
    return "callback" in str(error).lower()


def _last_line(error: Exception) -> str:
    """The final line of a Python traceback inside an XLA error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (raised or lines or [type(error).__name__])[-1][:200]
