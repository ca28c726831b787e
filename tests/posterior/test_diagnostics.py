"""Verdicts: right on exact draws and on draws that were spoilt, and what they rest on."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers
from nvgd.densities import Banana, Funnel, Gaussian, GaussianMixture
from nvgd.posterior.chains import Chains, autocorrelation_times
from nvgd.posterior.diagnostics.agreement import r_hat
from nvgd.posterior.diagnostics.chain_checks import RISE, chain_checks
from nvgd.posterior.diagnostics.cut_off import cut_off_tail
from nvgd.posterior.diagnostics.held_out import held_out_discrepancy
from nvgd.posterior.diagnostics.measures import (
    kernel_test,
    mean_scores,
    num_distinct,
    overall_ratio,
    principal_ratios,
    standardise,
    variance_ratios,
)
from nvgd.posterior.diagnostics.mixing import LARGEST_BULK, measure_mixing
from nvgd.posterior.diagnostics.trend import trend
from nvgd.posterior.diagnostics.verdict import OTHER_MODE, UNCORRECTED
from nvgd.running.starts import AbstractStart

TEN = Gaussian(np.arange(10.0), np.geomspace(0.01, 100.0, 10))
UNIT = nvgd.Target(Gaussian([1.0, -1.0], [1.0, 1.0]).log_density, dim=2)

pytestmark = pytest.mark.xdist_group("diagnostics")


def given(density, particles, history=None, **facts):
    target = nvgd.Target(density.log_density, dim=density.dim)
    particles = jnp.asarray(particles, jnp.float32)
    known = history or {}, {}, "completed", 1, "given", 100
    return nvgd.Posterior(particles, *known, target, **facts)


def draws(density, num, seed=0):
    return np.array(density.sample(jax.random.key(seed), num), np.float64)


def ratio(factor, density, num=100):
    x = draws(density, num)
    return given(density, x.mean(axis=0) + factor * (x - x.mean(axis=0)))


def test_exact_draws_are_converged():
    for density in (Gaussian([0.0], [1.0]), TEN, Banana(), Funnel(2)):
        diagnosis = given(density, draws(density, 100)).diagnose()
        assert diagnosis.converged, (density, diagnosis)
        assert not any(check.is_alarm for check in diagnosis.checks.values())
        assert "would not have been noticed" in diagnosis.advice


@pytest.mark.parametrize(
    ("note", "verdict"),
    [
        (f"climbs {OTHER_MODE}", "multimodal disagreement"),
        (f"the particles are those of the flow, {UNCORRECTED}", "not yet"),
        ("the flow stopped; the corrections began at step 7", "converged"),
    ],
)
def test_a_run_that_missed_a_mode_or_its_corrections_has_not_converged(note, verdict):
    posterior = given(TEN, draws(TEN, 100), notes=(note,))
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == verdict
    assert any(note in text for text in (diagnosis.reason, *diagnosis.cautions))


@pytest.mark.parametrize(
    ("posterior", "verdict", "reason"),
    [
        (ratio(0.7, TEN), "variance too small", r"is 0\.4\d ± .* where 1 belongs"),
        (ratio(1.4, TEN), "diverged", "spread wider than the target"),
        (ratio(0.5, Gaussian([0.0], [1.0])), "variance too small", "too close together"),
        (given(TEN, draws(TEN, 100) + 0.3), "not yet", "beside the target: the mean score along"),
        (given(TEN, draws(TEN, 100)[np.arange(100) % 9]), "variance too small", "only 9 of 100"),
        (given(TEN, draws(TEN, 7)), "not yet", "7 particles are too few to tell"),
    ],
    ids=["narrow", "wide", "narrow in one dimension", "beside", "copies", "few"],
)
def test_spoilt_draws_are_told_from_exact_ones(posterior, verdict, reason):
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == verdict
    assert re.search(reason, diagnosis.reason), diagnosis.reason
    assert diagnosis.advice
    data = json.loads(json.dumps(diagnosis.to_dict()))
    assert data["verdict"] == verdict
    assert set(data["checks"]) == set(diagnosis.checks)
    assert str(diagnosis).startswith(f"{verdict}: ")


def test_a_direction_that_collapsed_is_found_among_ten():
    x = draws(TEN, 200)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0]
    standard = (x - np.asarray(TEN.mean)) / np.sqrt(np.diag(TEN.covariance))
    spoilt = standard - 0.8 * np.outer(standard @ turn[0], turn[0])
    posterior = given(Gaussian(np.zeros(10), np.ones(10)), spoilt)
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == "variance too small"
    check = diagnosis.checks["variance ratio by direction"]
    assert check.where == "principal direction 10"
    assert np.isclose(check.value, 0.04, atol=0.02)


def test_particles_that_balance_each_other_are_no_alarm():
    """As a flow leaves them: of exactly unit covariance, narrow in a fold where wide elsewhere."""
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(100, 3))
        x = x - x.mean(axis=0)
        x = np.linalg.solve(np.linalg.cholesky(np.cov(x.T)), x.T).T
        assert np.all(np.abs(principal_ratios(x, -x).significances) < 1)


def test_identities_are_what_they_say():
    """For a normal target of unit variance: mean score −shift, ratios the variances."""
    x = np.random.default_rng(1).normal(size=(20_000, 3)) * [0.5, 1.0, 2.0] + [0.0, 0.3, 0.0]
    ratios = variance_ratios(x, -x)
    assert np.allclose(ratios.values, [0.25, 1.0, 4.0], rtol=0.05)
    assert np.allclose(ratios.errors, np.sqrt(2 / 20_000) * np.array([0.25, 1.0, 4.0]), rtol=0.1)
    assert np.allclose(principal_ratios(x, -x).values.sum(), 5.25, rtol=0.05)
    view = standardise(x, -x)
    assert np.isclose(overall_ratio(view).values[0], 5.25 / 3, rtol=0.05)
    found = np.abs(mean_scores(standardise(x[:, 1:2], -x[:, 1:2])).values[0])
    assert np.isclose(found, 0.3, atol=0.03)


def test_ratios_of_coordinates_that_narrow_directions_cross():
    """Differences of six parameters are known to .01, so that each score has a deviation of 90."""
    target = np.eye(6) + 1e4 * (np.eye(6) - 1 / 6)
    root = np.linalg.cholesky(np.linalg.inv(target))
    for seed in range(10):
        draws = np.random.default_rng(seed).normal(size=(400, 6)) @ root.T
        exact = variance_ratios(draws, -draws @ target)
        assert np.all(exact.errors < 0.12)
        assert np.all(np.abs(exact.significances) < 4)
        common = draws.mean(axis=1, keepdims=True)
        for factor in (0.7, 1.3):
            wrong = draws + (factor - 1) * common
            found = variance_ratios(wrong, -wrong @ target)
            assert np.allclose(found.values, factor**2, rtol=0.25)
            assert np.all(np.abs(found.significances) > 3.5)


def test_a_constant_coordinate_has_no_variance():
    x = np.random.default_rng(3).normal(size=(100, 3)) * [1.0, 0.0, 1.0]
    assert np.allclose(variance_ratios(x, -x).values, [1.0, 0.0, 1.0], atol=0.5)


def test_ratios_near_zero_are_significant():
    """The target is flat, but for noise."""
    x, noise = np.random.default_rng(9).normal(size=(2, 400, 1))
    found = variance_ratios(x, -0.01 * x - noise)
    assert abs(found.values[0]) < 0.15
    assert found.significances[0] < -5


def test_the_held_out_discrepancy_is_half_the_squared_field():
    """½E|∇log p − ∇log q|² = ½Σ(1 − r)² for variances r times the target's, in units of q."""
    x = np.random.default_rng(2).normal(size=(4000, 2)) * np.sqrt([0.5, 1.5])
    found = held_out_discrepancy(standardise(x, -x))
    assert abs(found.value - 0.25) < 3 * found.error + 0.01
    exact = np.random.default_rng(3).normal(size=(4000, 2))
    at_rest = held_out_discrepancy(standardise(exact, -exact))
    assert at_rest.significance < 2
    assert abs(at_rest.value) < 0.02


