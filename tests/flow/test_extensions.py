"""What each extension of a direction or coordinates promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers, stein
from nvgd.densities import Gaussian, GaussianMixture
from nvgd.flow.aim import TargetView

DENSITY = Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]])
TARGET = nvgd.Target(DENSITY.log_density, dim=2)
PARTICLES = jax.random.normal(jax.random.key(7), (24, 2))
NETWORK = directions.Neural(max_inner_steps=2)


def run(direction, mover=None, frames=None, target=TARGET, **options):
    mover, frames = mover or movers.Euler(0.05), frames or coordinates.Identity()
    flow = nvgd.ParticleFlow(frames, direction, mover)
    settings = {"initial": PARTICLES, "num_steps": 5, "progress": False, **options}
    return nvgd.sample(target, flow, **settings)


@pytest.mark.parametrize("inner", [NETWORK, directions.Kernel()], ids=["nvgd", "svgd"])
def test_the_langevin_fraction_joins_a_flow_and_ula(inner):
    ula = run(directions.Langevin()).particles
    noisy = run(directions.LangevinFraction(inner, 1.0)).particles
    assert np.allclose(noisy, ula, atol=1e-6)
    plain = run(inner).particles
    assert np.allclose(run(directions.LangevinFraction(inner, 0.0)).particles, plain, atol=1e-6)
    half = directions.LangevinFraction(inner, 0.5)
    assert directions.LangevinFraction(half, 0.5).capabilities.noise_share == 0.75


def test_cycles_end_at_the_target_itself():
    shares = jnp.linspace(0, 1, 9)
    one = jax.vmap(directions.Cycles(1, start=0.1, hold=0.5))(shares)
    assert np.allclose(one, [0.1, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1])
    two = jax.vmap(directions.Cycles(2, start=0.1, hold=0.5))(shares)
    assert np.allclose(two, [0.1, 0.5, 1, 1, 0.1, 0.5, 1, 1, 1])


def test_annealing_finds_the_weight_of_a_mode_where_the_plain_flow_stays():
    mixture = GaussianMixture([[-4.0, 0.0], [4.0, 0.0]], [1.0, 1.0], [0.3, 0.7])
    target = nvgd.Target(mixture.log_density, dim=2)
    start = jax.random.normal(jax.random.key(1), (100, 2)) - jnp.array([4.0, 0.0])

    def share(direction, mover):
        end = run(direction, mover, target=target, initial=start, num_steps=600)
        return float(jnp.mean(end.particles[:, 0] > 0))

    step, schedule = movers.Euler(0.2), directions.Cycles(power=3.0)
    inner = directions.LangevinFraction(directions.Kernel(), 0.9)
    assert share(inner, step) < 0.1
    annealed = share(directions.Annealed(inner, schedule), movers.Resampled(step, schedule))
    # Three times the standard deviation of the share among as many independent draws.
    assert abs(annealed - 0.7) < 0.14


@pytest.mark.parametrize(
    ("frames", "direction", "matrix"),
    [
        (coordinates.Whitened(), directions.Kernel(), [[2.0, -1.0], [5.0, 3.0]]),
        (coordinates.Curved(), directions.Kernel(), [[2.0, -1.0], [5.0, 3.0]]),
        # A network does not turn with its input: only scales and shears leave it as it was.
        (coordinates.Whitened(), NETWORK, [[0.1, 0.0], [-3.0, 7.0]]),
    ],
    ids=["whitened svgd", "curved svgd", "whitened nvgd"],
)
def test_a_linearly_transformed_target_gives_the_transformed_particles(frames, direction, matrix):
    matrix = jnp.asarray(matrix)
    inverse = jnp.linalg.inv(matrix)
    warped = nvgd.Target(lambda x: DENSITY.log_density(inverse @ x), dim=2)
    plain = run(direction, movers.Euler(0.3), frames)
    transformed = run(direction, movers.Euler(0.3), frames, warped, initial=PARTICLES @ matrix.T)
    assert np.allclose(transformed.particles, plain.particles @ matrix.T, atol=2e-3)
    assert not np.allclose(plain.particles, PARTICLES, atol=0.1)


def test_curvature_is_that_of_the_target_whoever_computes_it():
    rows = jax.random.normal(jax.random.key(2), (400, 2))
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=2,
        log_likelihood=lambda x, row: -0.5 * (row @ x) ** 2 - 0.5 * jnp.log(2 * jnp.pi),
        data=rows,
    )
    expected = np.eye(2) + rows.T @ rows
    at_zero = jnp.zeros(2)
    assert np.allclose(coordinates.hessian_information(target)(at_zero), expected, rtol=1e-4)
    # The mean square of a residual of one is what Gauss and Newton put for it.
    fisher = coordinates.fisher_information(target)(jnp.ones(2))
    gradients = (rows @ jnp.ones(2))[:, None] * rows
    assert np.allclose(fisher, np.eye(2) + gradients.T @ gradients, rtol=1e-4)

    _, scores = TARGET.log_densities_and_scores(PARTICLES)
    for information in (None, coordinates.hessian_information(TARGET)):
        frame = coordinates.Curved(information).fit(PARTICLES, scores, None)
        lower = frame.restore(jnp.eye(2)) - frame.restore(jnp.zeros((2, 2)))
        assert np.allclose(lower.T @ lower, DENSITY.covariance, atol=1e-4)


def test_projection_recovers_five_informative_directions_of_a_thousand():
    dim, rank = 1000, 5
    keys = jax.random.split(jax.random.key(0), 3)
    basis = jnp.linalg.qr(jax.random.normal(keys[0], (dim, rank)))[0]
    centre = jnp.array([2.0, -2.0, 1.0, -1.0, 0.5])
    noise = 0.5

    def log_density(x):  # N(0, I) prior, five noisy observations
        return -0.5 * x @ x - 0.5 * jnp.sum((basis.T @ x - centre) ** 2) / noise**2

    end = run(
        directions.Projected(directions.Neural(learning_rate=1e-3, max_inner_steps=10), rank),
        movers.Euler(0.1),
        coordinates.Diagonal(),
        nvgd.Target(log_density, dim=dim),
        initial=jax.random.normal(keys[1], (200, dim)),
        num_steps=200,
    )
    seen = np.asarray(end.particles @ basis)
    assert np.allclose(seen.mean(axis=0), centre / (1 + noise**2), atol=0.15)
    assert np.allclose(seen.std(axis=0), noise / np.sqrt(1 + noise**2), rtol=0.25)
    assert end.state is not None
    found = end.state.direction.basis
    assert np.linalg.svd(found.T @ basis)[1].min() > 0.99
    others = np.asarray(end.particles - end.particles @ basis @ basis.T)
    assert np.allclose(others.std(axis=0).mean(), 1.0, atol=0.05)


def test_regularisers_have_the_optimal_fields_they_claim():
    velocity = jnp.array([[0.3, -1.2]])
    size = float(jnp.linalg.norm(velocity))
    matrix = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    cases = [
        (stein.PowerNorm(2.0), velocity),
        (stein.PowerNorm(3.0), velocity * size ** (1.5 - 2)),
        (stein.PowerNorm(1.5), velocity * size ** (3 - 2)),
        (stein.QuadraticForm(matrix), jnp.linalg.solve(matrix, velocity.T).T),
    ]
    for regulariser, optimum in cases:
        slope = jax.grad(lambda f, g=regulariser: jnp.sum(f * velocity) - g(f)[0])(optimum)
        assert np.allclose(slope, 0.0, atol=1e-5)
        assert np.all(np.isfinite(jax.grad(lambda f, g=regulariser: g(f)[0])(0 * optimum)))
    assert np.allclose(stein.QuadraticForm([1.0, 1.0])(velocity), stein.PowerNorm(2)(velocity))


def test_the_past_does_not_push_where_it_is_distributed_as_the_target():
    wrapped = directions.SelfRepulsive(directions.Langevin(), memory=4000, every=1)
    past = DENSITY.sample(jax.random.key(3), 4000)[None]
    _, scores = TARGET.log_densities_and_scores(past[0])
    state = wrapped.init(jnp.ones((1, 2)), key=jax.random.key(0))
    state = state._replace(positions=past, scores=scores[None], step=jnp.array(4000))
    here, key = jnp.ones((1, 2)), jax.random.key(0)
    fit = wrapped.fit(here, 0 * here, state, view=None, key=key)
    assert np.allclose(fit.velocities / wrapped.strength, 0.0, atol=0.05)
    # From a past in one place it is pushed away from there.
    stuck = state._replace(positions=jnp.zeros_like(past), scores=jnp.zeros_like(scores[None]))
    pushed = wrapped.fit(0.1 * here, 0 * here, stuck, view=None, key=key).velocities
    assert np.all(pushed > 0.5)
    assert fit.state.positions.shape == past.shape


ROWS = jax.random.normal(jax.random.key(5), (48, 2)) + 1.0


def batched(batch_size=8, scale=1.0):
    return nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=2,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2) * scale,
        data=ROWS,
        batch_size=batch_size,
    )


def test_the_discrepancy_of_a_batch_is_an_unbiased_estimate():
    target = batched()
    witness = stein.MLP(2, key=jax.random.key(0))

    def discrepancy(batch):
        _, scores = target.log_densities_and_scores(PARTICLES, batch)
        return stein.regularised_stein_discrepancy(witness, PARTICLES, scores)

    batches = [discrepancy(ROWS[first : first + 8]) for first in range(0, 48, 8)]
    assert np.isclose(np.mean(batches), discrepancy(None), rtol=1e-4)
    assert np.std(batches) > 0.01


@pytest.mark.parametrize("independent", [False, True])
def test_refreshed_batches_give_unbiased_scores(independent):
    target = batched()
    frame = coordinates.Identity().fit(PARTICLES, PARTICLES, None)
    view = TargetView.of(target, None, frame)
    keys = jax.random.split(jax.random.key(0), 2000)
    scores = jax.vmap(lambda k: view.refreshed(PARTICLES, independent=independent, key=k))(keys)
    _, exact = target.log_densities_and_scores(PARTICLES)
    error = jnp.std(scores, axis=0) / np.sqrt(len(keys))
    assert np.all(np.abs(jnp.mean(scores, axis=0) - exact) < 4.5 * error)
    offsets = scores[0] - exact
    assert (np.ptp(offsets, axis=0).min() > 1.0) == independent


def test_stochastic_stein_training_runs_and_counts_its_gradients():
    flow = nvgd.ParticleFlow(
        coordinates.Identity(),
        directions.Stochastic(NETWORK, num_batches=2),
        movers.Euler(0.01),
    )
    target = batched()
    state = flow.init(target, PARTICLES, key=jax.random.key(0))
    _, info = eqx.filter_jit(flow.step)(target, state, ROWS[:8], key=jax.random.key(0))
    assert info.num_gradients == 3 * len(PARTICLES)
    assert jnp.isfinite(info.diagnostics["stein_discrepancy"])


def test_extensions_work_together_on_minibatches():
    direction = directions.SelfRepulsive(
        directions.LangevinFraction(directions.Stochastic(NETWORK, num_batches=2), 0.3),
        memory=2,
        every=1,
    )
    frames = coordinates.Preconditioned([0.1, 0.2])
    posterior = run(direction, movers.NoiseAware(movers.Euler(0.01)), frames, batched())
    assert posterior.completed
    assert posterior.history["num_gradients"][-1] == 5 * len(PARTICLES) * 4
    annealed = run(directions.Annealed(direction), movers.Euler(0.01), frames, batched())
    assert annealed.completed
    assert annealed.history["inverse_temperature"][0] == pytest.approx(0.05)
    assert annealed.history["num_gradients"][-1] == 5 * len(PARTICLES) * 3
