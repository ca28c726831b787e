"""NVGD: a network trained on the particles themselves stands in for the flow."""

from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from nvgd.directions.base import AbstractDirection, Diagnostics, Fit, WitnessField
from nvgd.errors import (
    InputError,
    check_count,
    check_fraction,
    check_kind,
    check_step_size,
    check_transformation,
    plain,
)
from nvgd.regularisers import AbstractRegulariser, PowerNorm
from nvgd.stein import (
    AbstractDivergence,
    choose_divergence,
    values_and_divergences,
)
from nvgd.trees import all_finite, where
from nvgd.witnesses import MLP, Witness, cast, check_witness


class NeuralState(eqx.Module):
    """The witness's arrays and its optimiser's, both carried on to the next iteration."""

    arrays: PyTree
    optimizer: PyTree
    # What of the witness is not an array (activations, sizes): constant, so kept out of the leaves.
    skeleton: PyTree = eqx.field(static=True)

    @property
    def witness(self) -> Witness:
        """The trained network f_θ, callable at a position (d,)."""
        return eqx.combine(self.arrays, self.skeleton)


class _Training(NamedTuple):
    """What the training loop carries; values are discrepancies on the validation particles."""

    parameters: PyTree
    optimizer: PyTree
    value: Float[Array, ""]
    best_parameters: PyTree
    best_value: Float[Array, ""]
    steps: Int[Array, ""]
    steps_since_best: Int[Array, ""]