def test_more_dimensions_than_particles():
    x = np.random.default_rng(4).normal(size=(60, 300))
    good, narrow = standardise(x, -x), standardise(0.7 * x, -0.7 * x)
    assert held_out_discrepancy(good).significance < 2
    assert held_out_discrepancy(narrow).significance > 5
    assert not len(principal_ratios(x, -x).values)
    assert kernel_test(good).share_above > 0.01


def test_copies_are_not_distinct():
    x = np.random.default_rng(5).normal(size=(200, 2))
    assert num_distinct(standardise(x, -x)) > 190
    copies = x[np.arange(200) % 10]
    assert np.isclose(num_distinct(standardise(copies, -copies)), 10, atol=0.5)


def test_r_hat_sees_location_and_spread():
    rng = np.random.default_rng(6)
    same = [rng.normal(size=(200, 2)) for _ in range(4)]
    assert np.all(r_hat(same) < 1.03)
    assert r_hat([same[0], same[1] + [0.0, 2.0]])[1] > 1.3
    assert r_hat([same[0], same[1] * [5.0, 1.0]])[0] > 1.1


def test_a_trend_says_how_much_longer():
    path = -10 * np.exp(-np.arange(200) / 100)
    found = trend(path, noise=0.05)
    assert found is not None
    assert found.significance > 10
    # Windows are fifty steps long: their drift then is about the error.
    last = 150 + found.num_steps_more
    assert 10 * np.exp(-last / 100) * (np.exp(0.5) - 1) < 2.5 * found.error
    assert found.num_steps_more < 500
    assert trend(path[:5], noise=0.1) is None
    still = trend(np.random.default_rng(7).normal(size=400), noise=0.1)
    assert still is not None
    assert abs(still.significance) < 3


