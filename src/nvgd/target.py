"""What to sample: a log density, with data, names and constraints where the model has them.

Inside the library a position is a flat vector; only `Target` knows pytrees, names and
constrained spaces, and `Posterior` shows them again through it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd.errors import InputError, check_callable, check_count

Position = PyTree
LogDensity = Callable[[Position], Any]


class Target(eqx.Module):
    """The density to sample, up to a constant: log p(θ) for θ in unconstrained space.

    From a plain log density,

        Target(log_density, dim=3)                       # of a flat vector
        Target(log_density, example={"a": 0.0, "b": jnp.zeros(2)})   # of a pytree like `example`

    or in minibatch form, where a batch of B of the N data rows gives an unbiased estimate,

        log p(θ) ≈ log_prior(θ) + N/B Σ log_likelihood(θ, datum)

        Target(log_prior, dim=55, log_likelihood=log_likelihood, data=data, batch_size=128)

    Arguments:
        log_density: written with `jax.numpy`; takes a position, returns a scalar. If the model's
            parameters are constrained, it includes the log Jacobian of `constrain`. In minibatch
            form this is the log prior.
        dim: length of the flat position; or
        example: a position as `log_density` wants it, any pytree of floating-point arrays.
        log_likelihood: `(position, datum) -> scalar`, where a datum is one row of `data`.
        data: array, or pytree of arrays, whose leading axis counts the N rows.
        batch_size: B; each step sees B rows, every row at most once an epoch. All N if omitted.
        vectorised: `log_likelihood` takes all rows of a batch at once and returns one value a row;
            for models that share work between rows.
        particles_at_once: evaluate this many particles together, one group after the other; bounds
            memory and is faster where one particle's work fills the cache. All if omitted.
        constrain: maps a position to what a person wants to see (say, exp of a log scale); used
            for output only.
        names: one name for each coordinate of a flat position.
    """

    dim: int = eqx.field(static=True)
    names: tuple[str, ...] | None = eqx.field(static=True)
    constrain: Callable[[Position], PyTree] | None
    log_prior: LogDensity
    log_likelihood: Callable[[Position, PyTree], Any] | None
    data: PyTree
    batch_size: int | None = eqx.field(static=True)
    vectorised: bool = eqx.field(static=True)
    particles_at_once: int | None = eqx.field(static=True)
    unravel: Callable[[Array], Position] | None

    def __init__(
        self,
        log_density: LogDensity,
        dim: int | None = None,
        example: Position = None,
        *,
        log_likelihood: Callable[[Position, PyTree], Any] | None = None,
        data: PyTree = None,
        batch_size: int | None = None,
        vectorised: bool = False,
        particles_at_once: int | None = None,
        constrain: Callable[[Position], PyTree] | None = None,
        names: Sequence[str] | None = None,
    ):
        self.dim, self.unravel = _layout(dim, example)
        self.names = _checked_names(names, self.dim, self.unravel)
        check_callable("log_density", log_density)
        check_callable("log_likelihood", log_likelihood, optional=True)
        check_callable("constrain", constrain, optional=True)
        self.log_prior, self.log_likelihood = log_density, log_likelihood
        self.constrain = constrain
        self.data = jax.tree.map(jnp.asarray, data)
        self.batch_size, self.vectorised = batch_size, vectorised
        self.particles_at_once = particles_at_once
        if particles_at_once is not None:
            check_count("particles_at_once", particles_at_once)
        _check_scalar("log_density", log_density, self)
        self._check_constrain()
        self._check_data()

    def _check_constrain(self) -> None:
        if self.constrain is None:
            return
        try:
            flat = jax.ShapeDtypeStruct((self.dim,), jnp.zeros(()).dtype)
            shown = jax.eval_shape(self._show, flat)
        except Exception as error:
            raise InputError(
                f"constrain could not be evaluated at a position: {_first_line(error)}"
            ) from error
        if self.names is not None and getattr(shown, "shape", None) != (self.dim,):
            raise InputError(
                f"names go with a constrain that returns {self.dim} numbers, one a name; otherwise "
                "leave names out and return a dictionary."
            )

    def _check_data(self) -> None:
        if self.log_likelihood is None:
            if self.data is not None or self.batch_size is not None:
                raise InputError(
                    "data and batch_size need a log_likelihood(position, datum) that uses them."
                )
            return
        num_rows = self.num_rows
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
            if self.batch_size > num_rows:
                raise InputError(
                    f"batch_size must be at most the number of data rows, {num_rows}, "
                    f"got {self.batch_size}."
                )
        rows = (3,) if self.vectorised else ()
        datum = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((*rows, *leaf.shape[1:]), leaf.dtype), self.data
        )
        _check_scalar("log_likelihood", self.log_likelihood, self, datum, shape=rows)

    @property
    def num_rows(self) -> int:
        """How many data rows the likelihood sums over; 0 without attached data."""
        return 0 if self.log_likelihood is None else _num_rows(self.data)

    def batch(self, rows: Array) -> PyTree:
        """The data rows with these indices."""
        return jax.tree.map(lambda leaf: leaf[rows], self.data)

    def log_density(self, position: Float[Array, " d"], batch: PyTree = None) -> Float[Array, ""]:
        """Log density at a flat position: exact, or estimated from `batch` if one is given."""
        structured = self.structure(position)
        value = jnp.asarray(self.log_prior(structured))
        if self.log_likelihood is not None:
            rows = self.data if batch is None else batch
            likelihood = self.log_likelihood
            if not self.vectorised:
                likelihood = jax.vmap(likelihood, in_axes=(None, 0))
            terms = likelihood(structured, rows)
            value = value + self.num_rows * jnp.mean(jnp.asarray(terms))
        return value.astype(position.dtype)

    def log_densities_and_scores(
        self, particles: Float[Array, "n d"], batch: PyTree = None
    ) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
        """Log density and score ∇log p of every particle; one gradient evaluation each."""
        evaluate = jax.value_and_grad(lambda x: self.log_density(x, batch))
        if self.particles_at_once is None:
            return jax.vmap(evaluate)(particles)
        return jax.lax.map(evaluate, particles, batch_size=self.particles_at_once)

    def structure(self, position: Float[Array, " d"]) -> Position:
        """The flat position in the form that the user's log density takes."""
        return position if self.unravel is None else self.unravel(position)

    def _show(self, position: Float[Array, " d"]) -> PyTree:
        structured = self.structure(position)
        return structured if self.constrain is None else self.constrain(structured)

    def present(self, particles: Float[Array, "n d"]) -> dict[str, Array]:
        """Particles under the model's own names, in constrained space; leading axis n."""
        shown = jax.vmap(self._show)(particles)
        if self.names is not None:
            return {name: shown[:, i] for i, name in enumerate(self.names)}
        leaves, _ = jax.tree_util.tree_flatten_with_path(shown)
        return {
            jax.tree_util.keystr(path, simple=True, separator=".") or "x": leaf
            for path, leaf in leaves
        }


