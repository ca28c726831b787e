"""The end of a run: the target is kept exactly, and a flow's faults are taken away."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm
from scipy.stats import t as student_t

import nvgd
from nvgd import coordinates
from nvgd.densities import Banana, Funnel
from nvgd.exact import jumps
from nvgd.exact.corrections import Corrections, propose
from nvgd.exact.final_choice import flow_unless_wrong
from nvgd.running.plan import length_with_corrections, num_flow_steps, plan

NORMAL = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
# Five tests are made.
LEVEL = 1e-3 / 5


@eqx.filter_jit
def corrected(target, particles, coordinates, num_steps, key, first_step=0):
    """The state after corrections; those from `first_step` on adapt as late ones do."""
    stage = Corrections(coordinates, coordinates.init(particles), 0, first_step + num_steps)
    state = stage.init(target, particles, key=key)
    if first_step:
        # Exact draws of a funnel look like strays: leave them where they are.
        log_densities, scores = target.log_densities_and_scores(particles)
        state = state._replace(
            step=jnp.array(first_step),
            particles=particles,
            log_densities=log_densities,
            scores=scores,
        )
        is_jump, is_new_frame = jnp.array(False), jnp.array(True)
        state = state._replace(proposal=propose(state, is_jump, is_new_frame, key))
    return jax.lax.scan(
        lambda state, _: stage.step(target, state, key=key), state, length=num_steps
    )


@pytest.mark.parametrize("density", [Funnel(2), Banana()], ids=["funnel", "banana"])
def test_exact_draws_stay_exact_draws(density):
    target = nvgd.Target(density.log_density, dim=2)
    draws = density.sample(jax.random.key(9), 3000)
    # Past the first half nothing adapts.
    state, infos = corrected(
        target,
        draws,
        coordinates.Preconditioned([9.0, 20.0]),
        15,
        jax.random.key(1),
        first_step=20,
    )
    ends = np.asarray(state.particles)
    curve = np.exp(ends[:, 0] / 2) if isinstance(density, Funnel) else 1.0
    shift = 0.0 if isinstance(density, Funnel) else 0.1 * (ends[:, 0] ** 2 - 9.0)
    for values in (ends[:, 0] / 3.0, (ends[:, 1] - shift) / curve):
        assert kstest(values, "norm").pvalue > LEVEL
    # One of the steps is a jump, which has an acceptance of its own.
    assert len(np.unique(infos.diagnostics["jump_acceptance"])) == 2
    assert 0.1 < float(jnp.mean(infos.diagnostics["acceptance"])) < 0.97
    assert np.mean(np.any(ends != np.asarray(draws), axis=1)) > 0.8


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
    assert abs(float(np.mean(infos.diagnostics["acceptance"][-100:])) - 0.7) < 0.1


def test_strays_and_particles_without_a_density_are_brought_back():
    def log_density(x):
        return jnp.where(x[0] > -5.0, -0.5 * jnp.sum(jnp.minimum(x, 10.0) ** 2), -jnp.inf)

    target = nvgd.Target(log_density, dim=2)
    start = jax.random.normal(jax.random.key(0), (100, 2))
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


def test_jumps_give_modes_their_weights_and_empty_plateaus():
    def log_density(x):
        """Two modes, .7 : .3, and a plateau all around, too low to hold any mass."""
        modes = jnp.array([[-5.0, 0.0], [5.0, 0.0]])
        logs = jnp.log(jnp.array([0.7, 0.3])) - 0.5 * jnp.sum((x - modes) ** 2, axis=1)
        return jnp.maximum(jax.nn.logsumexp(logs), -40.0 - 1e-3 * jnp.sum(jnp.abs(x)))

    target = nvgd.Target(log_density, dim=2)
    start = jax.random.normal(jax.random.key(0), (400, 2))
    start = start.at[:200, 0].add(-5.0).at[200:, 0].add(5.0).at[:4, 1].set(20.0)
    state, infos = corrected(target, start, coordinates.Adaptive(), 400, jax.random.key(1))
    ends = np.asarray(state.particles)
    assert np.abs(ends).max() < 10.0
    assert abs(np.mean(ends[:, 0] < 0) - 0.7) < 0.08
    assert np.mean(infos.diagnostics["jump_acceptance"]) > 0.1


def even_sample(num_particles, seed):
    """More evenly spread than independent draws of a normal distribution."""
    quantiles = norm.ppf((np.arange(num_particles) + 0.5) / num_particles)
    return np.random.default_rng(seed).permutation(quantiles)[:, None]


def test_the_flow_is_kept_unless_the_corrections_found_a_fault():
    flowed = jnp.asarray(np.hstack([even_sample(200, 0), even_sample(200, 1)]))
    drawn = jax.random.normal(jax.random.key(2), (200, 2))
    snapshots = jax.random.normal(jax.random.key(3), (8, 200, 2))
    assert np.array_equal(flow_unless_wrong(flowed, drawn, snapshots), flowed)
    # Too wide, shifted.
    assert np.array_equal(flow_unless_wrong(1.5 * flowed, drawn, snapshots), drawn)
    assert np.array_equal(flow_unless_wrong(flowed + 0.5, drawn, snapshots), drawn)
    # One stray.
    strayed = flowed.at[0].set(50.0)
    assert np.array_equal(flow_unless_wrong(strayed, drawn, snapshots), drawn)
    # The corrections have not moved them far enough to tell.
    near = flowed + 0.1 * drawn
    assert np.array_equal(flow_unless_wrong(flowed, near, snapshots), near)


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
    assert ends(flow, minibatched, 2000) == [2000]
    assert ends(nvgd.NVGD(corrected=False), NORMAL, 2000) == [2000]
    assert ends(nvgd.NVGD.paper(), NORMAL, 2000) == [2000]
    for number in (200, 400, 450, 600):
        assert num_flow_steps(length_with_corrections(number)) == number


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
    assert whole.stages == (("flow", 400), ("corrections", 520))
    assert all(len(values) == 520 for values in whole.history.values())
    assert np.isnan(whole.history["acceptance"][:400]).all()
    assert np.isfinite(whole.history["acceptance"][400:]).all()
    # A jump every tenth step: its acceptance is kept until the next one.
    changes = 401 + np.flatnonzero(np.diff(whole.history["jump_acceptance"][400:]))
    assert changes.tolist() == list(range(409, 520, 10))
    assert np.isnan(whole.history["network_weight"][400:]).all()
    # The corrections evaluate the particles once before their first step.
    assert whole.history["num_gradients"][-1] == 20 * 521
    assert whole.history["num_gradients"][399] == 20 * 400
    with pytest.raises(Interrupted):
        run(callback=interrupt, checkpoint=tmp_path, checkpoint_every=25)
    again = run(checkpoint=tmp_path, checkpoint_every=25)
    assert np.array_equal(again.particles, whole.particles)
    assert np.array_equal(again.history["acceptance"], whole.history["acceptance"], equal_nan=True)


def test_a_run_that_is_made_longer_goes_on_with_its_chains(tmp_path):
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    # Too short for corrections; with some; with more, whichever particles were returned.
    for num_steps in (450, 560, 700):
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
    assert np.isnan(acceptance[:450]).all()
    assert np.nanmin(acceptance[450:]) > 0.3


def test_jumps_are_draws_of_their_density():
    normals = jax.random.normal(jax.random.key(0), (20_000, 1))
    uniforms = jax.random.uniform(jax.random.key(1), (20_000, jumps.JUMP_FREEDOM // 2))
    draws = np.asarray(jumps.draw(normals, uniforms))[:, 0]
    assert kstest(draws, "t", args=(jumps.JUMP_FREEDOM,)).pvalue > LEVEL
    points = jnp.linspace(-9.0, 9.0, 7)[:, None]
    logs = np.asarray(jumps.log_densities(points))
    expected = student_t.logpdf(points[:, 0], jumps.JUMP_FREEDOM)
    assert np.allclose(logs - logs[3], expected - expected[3], atol=1e-5)


def test_nothing_in_a_run_with_corrections_is_not_a_number_by_design():
    """`jax_debug_nans` can be used to find a fault of the user's own."""
    with jax.debug_nans(True):
        posterior = nvgd.sample(
            NORMAL, nvgd.NVGD(width=8), num_particles=20, num_steps=520, progress=False
        )
    assert posterior.completed
    assert posterior.stages[-1].kind == "corrections"


