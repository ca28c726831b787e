"""The end of a run: the target is kept exactly, and a flow's faults are taken away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import nvgd
from nvgd import coordinates
from nvgd.densities import Banana, Funnel, Gaussian
from nvgd.exact import jumps
from nvgd.exact.corrections import ACCEPTANCE, MOST_KEPT, MOST_NUMBERS, Corrections
from nvgd.running.chunks import CAPACITY, Steps, advance
from nvgd.running.plan import plan

NORMAL = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
# About two dozen tests are made.
LEVEL = 1e-3 / 24


def corrected(target, particles, coordinates, num_steps, key, adapts=True):
    """The state after corrections, and the records of all steps."""
    memory = coordinates.init(particles)
    stage = Corrections.of(coordinates, memory, 0, num_steps if adapts else 0, particles)
    state = stage.init(target, particles, key=key)
    infos = []
    # As in a run: targets of one shape share their programs.
    for first in range(0, num_steps, CAPACITY):
        length = min(num_steps - first, CAPACITY)
        chunk = advance(Steps(stage, target, key), state, state, None, length)
        assert chunk.healthy
        state = chunk.state
        infos.append(chunk.infos)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *infos)


DENSITIES = {
    "normal": Gaussian([0.0, 0.0], [9.0, 1.0]),
    "funnel": Funnel(2),
    "banana": Banana(),
}


def standard_normal(name, draws):
    """Transform draws of a density to draws of N(0, I)."""
    first, second = np.asarray(draws, np.float64).T
    if name == "funnel":
        second = second / np.exp(first / 2)
    if name == "banana":
        second = second - 0.1 * (first**2 - 9.0)
    return np.stack([first / 3.0, second], axis=1)


@pytest.mark.parametrize(
    "frame", [coordinates.Preconditioned([9.0, 20.0]), coordinates.Adaptive()], ids=["given", "own"]
)
@pytest.mark.parametrize("name", DENSITIES)
def test_exact_draws_stay_exact_draws(name, frame):
    """Under steps of a common size, steps of local sizes and jumps."""
    density = DENSITIES[name]
    target = nvgd.Target(density.log_density, dim=2)
    draws = density.sample(jax.random.key(9), 20_000)
    # Two blocks of each kind of step, and four jumps.
    state, infos = corrected(target, draws, frame, 40, jax.random.key(1), adapts=False)
    found = standard_normal(name, state.particles)
    for values in found.T:
        assert kstest(values, "norm").pvalue > LEVEL
    squares = np.sum(found**2, axis=1)
    assert kstest(squares, "chi2", args=(2,)).pvalue > LEVEL
    assert len(np.unique(infos.diagnostics["jump_acceptance"])) == 5
    assert 0.1 < float(jnp.mean(infos.diagnostics["acceptance"])) < 0.99
    assert np.mean(np.any(np.asarray(state.particles != draws), axis=1)) > 0.9


def test_exact_draws_of_a_hierarchy_stay_exact_draws():
    """Scales of five coordinates that follow a sixth."""
    density = Funnel(6)
    target = nvgd.Target(density.log_density, dim=6)
    draws = density.sample(jax.random.key(3), 10_000)
    adaptive = coordinates.Adaptive()
    state, _ = corrected(target, draws, adaptive, 40, jax.random.key(1), adapts=False)
    first, rest = np.split(np.asarray(state.particles, np.float64), [1], axis=1)
    standard = np.concatenate([first / 3.0, rest / np.exp(first / 2)], axis=1)
    for values in standard.T:
        assert kstest(values, "norm").pvalue > LEVEL
    assert kstest(np.sum(standard**2, axis=1), "chi2", args=(6,)).pvalue > LEVEL


def test_frames_of_corrections_are_invertible_maps_with_their_scores():
    density = Funnel(4)
    target = nvgd.Target(density.log_density, dim=4)
    adaptive = coordinates.Adaptive()
    with jax.enable_x64(True):
        draws = density.sample(jax.random.key(3), 200).astype(jnp.float64)
        stage = Corrections.of(adaptive, adaptive.init(draws), 0, 10, draws)
        frame = stage.init(target, draws, key=jax.random.key(0)).frame
        near = draws[jnp.sum(draws**2, axis=1) < 30][:10]
        _, scores = target.log_densities_and_scores(near)
        expressed, their_scores = frame.express(near, scores)
        assert np.allclose(frame.restore(expressed), near, atol=1e-8)

        def restored(u):
            return frame.restore(u[None])[0]

        def log_density(u):
            return density.log_density(restored(u)) + frame.log_volumes(u[None])[0]

        assert np.allclose(jax.vmap(jax.grad(log_density))(expressed), their_scores, atol=1e-5)
        logs = jnp.linalg.slogdet(jax.vmap(jax.jacobian(restored))(expressed))[1]
        volumes = frame.log_volumes(expressed)
        assert np.allclose(logs - logs[0], volumes - volumes[0], atol=1e-6)


@pytest.mark.parametrize(
    "coordinates",
    [coordinates.Identity(), coordinates.Preconditioned([1.0, 4.0])],
    ids=["identity", "given"],
)
def test_coordinates_that_are_given_need_not_fit(coordinates):
    """Nobody is a stray in the wrong units."""
    scales = jnp.array([0.1, 30.0])
    target = nvgd.Target(lambda x: -0.5 * jnp.sum((x / scales - 3.0) ** 2), dim=2)
    draws = scales * (3.0 + jax.random.normal(jax.random.key(3), (1000, 2)))
    state, _ = corrected(target, draws, coordinates, 40, jax.random.key(1))
    for values in (np.asarray(state.particles) / scales - 3.0).T:
        assert kstest(values, "norm").pvalue > LEVEL


def test_what_a_flow_got_wrong_is_forgotten():
    target = nvgd.Target(Banana().log_density, dim=2)
    wrong = 0.3 * jax.random.normal(jax.random.key(0), (400, 2)) + 2.0
    state, infos = corrected(target, wrong, coordinates.Adaptive(), 300, jax.random.key(1))
    ends = np.asarray(state.particles)
    assert abs(np.std(ends[:, 0]) / 3.0 - 1) < 0.15
    assert abs(np.mean(ends[:, 0]) / 3.0) < 0.2
    assert abs(float(np.mean(infos.diagnostics["acceptance"][-100:])) - ACCEPTANCE) < 0.1


def test_strays_and_particles_without_a_density_are_brought_back():
    def log_density(x):
        return jnp.where(x[0] > -5.0, -0.5 * jnp.sum(jnp.minimum(x, 10.0) ** 2), -jnp.inf)

    target = nvgd.Target(log_density, dim=2)
    start = jax.random.normal(jax.random.key(0), (400, 2))
    start = start.at[:3, 1].set(1e4).at[3, 0].set(-6.0)
    state, _ = corrected(target, start, coordinates.Adaptive(), 60, jax.random.key(1))
    assert np.abs(np.asarray(state.particles)).max() < 6.0
    assert np.isfinite(jax.vmap(log_density)(state.particles)).all()


def test_who_is_stuck_in_a_spike_that_holds_no_mass_gets_away():
    place = jnp.full(5, 1.5)

    def log_density(x):
        spike = 20.0 - 0.5 * jnp.sum((x - place) ** 2) / 1e-8
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), spike)

    target = nvgd.Target(log_density, dim=5)
    start = jax.random.normal(jax.random.key(0), (100, 5)).at[:3].set(place)
    state, _ = corrected(target, start, coordinates.Adaptive(), 600, jax.random.key(1))
    assert jnp.min(jnp.linalg.norm(state.particles - place, axis=1)) > 0.01


def test_modes_of_unequal_weight_and_width_get_their_weights():
    modes = jnp.array([[-5.0, 0.0], [5.0, 1.0]])
    scales, shares = jnp.array([1.0, 0.3]), jnp.array([0.7, 0.3])

    def log_density(x):
        squares = jnp.sum((x - modes) ** 2, axis=1) / scales**2
        return jax.nn.logsumexp(jnp.log(shares) - 2 * jnp.log(scales) - 0.5 * squares)

    target = nvgd.Target(log_density, dim=2)
    # Half of the particles in each mode, and not of its width.
    start = modes[jnp.arange(400) % 2] + 0.6 * jax.random.normal(jax.random.key(0), (400, 2))
    state, infos = corrected(target, start, coordinates.Adaptive(), 600, jax.random.key(1))
    ends = np.asarray(state.particles)
    is_left = ends[:, 0] < 0
    # Three standard errors of 400 draws.
    assert abs(np.mean(is_left) - 0.7) < 3 * np.sqrt(0.7 * 0.3 / 400)
    assert np.allclose(ends[is_left].std(axis=0), 1.0, atol=0.15)
    assert np.allclose(ends[~is_left].std(axis=0), 0.3, atol=0.07)
    assert np.mean(infos.diagnostics["jump_acceptance"]) > 0.1


def test_particles_on_a_plateau_without_mass_are_replaced():
    def log_density(x):
        return jnp.maximum(-0.5 * jnp.sum(x**2), -40.0 - 1e-3 * jnp.sum(jnp.abs(x)))

    target = nvgd.Target(log_density, dim=2)
    start = jax.random.normal(jax.random.key(0), (400, 2)).at[:4, 1].set(20.0)
    state, _ = corrected(target, start, coordinates.Adaptive(), 200, jax.random.key(1))
    assert np.abs(np.asarray(state.particles)).max() < 8.0


def test_which_runs_have_corrections():
    flow, rows = nvgd.NVGD(), np.zeros((8, 1), np.float32)
    minibatched = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        log_likelihood=lambda x, row: -jnp.sum((x - row) ** 2),
        data=rows,
        batch_size=4,
        dim=2,
    )

    def ends(flow, target, num_steps):
        return [stage.until_step for stage in plan(flow, target, num_steps)]

    assert ends(flow, NORMAL, 499) == [499]
    assert ends(flow, NORMAL, 500) == [400, 500]
    assert ends(flow, NORMAL, 2000) == [400, 2000]
    assert ends(flow, NORMAL, 4000) == [800, 4000]
    # With minibatches, a short round comes first.
    assert ends(flow, minibatched, 2000) == [400, 600, 2000]
    assert ends(nvgd.NVGD.paper(), minibatched, 2000) == [2000]
    assert ends(nvgd.NVGD(corrected=False), NORMAL, 2000) == [2000]
    assert ends(nvgd.NVGD.paper(), NORMAL, 2000) == [2000]


def test_a_run_with_corrections_goes_on_after_an_interruption_and_tells_its_stages(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(state):
        if state.step >= 430:
            raise Interrupted

    flow = nvgd.NVGD(width=8, max_inner_steps=1)

    def run(**options):
        options = {"num_particles": 20, "num_steps": 520, "metrics_every": 10, **options}
        return nvgd.sample(NORMAL, flow, progress=False, **options)

    whole = run()
    assert whole.stages == (("flow", 200), ("corrections", 520))
    assert all(len(values) == 520 for values in whole.history.values())
    assert np.isnan(whole.history["acceptance"][:200]).all()
    assert np.isfinite(whole.history["acceptance"][200:]).all()
    assert np.isnan(whole.history["network_weight"][200:]).all()
    # The corrections evaluate the particles once before their first step.
    assert whole.history["num_gradients"][-1] == 20 * 521
    assert whole.history["num_gradients"][199] == 20 * 200
    with pytest.raises(Interrupted):
        run(callback=interrupt, checkpoint=tmp_path, checkpoint_every=25)
    again = run(checkpoint=tmp_path, checkpoint_every=25)
    assert np.array_equal(again.particles, whole.particles)
    assert np.array_equal(again.draws["x"], whole.draws["x"])
    assert np.array_equal(again.history["acceptance"], whole.history["acceptance"], equal_nan=True)


def test_a_run_that_is_made_longer_goes_on_with_its_chains(tmp_path):
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    # Too short for corrections; with some; with more, whichever particles were returned.
    for num_steps in (350, 560, 700):
        posterior = nvgd.sample(
            NORMAL,
            flow,
            num_particles=20,
            num_steps=num_steps,
            checkpoint=tmp_path,
            checkpoint_every=1000,
            progress=False,
        )
    assert posterior.state is not None
    chains = posterior.state
    assert np.allclose(chains.log_densities, -0.5 * np.sum(chains.particles**2, axis=1), atol=1e-5)
    acceptance = posterior.history["acceptance"]
    assert np.isnan(acceptance[:350]).all()
    assert np.nanmin(acceptance[360:]) > 0.3


def test_jumps_are_draws_of_their_density_and_cover_both_modes():
    particles = jax.random.normal(jax.random.key(2), (500, 1))
    particles = jnp.where(jnp.arange(500)[:, None] < 350, particles - 5.0, 0.3 * particles + 4.0)
    fitted = jumps.fit_jumps(particles, jax.random.key(3), 0)
    normals = jax.random.normal(jax.random.key(0), (20_000, 1))
    uniforms = jax.random.uniform(jax.random.key(1), (20_000, jumps.NUM_UNIFORMS))
    draws = np.asarray(fitted.draw(normals, uniforms))[:, 0]
    # The density integrates to the distribution of the draws; its tails are heavy.
    points = np.sinh(np.linspace(-12.0, 12.0, 40_001))
    logs = np.asarray(fitted.log_densities(jnp.asarray(points)[:, None]), np.float64)
    density = np.exp(logs - logs.max())
    cumulative = np.r_[0, np.cumsum(np.diff(points) * (density[1:] + density[:-1]) / 2)]
    cumulative /= cumulative[-1]
    assert kstest(draws, lambda x: np.interp(x, points, cumulative)).pvalue > LEVEL
    assert np.mean(np.abs(draws + 5.0) < 1.0) > 0.25
    assert np.mean(np.abs(draws - 4.0) < 0.3) > 0.1


def test_nothing_in_a_run_with_corrections_is_not_a_number_by_design():
    """`jax_debug_nans` can be used to find a fault of the user's own."""
    with jax.debug_nans(True):
        posterior = nvgd.sample(
            NORMAL, nvgd.NVGD(width=8), num_particles=20, num_steps=520, progress=False
        )
    assert posterior.completed
    assert posterior.stages[-1].kind == "corrections"