def test_too_few_steps_and_as_many_as_advised():
    options = {"num_particles": 100, "progress": False}
    far = nvgd.Jittered(5.0 * jnp.ones(2))
    early = nvgd.sample(UNIT, nvgd.SVGD(0.3), num_steps=14, initial=far, **options)
    diagnosis = early.diagnose()
    assert diagnosis.verdict == "not yet"
    advised = int(diagnosis.advice.split("num_steps=")[1].split(".")[0])
    assert 14 < advised <= 140
    assert "alarm" in str(diagnosis)
    late = nvgd.sample(UNIT, nvgd.SVGD(0.3), num_steps=300, **options)
    assert late.diagnose(num_replicates=1).converged


def test_ensembles_in_different_modes():
    modes = GaussianMixture([[-6.0, 0.0], [6.0, 0.0]])

    class OneSide(AbstractStart):
        def draw(self, target, num, key):
            side = 6.0 * jax.random.rademacher(key, (), float)
            return side + jax.random.normal(key, (num, target.dim))

    posterior = nvgd.sample(
        modes.log_density,
        nvgd.ULA(0.1),
        dim=2,
        initial=OneSide(),
        num_steps=200,
        progress=False,
    )
    assert posterior.diagnose().converged
    diagnosis = posterior.diagnose(num_replicates=3)
    assert diagnosis.verdict == "multimodal disagreement"
    assert "R-hat of x[0]" in diagnosis.reason


def test_minibatches_files_and_what_cannot_be_replicated(tmp_path):
    rows = np.linspace(-1.0, 3.0, 50).astype(np.float32)
    target = nvgd.Target(
        lambda at: -0.5 * at["mean"] ** 2,
        example={"mean": 0.0},
        log_likelihood=lambda at, row: -0.5 * (row - at["mean"]) ** 2,
        data=rows,
        batch_size=10,
    )
    start = {"mean": 0.1 * np.arange(20)}
    posterior = nvgd.sample(
        target, nvgd.SGLD(2e-3), initial=start, num_steps=60, thin=20, progress=False
    )
    diagnosis = posterior.diagnose()
    assert diagnosis.checks["variance ratio by coordinate"].where == "mean"
    assert "all 50 rows at 60 particles: one pass" in diagnosis.cautions[0]
    posterior.save(tmp_path / "run.npz")
    loaded = nvgd.load(tmp_path / "run.npz")
    assert loaded.diagnose().verdict == diagnosis.verdict
    with pytest.raises(
        nvgd.InputError, match="num_replicates runs the sampler again, which is possible"
    ):
        loaded.diagnose(num_replicates=1)
    with pytest.raises(nvgd.InputError, match="this run started from particles of your own"):
        posterior.diagnose(num_replicates=1)
    with pytest.raises(nvgd.InputError, match="num_replicates must be a whole number ≥ 0"):
        posterior.diagnose(num_replicates=-1)


