"""Minibatches from arrays, memory maps and streams; control variates."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd.targets.climbs import climb
from nvgd.targets.data import BUFFER_BYTES, steps_at_a_time
from nvgd.targets.epochs import BLOCK_ROWS, MOST_LISTED_ROWS, BlockShuffle
from nvgd.targets.host_data import BatchStream

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(1500, 3)).astype(np.float32)
LABELS = (RNG.random(1500) < 1 / (1 + np.exp(-FEATURES @ [1.0, -1.0, 0.5]))).astype(np.float32)


def log_prior(position):
    return -0.5 * jnp.sum(position**2)


def log_likelihood(position, datum):
    features, label = datum
    logit = features @ position
    return label * logit - jnp.logaddexp(0.0, logit)


def logistic(data: Any = (FEATURES, LABELS), batch_size: int | None = 50, **options) -> Any:
    return nvgd.Target(
        log_prior,
        dim=3,
        log_likelihood=log_likelihood,
        data=data,
        batch_size=batch_size,
        **options,
    )


@pytest.fixture
def mapped(tmp_path):
    maps = []
    for name, array in (("features", FEATURES), ("labels", LABELS)):
        stored = np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", array.dtype, array.shape)
        stored[:] = array
        maps.append(stored)
    return tuple(maps)


def sample(target, **options):
    options = {"num_particles": 8, "num_steps": 70, "progress": False, **options}
    return nvgd.sample(target, nvgd.SGLD(1e-3), **options)


@pytest.mark.parametrize("size", [BLOCK_ROWS, 3 * BLOCK_ROWS + 7, 300 * BLOCK_ROWS])
def test_an_order_in_blocks_holds_every_row_at_most_once(size):
    orders = [BlockShuffle(size, [0, epoch]) for epoch in range(2)]
    number = size - size % BLOCK_ROWS
    first, second = (order[0:number] for order in orders)
    assert len(np.unique(first)) == number
    assert first.min() >= 0
    assert first.max() < size
    assert not np.array_equal(first, second)
    # The same, wherever one looks.
    assert np.array_equal(orders[0][number // 2 : number], first[number // 2 :])
    assert np.array_equal(BlockShuffle(size, [0, 0])[5:9], first[5:9])


def test_an_order_in_blocks_looks_random():
    size = 300 * BLOCK_ROWS
    order = BlockShuffle(size, [1, 0])[0:size]
    steps = np.diff(order)
    # In a random order neighbours are as far from each other as any two.
    assert abs(np.mean(np.abs(steps)) / size - 1 / 3) < 0.02
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.04
    # Batches of 100 rows hold rows of nearly as many blocks.
    blocks = order[: 100 * 100].reshape(100, 100) // BLOCK_ROWS
    assert np.mean([len(np.unique(batch)) for batch in blocks]) > 75


def test_a_file_larger_than_what_may_be_resident(tmp_path):
    """Four gigabytes, of which the steps touch half a gigabyte's pages."""
    path, num_rows = tmp_path / "rows", 2**30 // 10
    with path.open("wb") as file:
        file.truncate(4 * 10 * num_rows)
    rows = np.memmap(path, np.float32, "r", shape=(num_rows, 10))
    target = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=10,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=4096,
    )
    assert num_rows > MOST_LISTED_ROWS
    nvgd.sample(target, nvgd.SGLD(1e-9), num_particles=2, num_steps=2, progress=False)
    before = resident_megabytes()
    nvgd.sample(target, nvgd.SGLD(1e-9), num_particles=2, num_steps=30, progress=False)
    assert resident_megabytes() - before < 200


def resident_megabytes():
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("resident memory is read from /proc")
    return int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024


def test_reading_ahead_hands_out_what_was_asked_for(mapped):
    plain, ahead = (logistic(mapped).batches(0) for _ in range(2))
    ahead.read_ahead(3, 4, slice(None))
    for first, number in ((3, 2), (5, 3), (8, 1)):
        for one, other in zip(plain.take(first, number), ahead.take(first, number), strict=True):
            assert np.array_equal(one, other)
        ahead.read_ahead(first + number, 1, slice(None))
    # What turns out not to be next is read anew.
    assert np.array_equal(plain.take(20, 2)[0], ahead.take(20, 2)[0])
    assert np.array_equal(ahead.take(22, 1, slice(10, 20))[0], plain.take(22, 1)[0][:, 10:20])


@pytest.mark.xdist_group("data")
def test_memory_maps_give_the_same_run_as_arrays_and_are_not_copied(mapped):
    target = logistic(mapped)
    assert all(leaf is original for leaf, original in zip(target.data.arrays, mapped, strict=True))
    assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(target))
    on_disk, in_memory = sample(target), sample(logistic())
    assert np.array_equal(on_disk.particles, in_memory.particles)