@pytest.mark.parametrize("share", [0.5, 0.125])
@pytest.mark.parametrize("num_steps", [1, 2, 7, 100, 601, 2400])
def test_draws_are_kept_evenly_over_the_part_that_does_not_adapt(num_steps, share):
    stage = Corrections.of(
        coordinates.Identity(), None, 400, num_steps, jnp.zeros((20, 3)), adapting=share
    )
    kept = stage.kept_steps(20, 3)
    num_adapting = int(share * num_steps)
    assert 1 <= len(kept) <= MOST_KEPT
    assert kept[-1] == stage.end == 400 + num_steps
    assert kept[0] > 400 + num_adapting
    assert not stage.is_adapting(kept[0])
    # No more room for another one.
    window = num_steps - num_adapting
    assert len(kept) > min(window, MOST_KEPT) / 2


def test_fewer_draws_are_kept_of_large_particles():
    stage = Corrections.of(coordinates.Identity(), None, 0, 1000, jnp.zeros((2, 3)))
    dim = MOST_NUMBERS // (2 * 100 * 10)
    assert len(stage.kept_steps(100, dim)) in range(5, 11)
    assert list(stage.kept_steps(100, 1000 * dim)) == [1000]


def test_a_run_that_is_made_much_longer_stays_in_its_last_stage(tmp_path):
    """The flow of a run of 2,600 steps has 520, but a run in its corrections does not go back."""
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    settings = {"num_particles": 20, "checkpoint": tmp_path, "progress": False}
    first = nvgd.sample(NORMAL, flow, num_steps=510, **settings)
    assert first.flow_state.step == 200
    assert callable(first.flow_state.direction.witness)
    longer = nvgd.sample(NORMAL, flow, num_steps=2600, **settings)
    # What had ended is the warm-up of a new round.
    assert longer.stages[:2] == (("flow", 200), ("corrections", 510))
    assert longer.history["num_gradients"][-1] == 20 * (2600 + len(longer.stages) - 1)
    assert np.isfinite(longer.history["acceptance"][400:]).all()


def test_corrections_keep_the_contract_of_a_stage():
    adaptive = coordinates.Adaptive()
    with jax.enable_x64(True):
        draws = jax.random.normal(jax.random.key(0), (30, 2), jnp.float64)
        target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
        stage = Corrections.of(adaptive, adaptive.init(draws), 0, 20, draws)
        before = stage.init(target, draws, key=jax.random.key(1))
        after, infos = jax.vmap(
            lambda key: jax.lax.scan(
                lambda state, _: stage.step(target, state, key=key), before, length=3
            )
        )(jax.random.split(jax.random.key(2), 2))
        assert jax.tree.structure(before) == jax.tree.structure(after)
        for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            assert isinstance(one, jax.Array)
            assert ((2, *one.shape), one.dtype) == (other.shape, other.dtype)
            assert not jnp.issubdtype(one.dtype, jnp.floating) or one.dtype == jnp.float64
        assert jnp.all(infos.num_gradients == 30)
        assert not jnp.allclose(after.particles[0], after.particles[1])