def test_a_row_that_is_not_finite_is_named_without_corrections():
    rows = np.ones(4000, np.float32)
    rows[3456] = np.nan
    target = nvgd.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim=2,
        log_likelihood=lambda x, row: -0.5 * (row - x[0]) ** 2,
        data=rows,
        batch_size=4,
    )
    options = {"num_particles": 20, "progress": False}
    # Few steps do not draw the row, more do.
    short = nvgd.sample(target, nvgd.SGLD(1e-4), num_steps=2, **options)
    assert short.completed
    with pytest.warns(nvgd.RunStoppedWarning, match="data row 3456"):
        stopped = nvgd.sample(target, nvgd.SGLD(1e-4), num_steps=1000, **options)
    for posterior in (short, stopped):
        diagnosis = posterior.diagnose()
        assert diagnosis.verdict == "diverged"
        assert "not finite for data row 3456" in diagnosis.reason
        assert "leave such rows out" in diagnosis.advice


def test_a_run_that_stopped_has_diverged():
    with pytest.warns(nvgd.RunStoppedWarning):
        posterior = nvgd.sample(
            lambda x: -jnp.sum(x**4), nvgd.ULA(2.0), dim=2, num_steps=50, progress=False
        )
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == "diverged"
    assert "stopped at step" in diagnosis.reason
    assert "step size ten times smaller" in diagnosis.advice


def test_states_of_one_chain_are_thinned_until_they_are_independent():
    rng = np.random.default_rng(8)
    chain = np.zeros((3000, 1))
    for i in range(1, len(chain)):
        chain[i] = 0.95 * chain[i - 1] + np.sqrt(1 - 0.95**2) * rng.normal()
    target = nvgd.Target(Gaussian([0.0], [1.0]).log_density, dim=1)
    posterior = nvgd.Posterior(jnp.asarray(chain), {}, {}, "completed", 3000, "ULA", 1, target)
    diagnosis = posterior.diagnose()
    assert diagnosis.converged
    # The autocorrelation time is 39.
    assert 30 < 3000 / diagnosis.checks["distinct particles"].value < 60


def exact_chains(num_chains=256, length=16, correlation=0.0, seed=0):
    """Autoregressive chains of N(0, 1) in three coordinates."""
    rng = np.random.default_rng(seed)
    chains = rng.normal(size=(num_chains, length, 3))
    for i in range(1, length):
        noise = np.sqrt(1 - correlation**2) * chains[:, i]
        chains[:, i] = correlation * chains[:, i - 1] + noise
    return chains


@pytest.mark.parametrize(("num_chains", "length"), [(256, 8), (256, 60), (40, 8)])
def test_chains_of_independent_draws_have_mixed(num_chains, length):
    for seed in range(10):
        found = measure_mixing(exact_chains(num_chains, length, seed=seed))
        assert found.is_mixed
        assert found.excess.shape == (3,)


@pytest.mark.parametrize("num_chains", [40, 100, 256])
def test_one_chain_that_never_leaves_the_tail_is_found(num_chains):
    chains = exact_chains(num_chains, 32)
    chains[17, :, 1] = 3.0 + 0.01 * chains[17, :, 1]
    found = measure_mixing(chains)
    # The R-hat of the values hardly changes.
    assert np.all(found.bulk < 1.1)
    assert not found.is_mixed
    assert (found.excess >= 1).tolist() == [False, True, False]


def test_chains_that_remember_their_start_have_not_mixed():
    found = measure_mixing(exact_chains(correlation=0.97))
    assert np.all(found.bulk > LARGEST_BULK)
    # One chain, or one state, tells nothing.
    assert not measure_mixing(exact_chains(1, 50)).is_mixed
    assert not measure_mixing(exact_chains(50, 1)).is_mixed


