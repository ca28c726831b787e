"""Conversion of what a user passes as a target."""

from nvgd._support.errors import InputError
from nvgd.targets.positions import Position
from nvgd.targets.target import LogDensity, Target


def as_target(target: Target | LogDensity, dim: int | None, example: Position) -> Target:
    """Return a `Target` unchanged, or build one from a log density and `dim` or `example`."""
    if isinstance(target, Target):
        if dim is not None or example is not None:
            raise InputError(
                "dim and example describe a bare log density; a Target has its own: leave them out."
            )
        return target
    if callable(target) and dim is None and example is None:
        raise InputError(
            "a bare log density needs dim (the length of its vector) or example (a position as it "
            "takes it); a NumPyro model goes through nvgd.from_numpyro(model, ...)."
        )
    if not callable(target):
        module = type(target).__module__.partition(".")[0]
        way_out = ": pass nvgd.from_pymc(model)" if module == "pymc" else ""
        raise InputError(
            f"target must be an nvgd.Target or a log density, got a {type(target).__name__}"
            f"{way_out}."
        )
    return Target(target, dim, example)