def test_the_choice_is_made_once_at_the_end_and_the_chains_go_on_from_where_they_were():
    draws = jax.random.normal(jax.random.key(0), (40, 2))
    adaptive = coordinates.Adaptive()
    stage = Corrections(adaptive, adaptive.init(draws), 7, 30)
    key = jax.random.key(1)
    state = stage.init(NORMAL, draws, key=key)
    assert state.step == 7
    step = eqx.filter_jit(lambda state: stage.step(NORMAL, state, key=key)[0])
    for _ in range(30):
        state = step(state)
    handed_over = stage.finish(NORMAL, state)
    is_flow, are_chains = (np.array_equal(handed_over, x) for x in (draws, state.particles))
    assert is_flow != are_chains
    assert state.step == 37


def test_a_run_that_is_made_much_longer_stays_in_its_last_stage(tmp_path):
    """The flow of a run of 2,600 steps has 520, but a run in its corrections does not go back."""
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    settings = {"num_particles": 20, "checkpoint": tmp_path, "progress": False}
    first = nvgd.sample(NORMAL, flow, num_steps=510, **settings)
    assert first.flow_state.step == 400
    assert callable(first.flow_state.direction.witness)
    longer = nvgd.sample(NORMAL, flow, num_steps=2600, **settings)
    assert longer.stages == (("flow", 400), ("corrections", 2600))
    assert longer.history["num_gradients"][-1] == 20 * 2601
    assert np.isfinite(longer.history["acceptance"][400:]).all()


def test_a_thinned_run_ends_with_what_the_run_hands_over():
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    settings = {"num_particles": 20, "num_steps": 520, "progress": False}
    seen = []
    thinned = nvgd.sample(NORMAL, flow, thin=130, callback=seen.append, **settings)
    assert thinned.num_kept == 4
    # Here the flow's particles, as in the last callback.
    assert seen[-1].step == 520
    assert np.array_equal(seen[-1].particles, thinned.flow_state.particles)
    assert np.array_equal(thinned.particles[-20:], seen[-1].particles)


def test_corrections_keep_the_contract_of_a_stage():
    adaptive = coordinates.Adaptive()
    with jax.enable_x64(True):
        draws = jax.random.normal(jax.random.key(0), (30, 2), jnp.float64)
        target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
        stage = Corrections(adaptive, adaptive.init(draws), 0, 20)
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
