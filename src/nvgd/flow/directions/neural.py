"""NVGD: a network trained on the particles approximates the velocity of the flow."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from nvgd._support.errors import (
    InputError,
    check_count,
    check_fraction,
    check_kind,
    check_step_size,
    check_transformation,
    plain,
)
from nvgd._support.random_bits import FIRST_PROBE_STREAM, random_split, rows_of
from nvgd._support.trees import all_finite, where
from nvgd.flow.directions.base import (
    AbstractDirection,
    Capabilities,
    Fit,
    WitnessField,
    check_pairs,
)
from nvgd.flow.directions.standardised_witness import StandardisedWitness, split_trained
from nvgd.flow.stage import Diagnostics
from nvgd.stein.divergences import (
    DivergenceMethod,
    choose_divergence,
    values_and_divergences,
    values_and_tangents,
)
from nvgd.stein.regularisers import AbstractRegulariser, PowerNorm
from nvgd.stein.witnesses import MLP, Witness, cast, check_witness

# Numbers that are folded into an iteration's key, for new weights and for the masks of dropout.
WEIGHTS_STREAM, MASK_STREAM = 1, 2


class NeuralState(eqx.Module):
    """Arrays of the witness and of its optimiser, carried over to the next iteration."""

    arrays: PyTree
    optimizer: PyTree
    # Parts of the witness that are not arrays (activations, sizes): constant, hence static.
    skeleton: PyTree = eqx.field(static=True)

    @property
    def witness(self) -> Witness:
        """The trained network f_θ, callable at a position (d,)."""
        return eqx.combine(self.arrays, self.skeleton)


class _Training(NamedTuple):
    """State of the training loop; values are discrepancies on the validation particles."""

    parameters: Float[Array, " size"]
    optimizer: PyTree
    value: Float[Array, ""]
    best_parameters: Float[Array, " size"]
    best_value: Float[Array, ""]
    steps: Int[Array, ""]
    steps_since_best: Int[Array, ""]
    goes_on: Bool[Array, ""]


class Neural(AbstractDirection[NeuralState]):
    """One iteration of Algorithm 1 up to the move: split, train with early stopping, evaluate.

    The particles are split at random into a training and a validation part. Up to P steps of
    gradient ascent on the training part maximise

        RSD(θ) = mean f_θ·∇log p + div f_θ − ½|f_θ|²

    and stop once RSD on the validation part has not improved for `patience` steps. Then f_θ is
    evaluated at all particles. Weights and optimiser state are carried over to the next iteration.

    Arguments:
        witness: f_θ, an Equinox module from (d,) to (d,); the paper's `MLP` if omitted.
        width, depth: units per hidden layer and number of hidden layers of that `MLP`.
        learning_rate: η, the learning rate of Adam for θ, a number or schedule.
        witness_optimizer: an `optax` transformation for θ, in place of Adam.
        max_inner_steps: P, the largest number of ascent steps per iteration.
        patience: steps without improvement on the validation particles before training stops.
        train_fraction: share of the particles to train on; the rest are for validation.
        divergence: "auto" (exact where that is cheap: in low dimension, and for witnesses such as
            `MLP` whose trace has a closed form), "exact", "hutchinson", or an estimator such as
            the paper's `HutchinsonDivergence("gaussian")`.
        regulariser: replaces ½|f|² in the objective: `PowerNorm(p)` or `QuadraticForm(Q)`.
        restore_best: whether to end with the weights that were best on the validation particles;
            False keeps the last weights, as the published code does.
        standardise: whether f_θ sees (x − m)/s, with mean m and standard deviation s of the
            particles; its output stays in units of x.
        reinitialise: whether to draw the weights of the `MLP` anew in every iteration; the
            optimiser keeps its state.
        dropout: probability with which a coordinate of f_θ at a particle is dropped in an ascent
            step.

    Examples:
        >>> direction = nvgd.directions.Neural(width=64, learning_rate=1e-3)
        >>> coordinates = nvgd.coordinates.Identity()
        >>> flow = nvgd.ParticleFlow(coordinates, direction, nvgd.movers.Euler(0.05))
    """

    witness: Witness | None = None
    width: int = eqx.field(default=32, converter=plain)
    depth: int = eqx.field(default=2, converter=plain)
    learning_rate: float | optax.Schedule = eqx.field(default=1e-4, converter=plain)
    witness_optimizer: optax.GradientTransformation | None = None
    max_inner_steps: int = eqx.field(default=50, converter=plain)
    patience: int = eqx.field(default=15, converter=plain)
    train_fraction: float = eqx.field(default=2 / 3, converter=plain)
    divergence: DivergenceMethod = "auto"
    restore_best: bool = eqx.field(default=True, converter=plain)
    regulariser: AbstractRegulariser = PowerNorm(2.0)
    standardise: bool = eqx.field(default=False, converter=plain)
    reinitialise: bool = eqx.field(default=False, converter=plain)
    dropout: float = eqx.field(default=0.0, converter=plain)

    def __check_init__(self):
        check_step_size("learning_rate", self.learning_rate)
        check_count("width", self.width)
        check_count("depth", self.depth)
        if self.witness_optimizer is not None:
            check_transformation("witness_optimizer", self.witness_optimizer)
        check_count("max_inner_steps", self.max_inner_steps)
        check_count("patience", self.patience)
        check_fraction("train_fraction", self.train_fraction)
        choose_divergence(self.divergence, dim=1)
        check_kind("regulariser", self.regulariser, AbstractRegulariser, "PowerNorm(2.0)")
        if self.witness is not None and not callable(self.witness):
            raise InputError(f"witness must be an Equinox module, got {self.witness!r}.")
        if self.reinitialise and self.witness is not None:
            raise InputError(
                "reinitialise draws the weights of the paper's MLP, not those of a witness of your "
                "own: leave witness or reinitialise out."
            )
        if self.dropout != 0:
            check_fraction("dropout", self.dropout)

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> NeuralState:
        """A new witness, or the given one, in the precision of the particles."""
        check_pairs(self, particles)
        dim, dtype = particles.shape[1], particles.dtype
        self.regulariser.check_dim(dim)
        witness = self._new_network(dim, dtype, key) if self.witness is None else self.witness
        witness = cast(witness, dtype)
        check_witness(witness, dim, dtype)
        if self.standardise:
            ones = jnp.ones(dim, dtype)
            witness = StandardisedWitness(witness, 0 * ones, ones).at(particles)
        arrays, skeleton = eqx.partition(witness, eqx.is_array)
        trainable, _ = split_trained(arrays)
        return NeuralState(arrays, self._optimizer_state(trainable), skeleton)

    def _new_network(self, dim: int, dtype: jnp.dtype, key: PRNGKeyArray) -> MLP:
        return cast(MLP(dim, width=self.width, depth=self.depth, key=key), dtype)

    def _prepared(
        self, witness: Witness, particles: Float[Array, "n d"], key: PRNGKeyArray
    ) -> Witness:
        """The witness that training starts from, at these particles."""
        if self.reinitialise:
            weights_key = jax.random.fold_in(key, WEIGHTS_STREAM)
            network = self._new_network(particles.shape[1], particles.dtype, weights_key)
            is_wrapped = isinstance(witness, StandardisedWitness)
            witness = eqx.tree_at(lambda w: w.network, witness, network) if is_wrapped else network
        return witness.at(particles) if isinstance(witness, StandardisedWitness) else witness

    def fit(self, particles, scores, state, *, view, key):
        """Train the witness on these particles; the witness is the field."""
        del view
        state, diagnostics = self.train(particles, scores, state, key=key)
        field = WitnessField(state.witness)
        return Fit(field(particles, scores), field, state, diagnostics)

    @property
    def capabilities(self):
        """The witness is a field, defined at every position."""
        return Capabilities(has_field=True, trains=True)

    def train(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: NeuralState,
        *,
        key: PRNGKeyArray,
        alternatives: Float[Array, "k n d"] | None = None,
        most: int | None = None,
    ) -> tuple[NeuralState, Diagnostics]:
        """Take up to P ascent steps on θ, with the particles held fixed.

        Arguments:
            most: largest number of particles to use, drawn at random; all if omitted.
            alternatives: k further estimates of the scores; ascent step t uses estimate t mod k.
        """
        num_particles, dim = particles.shape
        num_train = round(self.train_fraction * num_particles)
        train_rows, validation_rows = random_split(key, num_particles, num_train, most)
        train, validation = (
            (rows_of(particles, rows), rows_of(scores, rows))
            for rows in (train_rows, validation_rows)
        )
        initial = self._prepared(state.witness, particles, key)
        # The trace in closed form is that of the witness without dropout.
        closed = None if self.dropout else initial
        estimator = choose_divergence(self.divergence, dim, closed)
        tree, buffers = split_trained(eqx.filter(initial, eqx.is_array))
        # As one vector, the optimiser takes a handful of operations instead of that many per layer.
        parameters, unravel = ravel_pytree(tree)

        def probes(part: tuple[Array, Array], stream: Array | int) -> Array | None:
            return estimator.probes(key, len(part[0]), dim, particles.dtype, stream)

        def discrepancy(
            parameters: Array,
            part: tuple[Array, Array],
            probes: Array | None,
            factors: Array | None = None,
        ) -> Float[Array, ""]:
            witness = eqx.combine(unravel(parameters), buffers, state.skeleton)
            part_particles, part_scores = part
            if factors is None or probes is None:
                values, divergences = values_and_divergences(
                    witness, part_particles, probes, estimator.weight
                )
            else:
                values, tangents = values_and_tangents(witness, part_particles, probes)
                values, kept_probes = factors * values, factors[:, None] * probes
                divergences = estimator.weight * jnp.sum(kept_probes * tangents, axis=(1, 2))
            gains = jnp.sum(values * part_scores, axis=-1) + divergences
            return jnp.mean(gains - self.regulariser(values))

        # The same probes for all evaluations of an iteration, so that only the weights differ.
        validation_probes = probes(validation, FIRST_PROBE_STREAM)

        def judge_and_ascend(loop: _Training) -> _Training:
            """Compare the weights with the best so far; if training continues, update them.

            Both are in one loop body, so that the program contains the witness's graph once.
            """
            value = discrepancy(loop.parameters, validation, validation_probes)
            is_better = value > loop.best_value
            since_best = jnp.where(is_better, 0, loop.steps_since_best + 1)
            goes_on = (loop.steps < self.max_inner_steps) & (since_best < self.patience)
            part = train
            if alternatives is not None:
                scores_now = alternatives[loop.steps % len(alternatives)]
                part = train[0], rows_of(scores_now, train_rows)
            step_probes = probes(part, FIRST_PROBE_STREAM + 1 + loop.steps)
            factors = None
            if self.dropout:
                mask_key = jax.random.fold_in(key, MASK_STREAM + loop.steps)
                is_kept = jax.random.bernoulli(mask_key, 1 - self.dropout, part[0].shape)
                factors = is_kept.astype(particles.dtype) / (1 - self.dropout)
            gradient = jax.grad(discrepancy)(loop.parameters, part, step_probes, factors)
            # Optax minimises.
            updates, optimizer = self._updates(-gradient, loop, unravel)
            return _Training(
                parameters=jnp.where(goes_on, loop.parameters + updates, loop.parameters),
                optimizer=where(goes_on, optimizer, loop.optimizer),
                value=value,
                best_parameters=jnp.where(is_better, loop.parameters, loop.best_parameters),
                best_value=jnp.where(is_better, value, loop.best_value),
                steps=loop.steps + goes_on,
                steps_since_best=since_best,
                goes_on=goes_on,
            )

        lowest = jnp.array(-jnp.inf, particles.dtype)
        start = _Training(
            parameters=parameters,
            optimizer=state.optimizer,
            value=lowest,
            best_parameters=parameters,
            best_value=lowest,
            steps=jnp.array(0),
            steps_since_best=jnp.array(0),
            goes_on=jnp.array(True),
        )
        loop = jax.lax.while_loop(lambda loop: loop.goes_on, judge_and_ascend, start)
        if self.restore_best:
            final, value = loop.best_parameters, loop.best_value
        else:
            final, value = loop.parameters, loop.value
        # `restore_best` drops weights that diverged; reset the optimiser state that they spoiled.
        optimizer = where(all_finite(loop.optimizer), loop.optimizer, self._optimizer_state(tree))
        arrays = eqx.combine(unravel(final), buffers)
        state = NeuralState(arrays, optimizer, state.skeleton)
        return state, {"stein_discrepancy": value, "inner_steps": loop.steps}

    # The optimiser is built while tracing instead of stored, so that equal settings share one
    # compiled program. Adam treats all parameters alike and gets one vector. A transformation
    # given by the user may treat layers differently and gets the tree.

    def _optimizer_state(self, tree: PyTree) -> PyTree:
        if self.witness_optimizer is not None:
            return self.witness_optimizer.init(tree)
        return optax.adam(self.learning_rate).init(ravel_pytree(tree)[0])

    def _updates(
        self, gradient: Array, loop: _Training, unravel: Callable[[Array], PyTree]
    ) -> tuple[PyTree, PyTree]:
        if self.witness_optimizer is None:
            adam = optax.adam(self.learning_rate)
            return adam.update(gradient, loop.optimizer, loop.parameters)
        updates, optimizer = self.witness_optimizer.update(
            unravel(gradient), loop.optimizer, unravel(loop.parameters)
        )
        return ravel_pytree(updates)[0], optimizer
