"""`Target`: a log density with its data, names and constraints.

Inside the library a position is a flat vector. Only `Target` handles pytrees, names and
constrained spaces; `Posterior` uses it to restore them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from nvgd._support.compilation import compiled
from nvgd._support.errors import (
    InputError,
    check_callable,
    check_choice,
    check_count,
    check_kind,
)
from nvgd.targets.control_variates import Anchor, find_anchor
from nvgd.targets.data import AbstractBatches, AbstractData
from nvgd.targets.evaluation import curvature_on_all_data, evaluate_on_all_data
from nvgd.targets.host_data import as_data
from nvgd.targets.models import AbstractModel, Model
from nvgd.targets.positions import (
    Position,
    checked_names,
    coordinate_names,
    flatten_positions,
    leaf_name,
    position_form,
)
from nvgd.targets.scores import Scores
from nvgd.targets.target_checks import check_constrain, check_data, check_likelihood, check_values

LogDensity = Callable[[Position], Any]

# Rows per block of a pass over all data, unless batches are larger.
ROWS_PER_BLOCK = 1024


class Target(eqx.Module):
    """The density to sample: log p(θ) for θ in unconstrained space, up to a constant.

    A target is built from a plain log density,

        Target(log_density, dim=3)                       # of a flat vector
        Target(log_density, example={"a": 0.0, "b": jnp.zeros(2)})   # of a pytree like `example`

    or in minibatch form, where a batch of B of the N data rows gives an unbiased estimate:

        log p(θ) ≈ log_prior(θ) + N/B Σ log_likelihood(θ, datum)

        Target(log_prior, dim=55, log_likelihood=log_likelihood, data=data, batch_size=128)

    Arguments:
        log_density: maps a position to a scalar; written with `jax.numpy`. If the model's
            parameters are constrained, it includes the log Jacobian of `constrain`. In minibatch
            form this is the log prior.
        dim: length of the position, if `log_density` takes a flat vector.
        example: a position as `log_density` takes it, any pytree of floating-point arrays. Pass
            either `dim` or `example`.
        log_likelihood: `(position, datum) -> scalar`, where a datum is one row of `data`.
        data: array, or pytree of arrays, whose leading axis counts the N rows. A `np.memmap` stays
            on disk; a `BatchStream` reads from any iterable of batches.
        batch_size: B, the number of rows per step; each row is used at most once per epoch. All N
            rows if omitted.
        gradient: "plain", or "control_variate" to correct the score of a batch by the scores of
            the batch and of all data at a mode. This reduces noise near the mode and costs one
            more gradient per step. The mode is searched for when the target is built, from
            `example`, or from zero if only `dim` is given.
        vectorised: `log_likelihood` takes all rows of a batch at once and returns one value per
            row; for models that share work between rows.
        particles_at_once: evaluate particles in groups of this size, one group after another.
            This bounds memory, and is faster if the work of one particle fills the cache. All at
            once if omitted.
        constrain: maps a position to the parameters to report (for example, exp of a log scale);
            used only for output.
        names: one name per coordinate of a flat position.
        model: a `Model` with the prior, predictions and labels.

    Examples:
        >>> target = nvgd.Target(
        ...     lambda theta: -0.5 * theta["a"] ** 2 - 0.5 * jnp.sum(theta["b"] ** 2),
        ...     example={"a": 0.0, "b": jnp.zeros(2)},
        ... )
        >>> target.dim
        3
    """

    dim: int = eqx.field(static=True)
    names: tuple[str, ...] | None = eqx.field(static=True)
    constrain: Callable[[Position], PyTree] | None
    log_prior: LogDensity
    log_likelihood: Callable[[Position, PyTree], Any] | None
    data: AbstractData | None
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
        self.dim, self.unravel = position_form(dim, example)
        self.names = checked_names(names, self.dim, self.unravel)
        check_callable("log_density", log_density)
        check_callable("log_likelihood", log_likelihood, optional=True)
        check_callable("constrain", constrain, optional=True)
        self.log_prior, self.log_likelihood = log_density, log_likelihood
        self.constrain = constrain
        self.model = Model() if model is None else model
        check_kind("model", self.model, AbstractModel, "Model(prior=...)")
        self.anchor = None
        self.data = None if data is None else as_data(data)
        self.batch_size, self.vectorised = batch_size, vectorised
        if self.data is not None and batch_size is None:
            self.batch_size = self.data.own_batch_size
        self.particles_at_once = particles_at_once
        if particles_at_once is not None:
            check_count("particles_at_once", particles_at_once)
        check_values("log_density", lambda x: log_density(self.structure(x)), self.dim)
        if constrain is not None:
            check_constrain(self._show, self.dim, self.names)
        check_data(self.data, log_likelihood is not None, self.batch_size)
        if self.data is not None and log_likelihood is not None:
            check_likelihood(
                lambda x, datum: log_likelihood(self.structure(x), datum),
                self.dim,
                self.data.example,
                vectorised,
            )
        check_choice("gradient", gradient, ("plain", "control_variate"))
        if gradient == "control_variate":
            if not self.is_noisy:
                raise InputError(
                    'gradient="control_variate" is for minibatches: give data, log_likelihood and '
                    "batch_size."
                )
            start = jnp.zeros(self.dim) if example is None else ravel_pytree(example)[0]
            self.anchor = find_anchor(self.on_all_data_at, self.curvature_on_all_data, start)

    @property
    def is_noisy(self) -> bool:
        """Whether the scores that a step uses are estimated from minibatches."""
        return self.batch_size is not None

    @property
    def flows_as_noisy(self) -> bool:
        """Whether flows take the steps that they take with minibatches.

        So they do on models with symmetries: their particles lie in different modes, and what a
        network learned of a few particles in many modes would drive them apart.
        """
        return self.is_noisy or self.model.has_symmetries

    @property
    def num_rows(self) -> int:
        """Number of data rows that the likelihood sums over; 0 without data."""
        return 0 if self.data is None else self.data.num_rows

    @property
    def can_use_all_data(self) -> bool:
        """Whether log densities and scores of all data can be evaluated."""
        return self.data is None or self.data.can_be_read_again

    def batches(self, seed: int) -> AbstractBatches | None:
        """The batches of a run; None if every step uses all data."""
        if self.data is None or self.batch_size is None:
            return None
        return self.data.batches(self.batch_size, seed)

    def batch(self, taken: PyTree) -> PyTree:
        """The batch of one step, from that step's entry of `batches`; None means all data."""
        return None if self.data is None or taken is None else self.data.batch(taken)

    def blocks(self) -> Iterator[PyTree]:
        """Iterate over all data once, in blocks that fit in memory."""
        if self.data is not None:
            yield from self.data.blocks(max(self.batch_size or 0, ROWS_PER_BLOCK))

    def log_density(self, position: Float[Array, " d"], batch: PyTree = None) -> Float[Array, ""]:
        """Log density at a flat position: exact, or estimated from `batch` if it is given."""
        if self.anchor is None or batch is None:
            return self.estimate(position, batch)
        return self.anchor.corrected(lambda at: self.estimate(at, batch), position)

    def estimate(self, position: Float[Array, " d"], batch: PyTree) -> Float[Array, ""]:
        """`log_density` without control variates."""
        structured = self.structure(position)
        value = jnp.asarray(self.log_prior(structured))
        if self.log_likelihood is not None and self.data is not None:
            rows = self.data.rows if batch is None else batch
            if rows is None:
                raise InputError(
                    "data that are not held in memory can only be used in batches: pass batch=."
                )
            value = value + self.num_rows * jnp.mean(self.log_likelihoods(position, rows))
        return value.astype(position.dtype)

    def log_likelihoods(self, position: Float[Array, " d"], rows: PyTree) -> Float[Array, " rows"]:
        """Log likelihood of each of these rows."""
        likelihood = self.log_likelihood
        assert likelihood is not None
        if not self.vectorised:
            likelihood = jax.vmap(likelihood, in_axes=(None, 0))
        return jnp.asarray(likelihood(self.structure(position), rows))

    def on_rows(
        self, log_prior: LogDensity, log_likelihood: Callable[[Position, PyTree], Any], data: PyTree
    ) -> "Target":
        """The target with another prior, likelihood and data, all rows of which every step uses."""
        return Target(
            log_prior,
            dim=self.dim if self.unravel is None else None,
            example=None if self.unravel is None else self.unravel(jnp.zeros(self.dim)),
            log_likelihood=log_likelihood,
            data=data,
            vectorised=self.vectorised,
            particles_at_once=self.particles_at_once,
            constrain=self.constrain,
            names=self.names,
            model=self.model,
        )

    def log_densities_and_scores(
        self, particles: Float[Array, "n d"], batch: PyTree = None
    ) -> Scores:
        """Log densities and scores ∇log p, from one gradient evaluation per particle."""
        evaluate = jax.value_and_grad(lambda x: self.log_density(x, batch))
        if self.particles_at_once is None:
            return Scores(*jax.vmap(evaluate)(particles))
        return Scores(*jax.lax.map(evaluate, particles, batch_size=self.particles_at_once))

    def on_all_data(self, particles: Float[Array, "n d"]) -> Scores:
        """Log densities and scores of all data, evaluated block by block."""
        return evaluate_on_all_data(self, particles)

    def on_all_data_at(self, position: Float[Array, " d"]) -> tuple[Array, Array]:
        """Log density and score of all data at one position."""
        found = self.on_all_data(position[None])
        return found.log_densities[0], found.scores[0]

    def curvature_on_all_data(
        self, position: Float[Array, " d"], probes: Float[Array, "k d"]
    ) -> Float[np.ndarray, "k d"]:
        """Products of −∇²log p of all data with each probe, summed in double precision."""
        return curvature_on_all_data(self, position, probes)

    def structure(self, position: Float[Array, " d"]) -> Position:
        """A flat position in the form that the user's log density takes."""
        return position if self.unravel is None else self.unravel(position)

    def flatten(self, positions: PyTree, name: str = "initial") -> Float[Array, "n d"]:
        """Positions with a leading axis, flat or in the user's form, as one array (n, dim)."""
        return flatten_positions(self.dim, self.unravel, positions, name)

    def coordinate_names(self) -> Sequence[str]:
        """One name per coordinate of the flat position, in unconstrained space."""
        return coordinate_names(self.dim, self.unravel, self.names)

    def _show(self, position: Float[Array, " d"]) -> PyTree:
        structured = self.structure(position)
        return structured if self.constrain is None else self.constrain(structured)

    def present(self, particles: Float[Array, "n d"]) -> dict[str, Array]:
        """Particles by parameter name, in constrained space; leading axis n."""
        shown = _show_all(self, particles)
        if self.names is not None:
            return {name: shown[:, i] for i, name in enumerate(self.names)}
        leaves, _ = jax.tree_util.tree_flatten_with_path(shown)
        return {leaf_name(path): leaf for path, leaf in leaves}

    def __repr__(self) -> str:
        parts = [f"{self.dim} coordinates"]
        if self.num_rows:
            seen = "all at once" if self.batch_size is None else f"in batches of {self.batch_size}"
            parts.append(f"{self.num_rows} data rows {seen}")
        if self.anchor is not None:
            parts.append("control variates")
        return f"Target({', '.join(parts)})"


@compiled
def _show_all(target: Target, particles: Float[Array, "n d"]) -> PyTree:
    return jax.vmap(target._show)(particles)