@pytest.mark.parametrize(("shifted", "verdict"), [((8, 15), "converged"), (slice(None), "not yet")])
def test_other_draws_of_the_chains_confirm_an_alarm(shifted, verdict):
    """A shift by .4 of the tested draws alone is chance; of all draws, it is a fault."""
    positions = exact_chains().astype(np.float32)
    positions[:, shifted] += 0.4
    chains = Chains(positions, -0.5 * np.sum(positions**2, axis=2), -positions)
    target = nvgd.Target(lambda x: -0.5 * jnp.sum(x**2), dim=3)
    particles, facts = jnp.asarray(positions[:, -1]), ("completed", 1, "given", 100, target)
    diagnosis = nvgd.Posterior(particles, {}, {}, *facts, chains=chains).diagnose()
    assert diagnosis.verdict == verdict
    if verdict == "converged":
        assert "not confirmed by other draws" in diagnosis.checks["mean score"].expected


def test_autocorrelation_times_of_many_chains():
    times = autocorrelation_times(exact_chains(2000, 400, correlation=0.9))
    assert np.allclose(times, (1 + 0.9) / (1 - 0.9), rtol=0.15)
    assert np.allclose(autocorrelation_times(exact_chains(2000, 400)), 1.0, atol=0.1)


def test_chains_are_thinned_to_draws_that_are_nearly_independent():
    values = exact_chains(200, 40, correlation=0.5)
    chains = Chains(values, -0.5 * np.sum(values**2, axis=2), -values)
    thinned = chains.thinned()
    # The autocorrelation time is 3.
    assert 10 <= thinned.positions.shape[1] <= 20
    assert np.array_equal(thinned.positions[:, -1], values[:, -1])
    assert thinned.log_densities.shape == thinned.positions.shape[:2]
    # Never more than `MOST_DRAWS` draws in all, and at least eight per chain.
    assert Chains(*(np.repeat(x, 10, axis=0) for x in chains)).thinned().positions.shape[1] == 4
    stuck = Chains(*(np.repeat(x[:, :1], 40, axis=1) for x in chains))
    assert stuck.thinned().positions.shape[1] == 8


def from_chains(values, notes=()):
    target = nvgd.Target(Gaussian(np.zeros(3), np.ones(3)).log_density, dim=3)
    chains = Chains(values, -0.5 * np.sum(values**2, axis=2), -values)
    return nvgd.Posterior(
        jnp.asarray(values[:, -1]),
        {},
        {},
        "completed",
        1,
        "NVGD",
        1000,
        target,
        chains=chains,
        notes=notes,
    )


def test_chains_are_judged_by_mixing_and_by_their_scores():
    diagnosis = from_chains(exact_chains()).diagnose()
    assert diagnosis.converged
    assert {"R-hat of the chains", "R-hat of the tails"} <= set(diagnosis.checks)
    stuck = exact_chains(100)
    stuck[17, :, 1] = 3.0 + 0.01 * stuck[17, :, 1]
    diagnosis = from_chains(stuck).diagnose()
    assert diagnosis.verdict == "not yet"
    assert "R-hat of high values of x[1]" in diagnosis.reason
    assert "max_steps=4000" in diagnosis.advice
    diagnosis = from_chains(0.5 * exact_chains()).diagnose()
    assert diagnosis.verdict == "not yet"
    assert "the chains have mixed, but their draws do not fit the scores" in diagnosis.reason
    noted = from_chains(exact_chains(), notes=("the flow stopped at step 3",)).diagnose()
    assert noted.cautions[0] == "the flow stopped at step 3"


# A flow with corrections, at a fraction of the price of `NVGD()`.
CORRECTED = nvgd.ParticleFlow(
    coordinates.Diagonal(), directions.Kernel(), movers.Capped(0.3), corrected=True
)


def flat(x):
    """The second coordinate has no density that falls off."""
    return -0.5 * x[0] ** 2 + 0.0 * x[1]


def unbounded(x):
    """Five equal observations of unknown scale: the density grows as the scale tends to zero."""
    return -5 * x[1] - 2.5 * (x[0] * jnp.exp(-x[1])) ** 2


@pytest.mark.parametrize(
    ("log_density", "reason"),
    [
        (flat, r"the chains spread without end: .* along x\[1\]"),
        (unbounded, "without end"),
    ],
)
def test_improper_targets_are_called_improper(log_density, reason):
    posterior = nvgd.sample(
        log_density, CORRECTED, dim=2, num_particles=60, num_steps=1500, progress=False
    )
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == "improper", diagnosis
    assert re.search(reason, diagnosis.reason)
    assert diagnosis.advice


