"""A subsample stands for all rows: derivatives, values, rare rows, sources of data, bad rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd._support.errors import DataOrderWarning
from nvgd.running import rounds
from nvgd.targets import corrected_rows, subsamples
from nvgd.targets.arrival import arrived
from nvgd.targets.density_checks import density_error, leaves_behind
from nvgd.targets.evaluation import evaluate
from nvgd.targets.other_modes import other_modes
from nvgd.targets.priority_sampling import calibrated
from nvgd.targets.row_passes import log_densities
from nvgd.targets.subsamples import can_subsample, subsample

DIM = 3


def log_prior(theta):
    return -0.5 * jnp.sum(theta**2)


def log_likelihood(theta, row):
    logit = row["x"] @ theta
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def make_rows(num_rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, DIM)).astype(np.float32)
    y = rng.random(num_rows) < 1 / (1 + np.exp(-x @ np.array([1.0, -1.0, 0.5])))
    return {"x": x, "y": y.astype(np.float32)}


def make_target(data, batch_size: int | None = 32, **options):
    return nvgd.Target(
        log_prior,
        dim=DIM,
        log_likelihood=log_likelihood,
        data=data,
        batch_size=batch_size,
        **options,
    )


def near_mode(num=100, spread=0.05):
    noise = spread * jax.random.normal(jax.random.key(1), (num, DIM))
    return jnp.array([1.0, -1.0, 0.5]) + noise


def test_gradient_and_hessian_at_the_anchor_are_those_of_all_rows():
    rows = make_rows(3000)
    target = make_target(rows)
    found = subsample(target, near_mode(), 0)
    assert len(found.rows.weight) < 3000
    whole = make_target(rows, None)
    stands_in = found.target(target)
    assert not stands_in.is_noisy
    for derivative in (jax.grad, jax.hessian):
        ours, theirs = (
            np.asarray(derivative(lambda x, of=of: of.log_density(x))(found.anchor))
            for of in (stands_in, whole)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


def test_error_is_measured_against_all_rows():
    rows = make_rows(3000)
    target, particles = make_target(rows), near_mode()
    exact = evaluate(make_target(rows, None), particles).log_densities
    found = subsample(target, particles, 0).target(target)
    ours = evaluate(found, particles).log_densities
    direct = float(np.std(np.asarray(ours - exact, np.float64)))
    measured = density_error(target, particles, ours)
    assert measured < 0.1
    assert measured == pytest.approx(direct, abs=0.02)
    # An error that is put in is found.
    assert density_error(target, particles, ours + particles[:, 0] * 100) == pytest.approx(
        5, rel=0.5
    )


def test_differences_of_log_densities_are_exact():
    rows, particles = make_rows(2500), near_mode(8, 1.0)
    exact = evaluate(make_target(rows, None), particles).log_densities
    found = log_densities(make_target(rows), particles)
    np.testing.assert_allclose(found, np.asarray(exact - exact[0]), atol=0.01)


def test_few_rows_are_all_taken():
    rows = make_rows(200)
    target, particles = make_target(rows, 64), near_mode(100, 2.0)
    found = subsample(target, particles, 0)
    assert len(found.rows.weight) == 200
    np.testing.assert_array_equal(found.rows.weight, 1.0)
    assert density_error(target, particles, evaluate(found.target(target), particles)[0]) < 1e-3


def test_rows_of_a_small_group_are_taken_although_they_are_rare():
    rng = np.random.default_rng(0)
    group = np.r_[np.zeros(20_000, int), np.ones(15, int)]
    rows = {"group": group, "y": rng.poisson(2.0, len(group)).astype(np.float32)}

    def likelihood(theta, row):
        log_rate = theta[row["group"]]
        return row["y"] * log_rate - jnp.exp(log_rate)

    target = nvgd.Target(log_prior, dim=2, log_likelihood=likelihood, data=rows, batch_size=256)
    noise = jax.random.normal(jax.random.key(0), (200, 2))
    particles = jnp.log(2.0) + noise * jnp.array([0.005, 0.2])
    found = subsample(target, particles, 0)
    kept = np.asarray(found.rows.row["group"])
    # All of them, where a batch would hold one in five.
    assert kept.sum() == 15
    assert np.all(np.asarray(found.rows.weight)[kept == 1] == 1.0)
    assert density_error(target, particles, evaluate(found.target(target), particles)[0]) < 0.05


def test_the_same_rows_from_memory_disk_and_stream(tmp_path):
    rows = make_rows(2048)
    path = tmp_path / "x.npy"
    np.save(path, rows["x"])
    mapped = {"x": np.load(path, mmap_mode="r"), "y": rows["y"]}
    batches = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 32], rows) for i in range(0, 2048, 32)]
    stream = nvgd.BatchStream(batches, 2048)
    particles = near_mode()
    targets = make_target(rows), make_target(mapped), make_target(stream, None)
    errors = []
    for target in targets:
        assert can_subsample(target)
        found = subsample(target, particles, 0).target(target)
        errors.append(density_error(target, particles, evaluate(found, particles)[0]))
    assert max(errors) < 0.1
    once = make_target(nvgd.BatchStream(iter(batches), 2048), None)
    assert not can_subsample(once)


def test_a_row_with_a_missing_value_is_named():
    rows = make_rows(3000)
    rows["x"][2345, 1] = np.nan
    with pytest.raises(nvgd.InputError, match="data row 2345"):
        subsample(make_target(rows), near_mode(), 0)


@pytest.mark.parametrize("is_once", [False, True])
def test_a_stream_that_is_sorted_is_noticed(is_once):
    rows = make_rows(2048)
    order = np.argsort(rows["y"], kind="stable")

    def read(rows):
        parts = range(0, 2048, 32)
        batches = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 32], rows) for i in parts]
        stream = nvgd.BatchStream(iter(batches) if is_once else batches, 2048)
        return list(stream.blocks(0))

    assert len(read(rows)) == 64
    with pytest.warns(DataOrderWarning, match="shuffle the rows"):
        read({name: value[order] for name, value in rows.items()})


def test_columns_without_variance_or_with_few_events_are_no_sign_of_an_order():
    rng = np.random.default_rng(0)
    rows = np.stack(
        [np.full(4096, 1e9 / 3), rng.random(4096) < 0.002, rng.standard_cauchy(4096)], axis=1
    )
    assert len(list(nvgd.BatchStream(np.split(rows, 128), 4096).blocks(0))) == 128


def test_a_likelihood_that_sums_over_all_rows_is_refused():
    rows = make_rows(2000)

    def summed(theta, row):
        others = jnp.sum(jax.vmap(log_likelihood, (None, 0))(theta, rows))
        return others + 0 * row["y"]

    target = nvgd.Target(log_prior, dim=DIM, log_likelihood=summed, data=rows, batch_size=32)
    with pytest.raises(nvgd.InputError, match="must be that of the one row"):
        subsample(target, near_mode(), 0)


def test_a_likelihood_that_ignores_its_row_is_refused_at_once():
    rows = make_rows(2000)

    def summed(theta, row):
        del row
        return jnp.sum(jax.vmap(log_likelihood, (None, 0))(theta, rows))

    with pytest.raises(nvgd.InputError, match="does not use it"):
        nvgd.Target(log_prior, dim=DIM, log_likelihood=summed, data=rows, batch_size=32)


def test_a_stream_with_another_number_of_rows_is_noticed():
    rows = make_rows(1024)
    batches = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 32], rows) for i in range(0, 1024, 32)]
    with pytest.warns(DataOrderWarning, match="1024 rows, but num_rows is 9999"):
        subsample(make_target(nvgd.BatchStream(batches, 9999), None), near_mode(), 0)


def test_the_error_is_judged_where_rows_were_not_chosen(monkeypatch):
    given = []

    class Spy(subsamples.Candidates):
        def add(self, rows, at_anchor, deciding, judging):
            given.append((deciding, judging))
            super().add(rows, at_anchor, deciding, judging)

    monkeypatch.setattr(subsamples, "Candidates", Spy)
    target, particles = make_target(make_rows(3000)), near_mode()
    found = subsample(target, particles, 0)
    for deciding, judging in given:
        assert deciding.shape == judging.shape
        assert not np.any(np.all(deciding[:, None] == judging[None], axis=2))
    values = evaluate(found.target(target), particles).log_densities
    assert float(found.error) == pytest.approx(density_error(target, particles, values), rel=0.7)


def test_cramped_particles_get_the_scatter_of_the_curvature():
    rows = make_rows(3000)
    target, particles = make_target(rows), near_mode()
    narrow = particles.mean(axis=0) + jnp.array([0.1, 1.0, 1.0]) * (particles - particles.mean(0))
    ahead = narrow + jnp.array([0.1, 0.0, 0.0])
    found = subsample(target, narrow, 0)
    assert not found.confines(narrow)
    assert found.confines(ahead)
    assert not subsample(target, narrow, 0, is_cramped=True).confines(ahead)


def test_particles_far_from_the_posterior_arrive_in_short_rounds():
    """An uncentred year: from N(0, I), the way is many standard deviations long."""
    rng = np.random.default_rng(0)
    year = rng.integers(1955, 2002, 2000)
    x = np.stack([np.ones(2000), year], axis=1).astype(np.float32)
    rows = {"x": x, "y": x @ np.array([300.0, -0.15]) + rng.normal(size=2000)}

    def likelihood(theta, row):
        z = (row["y"] - row["x"] @ theta[:2]) * jnp.exp(-theta[2])
        return -0.5 * z**2 - theta[2]

    target = nvgd.Target(
        lambda theta: -0.5 * (jnp.sum((theta[:2] / 300) ** 2) + theta[2] ** 2),
        dim=3,
        log_likelihood=likelihood,
        data={name: value.astype(np.float32) for name, value in rows.items()},
        batch_size=64,
    )
    posterior = nvgd.sample(target, num_particles=100, progress=False)
    assert posterior.diagnose().converged
    ends = [stage.until_step for stage in posterior.stages]
    assert len(ends) > 3
    assert set(np.diff(ends)[:-1]) == {200}
    fitted = np.linalg.lstsq(x.astype(float), rows["y"], rcond=None)[0]
    draws = posterior.flat_positions[:, :2]
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - fitted), 0.3 * draws.std(axis=0))


def test_the_bare_call_names_a_row_with_a_missing_value():
    rows = make_rows(3000)
    rows["x"][2345, 1] = np.nan
    with pytest.raises(nvgd.InputError, match="data row 2345"):
        nvgd.sample(make_target(rows), num_particles=100, progress=False)


def test_the_bare_call_in_minibatches_is_that_on_all_rows():
    rows = make_rows(1000)
    posterior = nvgd.sample(make_target(rows, 32), num_particles=100, progress=False)
    whole = nvgd.sample(make_target(rows, None), num_particles=100, progress=False)
    assert posterior.diagnose().converged
    assert 0 < posterior.density_error < 0.1
    ours, theirs = posterior.flat_positions, whole.flat_positions
    scale = theirs.std(axis=0)
    np.testing.assert_allclose(ours.mean(axis=0) / scale, theirs.mean(axis=0) / scale, atol=0.15)
    np.testing.assert_allclose(ours.std(axis=0) / scale, 1.0, atol=0.1)
    assert posterior.history["num_rows"].max() <= 16 * 32


def test_a_mode_that_was_left_behind_is_noticed():
    """Two modes by symmetry: a subsample with one anchor cannot represent the rows at both."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random(4000) < 0.5, -3.0, 3.0) + rng.normal(size=4000)

    def likelihood(theta, row):
        return jnp.logaddexp(-0.5 * (row - theta[0]) ** 2, -0.5 * (row - theta[1]) ** 2)

    target = nvgd.Target(
        lambda theta: -0.05 * jnp.sum(theta**2),
        dim=2,
        log_likelihood=likelihood,
        data=rows.astype(np.float32),
        batch_size=16,
    )
    noise = jax.random.normal(jax.random.key(0), (64, 2))
    one = jnp.array([-3.0, 3.0]) + 0.025 * noise
    assert subsample(target, one, 0).is_usable
    for share in (2, 4):
        both = jnp.where((jnp.arange(64) % share == 0)[:, None], one[:, ::-1], one)
        assert leaves_behind(target, both, one)
    # Calibrated, a subsample may stand for both modes; its error is known in any case.
    equal = jnp.concatenate([one, one[:, ::-1]])
    found = subsample(target, equal, 0)
    error = density_error(target, equal, evaluate(found.target(target), equal).log_densities)
    assert float(found.error) == pytest.approx(error, rel=0.7)
    # Particles that were only too far apart have left nothing behind.
    assert not leaves_behind(target, jnp.array([-3.0, 3.0]) + 0.5 * noise, one)
    # If a few particles are in the other mode, only all rows stand for themselves at both.
    few = jnp.where((jnp.arange(64) % 8 == 0)[:, None], one[:, ::-1], one)
    found = subsample(target, few, 0)
    assert len(found.rows.weight) == 4000
    values = evaluate(found.target(target), few).log_densities
    assert density_error(target, few, values) < 0.01
    # Climbs from the starts find the mode that no particle is in.
    others = other_modes(target, np.asarray(noise), one, 0)
    assert others is not None
    np.testing.assert_allclose(others.positions, [[3.0, -3.0]], atol=0.1)
    joined = others.joined(one)
    assert np.mean(joined[:, 0] > 0) == pytest.approx(others.shares[0], abs=0.05)
    assert other_modes(target, np.asarray(noise), jnp.asarray(joined), 0) is None