@pytest.mark.xdist_group("data")
def test_streams_are_started_again_and_scaled_by_the_number_of_rows():
    order = np.random.default_rng(1).permutation(1500)
    batches = [(FEATURES[rows], LABELS[rows]) for rows in np.split(order, range(50, 1500, 50))]
    target = logistic(BatchStream([*batches, (FEATURES[:7], LABELS[:7])], 1500), None)
    assert (target.batch_size, target.num_rows) == (50, 1500)
    position = jnp.array([0.1, 0.2, 0.3])
    first = target.log_density(position, batches[0])
    rows = jax.vmap(log_likelihood, in_axes=(None, 0))(position, batches[0])
    assert np.isclose(first, log_prior(position) + 30 * rows.sum(), rtol=1e-5)
    taken = target.batches(0)
    epochs = [taken.take(first, 10) for first in range(0, 70, 10)]
    features = np.concatenate([epoch[0] for epoch in epochs])
    assert np.array_equal(features[:30], np.stack([batch[0] for batch in batches]))
    assert np.array_equal(features[30:60], features[:30])  # without the incomplete batch
    assert np.array_equal(target.batches(0).take(63, 2)[0], features[63:65])
    assert sample(target).completed


@pytest.mark.xdist_group("data")
def test_a_generator_serves_one_run(tmp_path):
    def generate():
        rng = np.random.default_rng(2)
        while True:
            rows = rng.integers(0, 1500, 50)
            yield FEATURES[rows], LABELS[rows]

    target = logistic(BatchStream(generate(), 1500), None)
    with pytest.raises(nvgd.InputError, match="needs passes over all data, which an iterator"):
        sample(target, num_steps="auto")
    posterior = sample(target)
    assert posterior.completed
    # What needs no pass over all data works; what does says why not.
    posterior.save(tmp_path / "run.npz")
    for known in (posterior, nvgd.load(tmp_path / "run.npz")):
        summary = known.summary()
        assert np.isfinite(summary.columns["mean"]).all()
        assert np.isnan(summary.columns["mc_error"]).all()
        assert "x[0]" in str(summary)
    assert "sample_stats" not in posterior.to_arviz().groups()
    with pytest.raises(nvgd.InputError, match="give BatchStream a list or a data loader"):
        posterior.diagnose()
    with pytest.raises(nvgd.InputError, match="used up: give it an iterable that can be started"):
        sample(target)


@pytest.mark.xdist_group("data")
def test_a_stream_with_no_more_batches_than_steps_is_enough():
    batches = [(FEATURES[i : i + 50], LABELS[i : i + 50]) for i in range(0, 1500, 50)]
    target = logistic(BatchStream(iter(batches), 1500), None)
    assert sample(target, num_steps=len(batches)).completed


def test_batches_read_ahead_stay_small():
    one = (np.zeros((1, 128, 784), np.float32),)
    assert steps_at_a_time(one, 512) * one[0].nbytes <= BUFFER_BYTES
    assert steps_at_a_time(np.zeros((1, 2**25), np.float32), 512) == 1
    assert steps_at_a_time(np.zeros((1, 128), np.int32), 512) == 512


@pytest.mark.xdist_group("data")
def test_a_pass_over_all_data_is_exact_for_every_source(mapped):
    particles = jax.random.normal(jax.random.key(0), (4, 3))
    expected = logistic(batch_size=None).log_densities_and_scores(particles)
    batches = [(FEATURES[i : i + 50], LABELS[i : i + 50]) for i in range(0, 1500, 50)]
    stream = BatchStream(batches, 1500)
    for target in (logistic(), logistic(mapped), logistic(stream, None), logistic(batch_size=None)):
        for ours, exact in zip(target.on_all_data(particles), expected, strict=True):
            assert np.allclose(ours, exact, rtol=1e-4, atol=1e-2)


def test_a_pass_over_all_data_holds_scores_near_the_largest_number():
    rows = np.ones(1000, np.float32)
    target = nvgd.Target(
        lambda x: 0.0 * x[0],
        dim=1,
        log_likelihood=lambda x, row: 1e35 * x[0] * row,
        data=rows,
        batch_size=10,
    )
    assert np.allclose(target.on_all_data(jnp.ones((1, 1))).scores, 1e38, rtol=1e-5)


@pytest.mark.xdist_group("data")
def test_the_mode_is_found():
    path = climb(logistic().on_all_data_at, jnp.zeros(3))
    _, score = logistic().on_all_data_at(jnp.asarray(path.end, jnp.float32))
    # At the start it is in the hundreds; a posterior standard deviation away, about fifteen.
    assert np.max(np.abs(score)) < 0.5
    assert path.converged


@pytest.mark.xdist_group("data")
def test_control_variates_leave_the_mean_and_take_the_noise():
    """At posterior distance from the mode, the score's noise falls by far more than tenfold."""
    plain, reduced = logistic(), logistic(gradient="control_variate")
    particles = reduced.anchor.position + 0.07 * jax.random.normal(jax.random.key(1), (6, 3))
    exact_values, exact = plain.on_all_data(particles)
    epoch = plain.batches(0).take(0, 30)

    def errors(target):
        evaluate = jax.jit(
            lambda rows: target.log_densities_and_scores(particles, target.batch(rows))
        )
        values, scores = zip(*(evaluate(rows) for rows in epoch), strict=True)
        assert np.allclose(np.mean(scores, axis=0), exact, atol=0.05)
        assert np.allclose(np.mean(values, axis=0), exact_values, rtol=1e-3)
        return np.var(np.asarray(scores) - exact)

    assert errors(reduced) < errors(plain) / 50


