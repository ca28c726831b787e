"""Stand-ins for −∇log q where there are fewer particles than weights.

Each is a direction, or a mover for noise, that takes the place of the default's repulsion. All work
in the default's coordinates, in which every weight has unit spread over the particles.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from nvgd._support.random_bits import random_normals
from nvgd.directions import AbstractDirection, Capabilities, Fit
from nvgd.flow.directions.residual import EVIDENCE_MEMORY, clipped_normal
from nvgd.flow.movers.capped import LAST_SHARE_OF_ADAM, VELOCITY_MEMORY
from nvgd.movers import AbstractMover


def shrunk_precision_times(values: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Σ⁻¹(v − v̄) for each row v, with Σ the sample covariance, shrunk towards a multiple of I.

    The shrinkage is that of Chen, Wiesel, Eldar and Hero (2010), exact where rows are normal and
    Σ is a multiple of I. All matrices are n × n: Σ = ρμI + (1 − ρ)AᵀA with A = (v − v̄)/√n.
    """
    num, dim = values.shape
    rows = (values - jnp.mean(values, axis=0)) / jnp.sqrt(num)
    gram = rows @ rows.T
    trace, square = jnp.trace(gram), jnp.sum(gram**2)
    share = ((1 - 2 / dim) * square + trace**2) / (
        (num + 1 - 2 / dim) * (square - trace**2 / dim) + 1e-12
    )
    share = jnp.clip(share, 1e-3, 1.0)
    diagonal = share * trace / dim + 1e-12
    # Woodbury: (aI + bAᵀA)⁻¹Aᵀ = Aᵀ(aI + bAAᵀ)⁻¹.
    inner = diagonal * jnp.eye(num, dtype=values.dtype) + (1 - share) * gram
    return jnp.sqrt(num) * jnp.linalg.solve(inner, rows)


class LowRank(AbstractDirection[None]):
    """q is normal, with a covariance of low rank plus a multiple of the identity."""

    def init(self, particles, *, key):
        """No state."""
        del particles, key

    def fit(self, particles, scores, state, *, view, key):
        """∇log p + Σ⁻¹(u − ū)."""
        del state, view, key
        return Fit(scores + shrunk_precision_times(particles), None, None, {})

    @property
    def capabilities(self):
        """No field."""
        return Capabilities()


class FunctionSpace(AbstractDirection[None]):
    """Repulsion between the networks' outputs on the batch, pulled back to the weights.

        v = ∇log p − Jᵀ∇log q(f),   J = ∂f/∂u

    After D'Angelo and Fortuin (2021). The outputs f are standardised targets.

    Arguments:
        kernel: whether q is a kernel density estimate with the median distance as its bandwidth,
            instead of a normal density with shrunk covariance.
    """

    kernel: bool = False

    def init(self, particles, *, key):
        """No state."""
        del particles, key

    def fit(self, particles, scores, state, *, view, key):
        """∇log p, and the repulsion pulled back."""
        del state, key
        assert view is not None
        assert view.frame is not None
        target, frame = view.shown, view.frame
        model: Any = target.model
        apply = model.network.apply

        def outputs(expressed: Array) -> Array:
            position: Any = target.structure(frame.restore(expressed[None])[0])
            return jax.vmap(apply, in_axes=(None, 0))(position["network"], view.batch["x"]).ravel()

        values, pull = jax.vjp(jax.vmap(outputs), particles)
        push = _kernel_repulsion(values) if self.kernel else shrunk_precision_times(values)
        return Fit(scores + pull(push)[0], None, None, {})

    @property
    def capabilities(self):
        """Evaluates the network."""
        return Capabilities(evaluates_target=True)