def test_a_run_without_a_usable_subsample_returns_to_its_flow(monkeypatch, tmp_path):
    monkeypatch.setattr(corrected_rows, "LARGEST_ERROR", 0.0)
    monkeypatch.setattr(subsamples, "MOST_ROWS_AT_ONCE", 0)
    monkeypatch.setattr(rounds, "MOST_RETURNS", 2)
    target = make_target(make_rows(3000), 16)
    flow = nvgd.NVGD(width=8, max_inner_steps=1)
    options = {"num_particles": 40, "progress": False}
    with pytest.warns(nvgd.NotConvergedWarning, match="no subsample of the 3000 rows"):
        posterior = nvgd.sample(target, flow, **options)
    assert posterior.chains is None
    assert [stage.kind for stage in posterior.stages] == 2 * ["flow", "corrections"] + ["flow"]
    assert posterior.num_steps == 2000
    assert np.abs(posterior.particles.mean(axis=0) - jnp.array([1.0, -1.0, 0.5])).max() < 0.3

    def interrupt(state):
        if state.step >= 1500:
            raise RuntimeError("interrupted")

    options |= {"checkpoint": tmp_path, "checkpoint_every": 50, "metrics_every": 50}
    with pytest.raises(RuntimeError, match="interrupted"):
        nvgd.sample(target, flow, callback=interrupt, **options)
    with pytest.warns(nvgd.NotConvergedWarning):
        resumed = nvgd.sample(target, flow, **options)
    np.testing.assert_array_equal(resumed.particles, posterior.particles)