@pytest.mark.xdist_group("data")
@pytest.mark.parametrize(
    "flow", [nvgd.SGLD(3e-4), nvgd.NVGD.paper(3e-4, learning_rate=1e-2, width=8)]
)
def test_control_variates_steady_every_method(flow):
    """The ensemble's mean shakes with the batches, all particles seeing the same one."""
    step = eqx.filter_jit(flow.step)
    shaking = []
    for gradient in ("plain", "control_variate"):
        target = logistic(batch_size=10, gradient=gradient)
        centre = logistic(gradient="control_variate").anchor.position
        particles = centre + 0.07 * jax.random.normal(jax.random.key(0), (60, 3))
        state = flow.init(target, particles, key=jax.random.key(1))
        moved = [
            step(target, state, target.batch(rows), key=jax.random.key(2))[0].particles
            for rows in target.batches(0).take(0, 20)
        ]
        shaking.append(np.std(np.mean(moved, axis=1), axis=0).mean())
    assert shaking[1] < shaking[0] / 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: logistic(m, None), "data on disk can only be used in batches: give batch_size"),
        (lambda m: logistic(BatchStream([], 3), None), "at least one batch, got an empty one"),
        (
            lambda m: logistic(BatchStream([m], 1500), 20),
            "stream's first batch, 1500: leave it out",
        ),
        (lambda m: logistic(m, 2000), "batch_size must be at most .* 1500, got 2000"),
        (lambda m: logistic((m[0], m[1][:9])), "share a leading axis"),
        (lambda m: logistic(batch_size=None, gradient="control_variate"), "is for minibatches"),
        (lambda m: logistic(gradient="svrg"), "gradient must be one of 'plain', 'control_variate'"),
        (
            lambda m: logistic(m).log_density(jnp.zeros(3)),
            "can only be used in batches: pass batch=",
        ),
        (lambda m: nvgd.to_blackjax(logistic(m), nvgd.SGLD(1e-3)), "cannot read data from a disk"),
        (
            lambda m: logistic((FEATURES, np.full(1500, 3 * 10**9))),
            "whole numbers that int32 can hold",
        ),
        (lambda m: BatchStream([m], 0), "num_rows must be a whole number ≥ 1, got 0"),
    ],
)
def test_data_that_cannot_be_used(mapped, build, message):
    with pytest.raises(nvgd.InputError, match=message) as caught:
        build(mapped)
    assert "\n" not in str(caught.value)


def poisson(**options) -> Any:
    """A Poisson regression with rates from e⁻¹⁰ to e¹⁰, on which a climb in 32 bits ends early."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(5000, 20)).astype(np.float32)
    features[:, 0] = 1.0
    weights = rng.normal(size=20)
    counts = rng.poisson(np.exp(features @ weights)).astype(np.float32)
    return nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2) / 25,
        dim=20,
        log_likelihood=lambda x, row: row[1] * (row[0] @ x) - jnp.exp(row[0] @ x),
        data=(features, counts),
        batch_size=256,
        **options,
    )


def test_control_variates_are_held_against_a_true_mode_and_runs_start_there():
    target = poisson(gradient="control_variate")
    features, _ = target.data.rows
    mode = np.asarray(target.anchor.position, np.float64)
    rates = np.exp(np.asarray(features, np.float64) @ mode)
    information = (np.asarray(features, np.float64).T * rates) @ features + np.eye(20) / 25
    score = np.asarray(target.anchor.score, np.float64)
    assert np.sqrt(score @ np.linalg.solve(information, score) / 20) < 0.5
    posterior = nvgd.sample(target, num_particles=60, num_steps=200, progress=False)
    deviations = np.sqrt(np.diag(np.linalg.inv(information)))
    particles = np.asarray(posterior.particles, np.float64)
    assert np.all(np.abs(particles.mean(axis=0) - mode) < 1.5 * deviations)
    assert np.all(np.abs(particles.std(axis=0) / deviations - 1) < 0.5)


def test_a_start_at_which_control_variates_are_noise_is_refused():
    rows = RNG.normal(size=1000).astype(np.float32)
    target: Any = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2) / 100,
        dim=1,
        log_likelihood=lambda x, row: x[0] - jnp.exp(x[0] + row),
        data=rows,
        batch_size=20,
        gradient="control_variate",
    )
    near = np.asarray(target.anchor.position) + 0.1 * RNG.normal(size=(20, 1))
    assert sample(target, initial=near, num_particles=None).completed
    # Where its terms are tiny a batch has hardly any noise, and that at the mode only adds to it.
    with pytest.raises(nvgd.InputError, match=r"times as noisy as without: leave initial out"):
        sample(target, initial=near - 6.0, num_particles=None)


def test_batches_of_all_rows_are_not_refused_for_their_rounding():
    target = logistic(batch_size=1500, gradient="control_variate")
    near = np.asarray(target.anchor.position) + 0.05 * RNG.normal(size=(8, 3))
    assert sample(target, initial=near, num_particles=None, num_steps=5).completed