class NeuralDirection(AbstractDirection[NeuralState]):
    """One iteration of Algorithm 1 up to the move: split, train with early stopping, evaluate.

    The particles are split at random; up to P steps of gradient ascent on the training part raise

        RSD(θ) = mean f_θ·∇log p + div f_θ − ½|f_θ|²

    and stop once the validation part has not improved for `patience` steps. Then f_θ is evaluated
    at all particles. Weights and optimiser are carried over to the next iteration.

    Arguments:
        witness: f_θ, an Equinox module from (d,) to (d,); the paper's `MLP` if omitted, of
        width, depth: units a hidden layer, and hidden layers.
        learning_rate: η of Adam on θ, a number or schedule.
        witness_optimizer: any `optax` transformation on θ, in place of Adam and its rate.
        max_inner_steps: P.
        patience: steps without improvement on the validation particles before training stops.
        train_fraction: share of the particles to train on; the rest validate.
        divergence: "auto" (exact in low dimension), "exact", "hutchinson", or an estimator such
            as `HutchinsonDivergence("gaussian")`, which is the paper's.
        regulariser: what stands for ½|f|² in the objective: `PowerNorm(p)`, `QuadraticForm(Q)`.
        restore_best: end with the weights that were best on the validation particles; False keeps
            the last ones, as the published code does.
    """

    witness: Witness | None = None
    width: int = eqx.field(default=32, converter=plain)
    depth: int = eqx.field(default=2, converter=plain)
    learning_rate: float | optax.Schedule = eqx.field(default=1e-4, converter=plain)
    witness_optimizer: optax.GradientTransformation | None = None
    max_inner_steps: int = eqx.field(default=50, converter=plain)
    patience: int = eqx.field(default=15, converter=plain)
    train_fraction: float = eqx.field(default=2 / 3, converter=plain)
    divergence: AbstractDivergence | Literal["auto", "exact", "hutchinson"] = "auto"
    restore_best: bool = eqx.field(default=True, converter=plain)
    regulariser: AbstractRegulariser = PowerNorm(2.0)

    min_particles: ClassVar[int] = 2

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

    def init(self, particles: Float[Array, "n d"], *, key: PRNGKeyArray) -> NeuralState:
        """A fresh witness, or the one that was given, in the particles' precision."""
        self.check_particles(particles)
        dim, dtype = particles.shape[1], particles.dtype
        self.regulariser.check_dim(dim)
        witness = self.witness
        if witness is None:
            witness = MLP(dim, width=self.width, depth=self.depth, key=key)
        witness = cast(witness, dtype)
        check_witness(witness, dim, dtype)
        arrays, skeleton = eqx.partition(witness, eqx.is_array)
        trainable = eqx.filter(arrays, eqx.is_inexact_array)
        return NeuralState(arrays, self._transformation().init(trainable), skeleton)

    def __call__(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: NeuralState,
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "n d"], NeuralState, Diagnostics]:
        """Train the witness on these particles and evaluate it at them."""
        state, diagnostics = self.train(particles, scores, state, key=key)
        return jax.vmap(state.witness)(particles), state, diagnostics

    def fit(self, particles, scores, state, *, view, key):
        """The trained witness is the field."""
        del view
        velocities, state, diagnostics = self(particles, scores, state, key=key)
        return Fit(velocities, WitnessField(state.witness), state, diagnostics)

    @property
    def has_field(self):
        """The witness."""
        return True

    def train(
        self,
        particles: Float[Array, "n d"],
        scores: Float[Array, "n d"],
        state: NeuralState,
        *,
        key: PRNGKeyArray,
        alternatives: Float[Array, "k n d"] | None = None,
    ) -> tuple[NeuralState, Diagnostics]:
        """Up to P ascent steps on θ with the particles held fixed.

        `alternatives` are other estimates of the scores, which the ascent steps use in turn.
        """
        num_particles, dim = particles.shape
        split_key, validation_key, training_key = jax.random.split(key, 3)
        estimator = choose_divergence(self.divergence, dim)
        transformation = self._transformation()

        order = jax.random.permutation(split_key, num_particles)
        num_train = min(max(round(self.train_fraction * num_particles), 1), num_particles - 1)
        train, validation = (
            (particles[rows], scores[rows]) for rows in (order[:num_train], order[num_train:])
        )
        # One set of probes for all evaluations of an iteration: they compare weights, not luck.
        validation_probes = estimator.probes(
            validation_key, num_particles - num_train, dim, particles.dtype
        )
        parameters, buffers = eqx.partition(state.arrays, eqx.is_inexact_array)

        def discrepancy(
            parameters: PyTree, part: tuple[Array, Array], probes: Array
        ) -> Float[Array, ""]:
            witness = eqx.combine(parameters, buffers, state.skeleton)
            part_particles, part_scores = part
            values, divergences = values_and_divergences(
                witness, part_particles, probes, estimator.weight
            )
            gains = jnp.sum(values * part_scores, axis=-1) + divergences
            return jnp.mean(gains - self.regulariser(values))

        def judge(loop: _Training) -> _Training:
            """Compare the present weights with the best so far on the validation particles."""
            value = discrepancy(loop.parameters, validation, validation_probes)
            is_better = value > loop.best_value
            return loop._replace(
                value=value,
                best_parameters=where(is_better, loop.parameters, loop.best_parameters),
                best_value=jnp.where(is_better, value, loop.best_value),
                steps_since_best=jnp.where(is_better, 0, loop.steps_since_best + 1),
            )

        def ascend(loop: _Training) -> _Training:
            probes = estimator.probes(
                jax.random.fold_in(training_key, loop.steps), num_train, dim, particles.dtype
            )
            part = train
            if alternatives is not None:
                rows = order[:num_train]
                part = particles[rows], alternatives[loop.steps % len(alternatives)][rows]
            gradients = jax.grad(discrepancy)(loop.parameters, part, probes)
            # Optax descends.
            gradients = jax.tree.map(jnp.negative, gradients)
            updates, optimizer = transformation.update(gradients, loop.optimizer, loop.parameters)
            parameters = optax.apply_updates(loop.parameters, updates)
            return loop._replace(parameters=parameters, optimizer=optimizer, steps=loop.steps + 1)

        def goes_on(loop: _Training) -> Array:
            return (loop.steps < self.max_inner_steps) & (loop.steps_since_best < self.patience)

        lowest = jnp.array(-jnp.inf, particles.dtype)
        start = _Training(
            parameters=parameters,
            optimizer=state.optimizer,
            value=lowest,
            best_parameters=parameters,
            best_value=lowest,
            steps=jnp.array(0),
            steps_since_best=jnp.array(0),
        )
        loop = jax.lax.while_loop(goes_on, lambda loop: judge(ascend(loop)), judge(start))
        if self.restore_best:
            final, value = loop.best_parameters, loop.best_value
        else:
            final, value = loop.parameters, loop.value
        # Weights that ran away are dropped by restore_best; the moments they left must be too.
        optimizer = where(
            all_finite(loop.optimizer), loop.optimizer, transformation.init(parameters)
        )
        state = NeuralState(eqx.combine(final, buffers), optimizer, state.skeleton)
        return state, {"stein_discrepancy": value, "inner_steps": loop.steps}

    def _transformation(self) -> optax.GradientTransformation:
        # Built when traced, not stored: equal settings then share one compiled program.
        return self.witness_optimizer or optax.adam(self.learning_rate)