def test_an_interrupted_run_on_a_subsample_goes_on_to_the_same_end(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(state):
        if state.step >= 650:
            raise Interrupted

    def run(directory=None, callback=None):
        return nvgd.sample(
            make_target(make_rows(600)),
            num_particles=100,
            num_steps=710,
            checkpoint=directory,
            checkpoint_every=10,
            callback=callback,
            metrics_every=10,
            progress=False,
        )

    with pytest.raises(Interrupted):
        run(tmp_path, interrupt)
    resumed, whole = run(tmp_path), run()
    np.testing.assert_array_equal(resumed.particles, whole.particles)
    for ours, theirs in zip(resumed.chains or (), whole.chains or (), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert resumed.density_error == whole.density_error


def test_remainders_that_rows_share_are_represented_without_error():
    """Rows that differ by a slope only: any of them stands for the shape of all."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(5000, DIM)).astype(np.float32)
    slopes -= slopes.mean(axis=0)

    def likelihood(theta, slope):
        return -1e-2 * jnp.sum(theta**4) + slope @ jnp.sin(theta)

    target = nvgd.Target(log_prior, dim=DIM, log_likelihood=likelihood, data=slopes, batch_size=64)
    particles = near_mode(100, 0.5)
    found = subsample(target, particles, 0)
    assert len(found.rows.weight) == 64
    assert float(found.error) < 0.01
    values = evaluate(found.target(target), particles).log_densities
    assert density_error(target, particles, values) < 0.01


def test_calibration_keeps_certain_rows_and_positive_weights():
    rng = np.random.default_rng(1)
    weights = np.r_[np.ones(5), rng.uniform(1, 20, 60)]
    values = rng.normal(size=(65, 4)) * [1, 10, 1e-3, 1] + 1
    totals = weights @ values + [5.0, 50.0, 1e-3, -5.0]
    found = calibrated(weights, values, totals)
    np.testing.assert_allclose(found @ values, totals, rtol=1e-6)
    np.testing.assert_array_equal(found[:5], 1.0)
    assert np.all(calibrated(weights, values, 100 * totals) > 0)
    np.testing.assert_array_equal(calibrated(np.ones(65), values, totals), 1.0)


def test_particles_beside_the_posterior_move_there_together():
    target = make_target(make_rows(3000))
    particles = near_mode()
    there = arrived(target, particles, 0)
    np.testing.assert_array_equal(there, particles)
    beside = particles + jnp.array([2.0, 0.0, -1.0])
    moved = arrived(target, beside, 0)
    shifts = np.asarray(moved - beside)
    np.testing.assert_allclose(shifts, np.broadcast_to(shifts[0], shifts.shape), atol=1e-5)
    offset = np.abs(np.asarray(moved).mean(axis=0) - np.asarray(particles).mean(axis=0))
    assert offset.max() < 0.2


def test_particles_of_a_wide_centred_hierarchy_do_not_climb_its_spike():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 100)
    rows = {"group": group, "y": (rng.normal(size=8)[group] + rng.normal(size=800))}

    def prior(theta):
        scale = theta[8]
        return -0.5 * jnp.sum((theta[:8] / jnp.exp(scale)) ** 2) - 8 * scale - 0.5 * scale**2

    def likelihood(theta, row):
        return -0.5 * (row["y"] - theta[row["group"]]) ** 2

    data = {"group": group, "y": rows["y"].astype(np.float32)}
    target = nvgd.Target(prior, dim=9, log_likelihood=likelihood, data=data, batch_size=32)
    means = np.array([rows["y"][group == k].mean() for k in range(8)])
    noise = np.asarray(jax.random.normal(jax.random.key(2), (100, 9)))
    particles = np.r_[means, 0.0] + noise * np.r_[np.full(8, 0.1), 0.3] + 3.0
    moved = np.asarray(arrived(target, jnp.asarray(particles, jnp.float32), 0)).mean(axis=0)
    assert np.abs(moved[:8] - means).max() < 0.5
    assert abs(moved[8]) < 1.5