def _kernel_repulsion(values: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """−∇log q at the rows, for a Gaussian kernel density estimate q of all rows."""
    squares = jnp.sum(values**2, axis=1)
    squares = jnp.maximum(squares[:, None] + squares - 2 * values @ values.T, 0.0)
    width = jnp.median(squares) / (2 * jnp.log(len(values) + 1.0)) + 1e-12
    weights = jax.nn.softmax(-0.5 * squares / width, axis=1)
    return (values - weights @ values) / width


class PastState(NamedTuple):
    """State of the inner direction, and snapshots of the particles in original coordinates."""

    direction: PyTree
    snapshots: Float[Array, "k n d"]
    step: Array


class WithPast(AbstractDirection[PastState]):
    """Fits a direction to the particles and to those of some earlier steps.

    Arguments:
        direction: the inner direction, which does not depend on the scores but by adding them.
        number: number of snapshots.
        every: steps between two of them.
    """

    direction: AbstractDirection
    number: int = 4
    every: int = 25

    def init(self, particles, *, key):
        """Snapshots of the first particles."""
        snapshots = jnp.broadcast_to(particles, (self.number, *particles.shape))
        return PastState(self.direction.init(particles, key=key), snapshots, jnp.array(0))

    def fit(self, particles, scores, state, *, view, key):
        """The inner direction's velocities at the present particles."""
        assert view is not None
        assert view.frame is not None
        num, dim = particles.shape
        past, _ = view.frame.express(state.snapshots.reshape(-1, dim), jnp.zeros((1, dim)))
        both = jnp.concatenate([particles, past])
        padded = jnp.concatenate([scores, jnp.zeros_like(past)])
        fit = self.direction.fit(both, padded, state.direction, view=view, key=key)
        now = view.frame.restore(particles)
        rolled = jnp.concatenate([state.snapshots[1:], now[None]])
        snapshots = jnp.where(state.step % self.every == 0, rolled, state.snapshots)
        return fit._replace(
            velocities=fit.velocities[:num], state=PastState(fit.state, snapshots, state.step + 1)
        )

    @property
    def capabilities(self):
        """Those of the inner direction."""
        return self.direction.capabilities


class SharedState(eqx.Module):
    """The network that all weights of a layer share, its optimiser, and the evidence for it."""

    arrays: PyTree
    optimizer: PyTree
    gain: Array
    size: Array
    # Parts of the network that are not arrays.
    skeleton: PyTree = eqx.field(static=True)


class SharedWitness(AbstractDirection[SharedState]):
    """A network from a weight, its score and statistics of its layer to the weight's velocity.

    Permutations of a layer's units leave it as it is. It is added to the default's repulsion ξ and
    trained on E[−r·ξ + div r − ½|r|²], weighed by the same objective at particles of the next step
    (`Residual`). Since the score is an input, its divergence takes a product with the Hessian of
    log p per step, which costs two further gradients.

    Arguments:
        layers: the layer of every coordinate.
    """

    layers: tuple[int, ...] = eqx.field(static=True)
    num_inner_steps: int = 5
    rate: float = 1e-3

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.adam(self.rate)

    def init(self, particles, *, key):
        """A network whose output is zero."""
        zero = jnp.zeros((), particles.dtype)
        network = eqx.nn.MLP(4 + max(self.layers) + 1, 1, 32, 2, jax.nn.silu, key=key)
        last = network.layers[-1]
        network = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias),
            network,
            jax.tree.map(jnp.zeros_like, (last.weight, last.bias)),
        )
        arrays, skeleton = eqx.partition(network, eqx.is_array)
        return SharedState(arrays, self._adam.init(arrays), zero, zero, skeleton)

    def _inputs(self, particles: Array, scores: Array) -> Array:
        """For every coordinate of every particle; scores in units of their layer's spread."""
        one_hot = jax.nn.one_hot(jnp.array(self.layers), max(self.layers) + 1)
        share = one_hot / jnp.sum(one_hot, axis=0)
        spread = jnp.sqrt(jnp.mean(jax.lax.stop_gradient(scores) ** 2, axis=0) @ share @ one_hot.T)
        scores = jnp.arctan(scores / (spread + 1e-6))
        mean, square = (values @ share @ one_hot.T for values in (particles, particles**2))
        shared = jnp.broadcast_to(one_hot, (*particles.shape, one_hot.shape[1]))
        each = jnp.stack([particles, scores, mean, square], axis=-1)
        return jnp.concatenate([each, shared], axis=-1)

    def fit(self, particles, scores, state, *, view, key):
        """∇log p + ξ + βr."""
        assert view is not None
        probes = jax.random.rademacher(key, particles.shape, particles.dtype)
        _, curved = jax.jvp(lambda u: view.evaluate(u).scores, (particles,), (probes,))
        repulsion = clipped_normal(particles)
        inputs, tangents = jax.jvp(self._inputs, (particles, scores), (probes, curved))
        arrays, static = state.arrays, state.skeleton

        def parts(arrays: PyTree) -> tuple[Array, Array, Array]:
            """r, E[−r·ξ + div r] and E|r|²."""
            network = jax.vmap(jax.vmap(eqx.combine(arrays, static)))
            values, moved = jax.jvp(network, (inputs,), (tangents,))
            values, moved = values[..., 0], moved[..., 0]
            gain = jnp.mean(jnp.sum(probes * moved - values * repulsion, axis=1))
            return values, gain, jnp.mean(jnp.sum(values**2, axis=1))

        def loss(arrays: PyTree) -> Array:
            _, gain, size = parts(arrays)
            return (0.5 * size - gain) / particles.shape[1]

        def train(_: Any, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            updates, optimizer = self._adam.update(jax.grad(loss)(carry[0]), carry[1])
            return eqx.apply_updates(carry[0], updates), optimizer

        values, gain, size = parts(arrays)
        keep = EVIDENCE_MEMORY
        gain = keep * state.gain + (1 - keep) * gain
        size = keep * state.size + (1 - keep) * size
        weight = jnp.clip(gain / (size + 1e-9), 0.0, 1.0)
        trained, optimizer = jax.lax.fori_loop(
            0, self.num_inner_steps, train, (arrays, state.optimizer)
        )
        state = SharedState(trained, optimizer, gain, size, static)
        return Fit(scores + repulsion + weight * values, None, state, {"network_weight": weight})

    @property
    def capabilities(self):
        """Evaluates the target, for products with its Hessian."""
        return Capabilities(trains=True, evaluates_target=True)

    def extra_gradients(self, num_particles):
        """Two per particle."""
        return 2 * num_particles


class PreconditionedState(NamedTuple):
    """Mean of v² per coordinate of each particle."""

    square: Float[Array, "n d"]


class PreconditionedLangevin(AbstractMover[PreconditionedState]):
    """Langevin steps with the step sizes of the default (Li, Chen, Carlson and Carin, 2016).

        u ← u + a v + √(2aτ) ξ,   a = c/(√s + c/ε),   s the mean of v² over ten steps

    Arguments:
        step_size, cap: ε and c, as those of `Capped`; they decay alike.
        horizon: number of steps of the run.
    """

    step_size: float = 0.1
    cap: float = 0.1
    horizon: Float[Array, ""] = eqx.field(default=jnp.inf, converter=jnp.asarray)

    takes_noise: ClassVar[bool] = True

    def init(self, particles):
        """Zero."""
        return PreconditionedState(jnp.zeros_like(particles))

    def for_run(self, num_steps):
        """Steps decay over the second half."""
        return eqx.tree_at(lambda mover: mover.horizon, self, jnp.asarray(float(num_steps)))

    def __call__(self, aim, state, *, step, key: PRNGKeyArray):
        """One step."""
        square = VELOCITY_MEMORY * state.square + (1 - VELOCITY_MEMORY) * aim.velocities**2
        unbiased = square / (1 - VELOCITY_MEMORY ** (step + 1.0))
        sizes = self.cap / (jnp.sqrt(unbiased) + self.cap / self.step_size)
        sizes *= LAST_SHARE_OF_ADAM ** jnp.clip(2 * step / self.horizon - 1, 0.0, 1.0)
        noise = random_normals(key, aim.particles.shape, aim.particles.dtype)
        push = jnp.sqrt(2 * aim.noise_share * sizes) * noise
        return aim.particles + sizes * aim.velocities + push, PreconditionedState(square)