def changing_chains(log_densities):
    """Chains of three unmixed coordinates, with these log densities (chain, draw)."""
    starts = 10 * np.random.default_rng(0).normal(size=(len(log_densities), 1, 3))
    positions = starts + exact_chains(*log_densities.shape)
    return chain_checks(Chains(positions, log_densities, -positions), {"x": positions}, "abc")


def test_a_rise_of_the_log_density_is_without_end_only_if_it_goes_on():
    time, noise = np.linspace(0, 1, 30), np.random.default_rng(1).normal(size=(60, 30))
    assert changing_chains(noise + 30 * time)[RISE].is_alarm
    # An approach ends.
    assert not changing_chains(noise - 30 * np.exp(-6 * time))[RISE].is_alarm
    # Chains move, one after the other, from a wide mode to a narrow one that others hold already.
    arrival = np.linspace(-0.2, 1, 60)[:, None]
    assert not changing_chains(noise + 30 * (time > arrival))[RISE].is_alarm


def test_far_modes_of_unequal_width_are_not_called_improper():
    """Chains that move to the narrow mode and back change their log density by 138 nats."""
    modes, scales = jnp.array([[-40.0] * 30, [40.0] * 30]), jnp.array([1.0, 0.01])

    def log_density(x):
        squares = jnp.sum((x - modes) ** 2, axis=1) / scales**2
        return jnp.logaddexp(*(-0.5 * squares - 30 * jnp.log(scales)))

    start = modes[jnp.arange(40) % 2] + 0.01 * np.random.default_rng(0).normal(size=(40, 30))
    posterior = nvgd.sample(
        nvgd.Target(log_density, dim=30),
        CORRECTED,
        initial=start,
        num_steps=600,
        progress=False,
    )
    assert posterior.diagnose().verdict != "improper"


def funnel_chains(seed, lowest=-np.inf, num_others=10):
    """Exact draws of a funnel of eleven coordinates whose first one is above `lowest`."""
    rng = np.random.default_rng(seed)
    driver = rng.normal(size=200 * 16 * 3)
    driver = driver[driver > lowest][: 200 * 16].reshape(200, 16, 1)
    scale = np.exp(driver)
    others = scale * rng.normal(size=(200, 16, num_others))
    squares = np.sum((others / scale) ** 2, axis=2, keepdims=True)
    scores = np.concatenate([-driver + squares - num_others, -others / scale**2], axis=2)
    positions = np.concatenate([driver, others], axis=2)
    return Chains(positions, np.zeros((200, 16)), scores)


def test_a_neck_that_no_chain_enters_is_seen_by_the_scores():
    for seed in range(5):
        whole = cut_off_tail(funnel_chains(seed))
        assert whole is not None
        assert not whole.is_alarm
        found = cut_off_tail(funnel_chains(seed, lowest=-1.6))
        assert found is not None
        assert (found.is_alarm, found.is_low, found.coordinate) == (True, True, 0)
        # The normal density at −1.6 over the mass beyond it, in standard deviations of the draws.
        assert found.density == pytest.approx(0.11 / 0.945 * 0.87, rel=0.3)


def test_a_neck_in_180_dimensions_is_seen_by_the_scores():
    whole = cut_off_tail(funnel_chains(0, num_others=179))
    found = cut_off_tail(funnel_chains(0, lowest=-1.6, num_others=179))
    assert whole is not None
    assert found is not None
    assert not whole.is_alarm
    assert (found.is_alarm, found.is_low, found.coordinate) == (True, True, 0)


def test_chains_that_all_avoid_a_tail_have_not_converged():
    values = exact_chains(256, 48)
    values = values[values[:, :, 1] < 1.8][: 256 * 40].reshape(256, 40, 3)
    diagnosis = from_chains(values).diagnose()
    assert diagnosis.verdict == "not yet"
    assert "avoid a region" in diagnosis.reason
    assert "high values of x[1]" in diagnosis.reason
    assert "max_steps=4000" in diagnosis.advice