def as_target(target: Target | LogDensity, dim: int | None, example: Position) -> Target:
    """`target` itself, or a Target built from a bare log density and `dim` or `example`."""
    if isinstance(target, Target):
        if dim is not None or example is not None:
            raise InputError(
                "dim and example describe a bare log density; a Target has its own: leave them out."
            )
        return target
    return Target(target, dim, example)


def _layout(dim: int | None, example: Position) -> tuple[int, Callable[[Array], Position] | None]:
    if (dim is None) == (example is None):
        raise InputError(
            "give either dim (the length of a flat position) or example (a position as the log "
            f"density takes it), got dim={dim!r} and example={example!r}."
        )
    if dim is not None:
        check_count("dim", dim)
        return int(dim), None
    leaves = jax.tree.leaves(example)
    try:
        arrays = [jnp.asarray(leaf) for leaf in leaves]
    except (TypeError, ValueError):
        raise InputError(f"example must hold only numbers and arrays, got {example!r}.") from None
    if not arrays or not all(jnp.issubdtype(array.dtype, jnp.floating) for array in arrays):
        raise InputError(
            "example must hold floating-point values only (discrete parameters cannot follow a "
            f"gradient), got {[str(array.dtype) for array in arrays]}."
        )
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, example))
    if flat.size == 0:
        raise InputError("example must hold at least one number, got an empty one.")
    is_flat_vector = jax.tree.structure(example) == jax.tree.structure(0) and arrays[0].ndim == 1
    return flat.size, None if is_flat_vector else unravel


def _checked_names(
    names: Sequence[str] | None, dim: int, unravel: Callable | None
) -> tuple[str, ...] | None:
    if names is None:
        return None
    if unravel is not None:
        raise InputError("names go with a flat position; a pytree's keys are its names already.")
    names = (names,) if isinstance(names, str) else tuple(names)
    are_strings = all(isinstance(name, str) for name in names)
    if len(names) != dim or len(set(names)) != dim or not are_strings:
        raise InputError(f"names must be {dim} different strings, one a coordinate, got {names}.")
    return names


def _num_rows(data: PyTree) -> int:
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            "data must be arrays that share a leading axis of one or more rows, got shapes "
            f"{[leaf.shape for leaf in jax.tree.leaves(data)]}."
        )
    return lengths.pop()


def _first_line(error: Exception) -> str:
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if line.endswith(".") else line + "."


def _check_scalar(
    name: str,
    function: Callable[..., Any],
    target: Target,
    *rest: PyTree,
    shape: tuple[int, ...] = (),
) -> None:
    flat = jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype)
    try:
        value = jax.eval_shape(lambda x, *r: function(target.structure(x), *r), flat, *rest)
    except Exception as error:
        raise InputError(
            f"{name} could not be evaluated at a position with {target.dim} coordinates: "
            f"{_first_line(error)} It must be written with jax.numpy and fit dim or example."
        ) from error
    found = getattr(value, "shape", None)
    if found != shape:
        what = f"a {type(value).__name__}" if found is None else f"an array of shape {found}"
        wanted = f"one value a row, here of shape {shape}" if shape else "a scalar"
        way_out = "" if shape else "; sum its terms"
        raise InputError(f"{name} must return {wanted}, got {what}{way_out}.")
