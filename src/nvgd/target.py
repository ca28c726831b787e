"""What to sample: a log density, with data, names and constraints where the model has them.

Inside the library a position is a flat vector; only `Target` knows pytrees, names and
constrained spaces, and `Posterior` shows them again through it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd.compilation import compiled
from nvgd.control_variates import Anchor, find_anchor
from nvgd.data import (
    ROWS_PER_BLOCK,
    AbstractBatches,
    AbstractHostData,
    BatchStream,
    NumberedRows,
    num_rows,
    placed,
)
from nvgd.errors import (
    InputError,
    check_callable,
    check_choice,
    check_count,
    check_kind,
    first_line,
)
from nvgd.models import AbstractModel, Model
from nvgd.orders import EpochShuffle
from nvgd.positions import Position, check_values, checked_names, layout

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
        data: array, or pytree of arrays, whose leading axis counts the N rows. A `np.memmap` stays
            on the disk; a `BatchStream` reads from any iterable of batches.
        batch_size: B; each step sees B rows, every row at most once an epoch. All N if omitted.
        gradient: "plain", or "control_variate": what a batch says of the score is corrected by what
            it says, and what all data say, at a mode, which is searched for from `example`, or
            zero, when the target is made. Less noise near that mode, for one gradient more a step.
        vectorised: `log_likelihood` takes all rows of a batch at once and returns one value a row;
            for models that share work between rows.
        particles_at_once: evaluate this many particles together, one group after the other; bounds
            memory and is faster where one particle's work fills the cache. All if omitted.
        constrain: maps a position to what a person wants to see (say, exp of a log scale); used
            for output only.
        names: one name for each coordinate of a flat position.
        model: what else is known of the model: a `Model` with its prior, predictions and labels.
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
    model: AbstractModel
    anchor: Anchor | None

    def __init__(
        self,
        log_density: LogDensity,
        dim: int | None = None,
        example: Position = None,
        *,
        log_likelihood: Callable[[Position, PyTree], Any] | None = None,
        data: PyTree = None,
        batch_size: int | None = None,
        gradient: str = "plain",
        vectorised: bool = False,
        particles_at_once: int | None = None,
        constrain: Callable[[Position], PyTree] | None = None,
        names: Sequence[str] | None = None,
        model: AbstractModel | None = None,
    ):
        self.dim, self.unravel = layout(dim, example)
        self.names = checked_names(names, self.dim, self.unravel)
        check_callable("log_density", log_density)
        check_callable("log_likelihood", log_likelihood, optional=True)
        check_callable("constrain", constrain, optional=True)
        self.log_prior, self.log_likelihood = log_density, log_likelihood
        self.constrain = constrain
        self.model = Model() if model is None else model
        check_kind("model", self.model, AbstractModel, "Model(prior=...)")
        self.anchor = None
        self.data = placed(data)
        self.batch_size, self.vectorised = batch_size, vectorised
        self.particles_at_once = particles_at_once
        if particles_at_once is not None:
            check_count("particles_at_once", particles_at_once)
        check_values("log_density", lambda x: log_density(self.structure(x)), self.dim)
        self._check_constrain()
        if isinstance(self.data, BatchStream) and batch_size is None:
            self.batch_size = num_rows(self.data.example)
        self._check_data()
        check_choice("gradient", gradient, ("plain", "control_variate"))
        if gradient == "control_variate":
            if self.batch_size is None:
                raise InputError(
                    'gradient="control_variate" is for minibatches: give data, log_likelihood and '
                    "batch_size."
                )
            start = jnp.zeros(self.dim) if example is None else ravel_pytree(example)[0]
            self.anchor = find_anchor(self, start)

    def _check_constrain(self) -> None:
        if self.constrain is None:
            return
        try:
            flat = jax.ShapeDtypeStruct((self.dim,), jnp.zeros(()).dtype)
            shown = jax.eval_shape(self._show, flat)
        except Exception as error:
            raise InputError(
                f"constrain could not be evaluated at a position: {first_line(error)}"
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
        sample = self.data
        if isinstance(self.data, AbstractHostData):
            sample = jax.tree.map(np.asarray, self.data.example)
            if self.batch_size is None:
                raise InputError("data on the disk are seen in batches only: give batch_size.")
        if isinstance(self.data, BatchStream) and self.batch_size != num_rows(sample):
            raise InputError(
                f"batch_size is that of the stream's first batch, {num_rows(sample)}: leave it out."
            )
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
            if self.batch_size > self.num_rows:
                raise InputError(
                    f"batch_size must be at most the number of data rows, {self.num_rows}, "
                    f"got {self.batch_size}."
                )
        num_rows(sample)
        rows = (3,) if self.vectorised else ()
        datum = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((*rows, *leaf.shape[1:]), jnp.result_type(leaf)),
            sample,
        )
        likelihood = self.log_likelihood
        check_values(
            "log_likelihood",
            lambda x, datum: likelihood(self.structure(x), datum),
            self.dim,
            datum,
            shape=rows,
        )

    @property
    def num_rows(self) -> int:
        """How many data rows the likelihood sums over; 0 without attached data."""
        if self.log_likelihood is None:
            return 0
        is_here = not isinstance(self.data, AbstractHostData)
        return num_rows(self.data) if is_here else self.data.num_rows

    def batches(self, seed: int) -> AbstractBatches | None:
        """What the steps of a run see; None if every step sees all data."""
        if self.batch_size is None:
            return None
        if isinstance(self.data, AbstractHostData):
            return self.data.batches(self.batch_size, seed)
        return NumberedRows(EpochShuffle(self.num_rows, self.batch_size, seed))

    def batch(self, taken: PyTree) -> PyTree:
        """The batch that a step's share of `batches` stands for: rows by number, or themselves."""
        if isinstance(self.data, AbstractHostData):
            return taken
        return jax.tree.map(lambda leaf: leaf[taken], self.data)

    def blocks(self) -> Iterator[PyTree]:
        """All data once, in parts that fit the memory."""
        size = max(self.batch_size or 0, ROWS_PER_BLOCK)
        if isinstance(self.data, AbstractHostData):
            yield from self.data.blocks(size)
        else:
            for first in range(0, self.num_rows, size):
                yield jax.tree.map(lambda leaf, f=first: leaf[f : f + size], self.data)

    def log_density(self, position: Float[Array, " d"], batch: PyTree = None) -> Float[Array, ""]:
        """Log density at a flat position: exact, or estimated from `batch` if one is given."""
        if self.anchor is None or batch is None:
            return self.estimate(position, batch)
        return self.anchor.corrected(lambda at: self.estimate(at, batch), position)

    def estimate(self, position: Float[Array, " d"], batch: PyTree) -> Float[Array, ""]:
        """The same without control variates."""
        structured = self.structure(position)
        value = jnp.asarray(self.log_prior(structured))
        if self.log_likelihood is not None:
            if batch is None and isinstance(self.data, AbstractHostData):
                raise InputError("data that JAX does not hold are seen in batches: pass batch=.")
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
        return self.at_every(particles, lambda x: self.log_density(x, batch))

    def at_every(
        self, particles: Float[Array, "n d"], function: Callable[[Array], Array]
    ) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
        """Value and gradient of a function of positions, as many particles at once as may be."""
        evaluate = jax.value_and_grad(function)
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
        shown = _show_all(self, particles)
        if self.names is not None:
            return {name: shown[:, i] for i, name in enumerate(self.names)}
        leaves, _ = jax.tree_util.tree_flatten_with_path(shown)
        return {
            jax.tree_util.keystr(path, simple=True, separator=".") or "x": leaf
            for path, leaf in leaves
        }


@compiled
def _show_all(target: Target, particles: Float[Array, "n d"]) -> PyTree:
    return jax.vmap(target._show)(particles)


def as_target(target: Target | LogDensity, dim: int | None, example: Position) -> Target:
    """`target` itself, or a Target built from a bare log density and `dim` or `example`."""
    if isinstance(target, Target):
        if dim is not None or example is not None:
            raise InputError(
                "dim and example describe a bare log density; a Target has its own: leave them out."
            )
        return target
    return Target(target, dim, example)
