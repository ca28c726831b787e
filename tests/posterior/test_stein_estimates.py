import numpy as np
import pytest
from scipy.special import digamma, polygamma
from scipy.stats import truncnorm

from nvgd import InputError
from nvgd.posterior.stein_estimates import stein_expectation, stein_moments


def normal(dim, correlation=0.8):
    scales = 10.0 ** np.linspace(-2, 2, dim)
    distances = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    covariance = correlation**distances * np.outer(scales, scales)
    lower, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    def draw(rng, m):
        deviations = rng.standard_normal((m, dim)) @ lower.T
        return 3 * scales + deviations, -deviations @ precision

    return draw, 3 * scales, scales


def log_gamma(rng, m, dim=4):
    """log of Gamma(2) variables: skewed."""
    gammas = rng.gamma(2.0, size=(m, dim))
    return np.log(gammas), 2 - gammas


def banana(rng, m):
    first, rest = rng.standard_normal((2, m))
    return np.stack([first, rest + first**2], 1), np.stack([2 * first * rest - first, -rest], 1)


def student(rng, m):
    x = rng.standard_t(3, size=(m, 4))
    return x, -4 * x / (3 + x**2)


def funnel(rng, m):
    log_variance = 3 * rng.standard_normal((m, 1))
    rest = rng.standard_normal((m, 4)) * np.exp(log_variance / 2)
    ratios = rest * np.exp(-log_variance)
    first = -log_variance / 9 - 2 + 0.5 * np.sum(rest * ratios, axis=1, keepdims=True)
    return np.concatenate([log_variance, rest], 1), np.concatenate([first, -ratios], 1)


def autoregressive(num_chains, length, correlation):
    def draw(rng, m):
        assert m == num_chains * length
        noise = rng.standard_normal((length, num_chains, 3))
        noise[1:] *= np.sqrt(1 - correlation**2)
        for i in range(1, length):
            noise[i] += correlation * noise[i - 1]
        x = noise.swapaxes(0, 1).reshape(m, 3)
        return x, -x

    return draw


@pytest.mark.parametrize(("dim", "m"), [(5, 200), (60, 800)])
def test_normal_targets_are_exact(dim, m):
    draw, means, sds = normal(dim)
    x, scores = draw(np.random.default_rng(0), m)
    found = stein_moments(x, x, scores, np.arange(m))
    np.testing.assert_allclose(found.means, means, rtol=1e-6)
    np.testing.assert_allclose(found.sds, sds, rtol=1e-6)
    assert np.all(found.mean_errors < 1e-6 * sds)
    assert np.all(found.sd_errors < 1e-6 * sds)


def test_single_precision_is_enough():
    draw, means, sds = normal(5)
    x, scores = draw(np.random.default_rng(0), 200)
    found = stein_moments(x.astype("f4"), x.astype("f4"), scores.astype("f4"), np.arange(200))
    assert np.all(np.abs(found.means - means) < 1e-4 * sds)
    assert np.all(np.abs(found.sds - sds) < 1e-4 * sds)


IDENTITY = lambda x: x  # noqa: E731
SKEWED = (digamma(2.0), np.sqrt(polygamma(1, 2.0)))
# A function that no quadratic explains, with its mean and standard deviation under N(0, 1).
WAVE = (lambda x: x + np.cos(3 * x), np.exp(-4.5), np.sqrt(1.5 + 0.5 * np.exp(-18) - np.exp(-9)))
# target, function, mean, standard deviation, draws, draws per group.
CALIBRATED = {
    "normal": (normal(4)[0], IDENTITY, *normal(4)[1:], 200, 1),
    "log gamma": (log_gamma, IDENTITY, *SKEWED, 300, 1),
    "gamma": (log_gamma, np.exp, 2.0, np.sqrt(2.0), 300, 1),
    "many": (lambda rng, m: log_gamma(rng, m, 30), IDENTITY, *SKEWED, 300, 1),
    "banana": (banana, IDENTITY, np.array([0.0, 1.0]), np.sqrt([1.0, 3.0]), 1000, 1),
    "chains": (autoregressive(50, 10, 0.9), *WAVE, 500, 10),
    "few chains": (autoregressive(4, 200, 0.5), *WAVE, 800, 200),
}


# The least factor by which the variances of means and standard deviations fall.
REDUCTIONS = {"log gamma": (30, 1.5), "many": (20, 1.2), "banana": (1.1, 0.9), "chains": (4, 1.2)}


@pytest.mark.parametrize("case", CALIBRATED)
def test_errors_are_small_and_calibrated(case):
    draw, function, mean, sd, m, size = CALIBRATED[case]
    deviations, ratios, plain = [], [], []
    for seed in range(100):
        x, scores = draw(np.random.default_rng(seed), m)
        values = function(x)
        found = stein_moments(values, x, scores, np.arange(m) // size)
        deviations.append([found.means - mean, found.sds - sd])
        ratios.append(deviations[-1] / np.array([found.mean_errors, found.sd_errors]))
        plain.append([values.mean(axis=0) - mean, values.std(axis=0, ddof=1) - sd])
    calibration = np.sqrt(np.mean(np.square(ratios), axis=(0, 2)))
    assert np.all((calibration > 0.7) & (calibration < 1.3))
    gains = np.mean(np.square(plain), axis=(0, 2)) / np.mean(np.square(deviations), axis=(0, 2))
    assert np.all(gains > REDUCTIONS.get(case, (1, 1)))


@pytest.mark.parametrize(
    ("draw", "m"), [(student, 100), (student, 600), (funnel, 100), (funnel, 600)]
)
def test_heavy_tails_are_not_worse_than_plain(draw, m):
    errors = []
    for seed in range(80):
        x, scores = draw(np.random.default_rng(seed), m)
        found = stein_moments(x, x, scores, np.arange(m))
        errors.append([found.means, x.mean(axis=0)])
    found, plain = np.sqrt(np.mean(np.square(errors), axis=0))
    assert np.all(found < 1.1 * plain)


@pytest.mark.parametrize("bound", ["exponential", "half-normal", "within"])
def test_densities_that_end_at_a_bound_have_no_false_means(bound):
    """Stein's identity does not hold for them; for symmetric ones, that of the mean does."""
    rng = np.random.default_rng(5)
    shape = 256 * 20, 2
    positions, scores = {
        "exponential": lambda: (x := rng.exponential(size=shape), -np.ones_like(x)),
        "half-normal": lambda: (x := np.abs(rng.normal(size=shape)), -x),
        "within": lambda: (x := truncnorm(-1, 1).rvs(shape, rng), -x),
    }[bound]()
    found = stein_moments(positions, positions, scores, np.repeat(np.arange(256), 20))
    truth = {"exponential": 1.0, "half-normal": np.sqrt(2 / np.pi), "within": 0.0}[bound]
    assert np.all(np.abs(found.means - truth) < 4 * found.mean_errors + 1e-9)
    if bound != "within":
        plain_errors = positions.std(axis=0) / np.sqrt(len(positions))
        assert np.allclose(found.mean_errors, plain_errors, rtol=0.3)
    assert np.allclose(found.sds, positions.std(axis=0), rtol=0.02)


def test_order_of_groups_and_constants_do_not_matter():
    rng = np.random.default_rng(0)
    x, scores = autoregressive(40, 10, 0.5)(rng, 400)
    groups = np.arange(400) // 10
    values = np.stack([x[:, 0] ** 3, np.full(400, 0.1), x[:, 1] > 0.3], axis=1)
    first = stein_expectation(values, x, scores, groups)
    # Interleaved chains, in order of time.
    order = np.arange(400).reshape(40, 10).T.ravel()
    again = stein_expectation(values[order], x[order], scores[order], groups[order])
    np.testing.assert_allclose(again.means, first.means)
    np.testing.assert_allclose(again.errors, first.errors)
    assert first.is_controlled.tolist() == [True, False, True]
    assert first.means[1] == pytest.approx(0.1)
    assert first.errors[1] < 1e-15
    moments = stein_moments(values, x, scores, groups)
    assert moments.sds[1] < 1e-15
    assert 0 < moments.sd_errors[2] < 0.05


def test_groups_of_unequal_size():
    rng = np.random.default_rng(0)
    x, scores = log_gamma(rng, 500)
    groups = np.sort(rng.integers(0, 60, 500) ** 2)
    found = stein_expectation(x, x, scores, groups)
    assert found.is_controlled.all()
    assert np.all(np.abs(found.means - digamma(2.0)) < 5 * found.errors)


@pytest.mark.parametrize("m", [30, 100])
@pytest.mark.parametrize("dim", [20, 150])
def test_more_dimensions_than_draws(m, dim):
    x, scores = log_gamma(np.random.default_rng(0), m, dim)
    found = stein_moments(x, x, scores, np.arange(m))
    assert all(np.isfinite(part).all() for part in found)
    assert np.all(np.abs(found.means - SKEWED[0]) < 6 * found.mean_errors)


@pytest.mark.parametrize("fault", ["scores", "positions", "few draws"])
def test_plain_where_scores_cannot_be_used(fault):
    x, scores = log_gamma(np.random.default_rng(0), 20 if fault == "few draws" else 200)
    positions = x.copy()
    if fault == "scores":
        scores[3, 1] = np.inf
    if fault == "positions":
        positions[3, 1] = np.nan
    found = stein_expectation(x, positions, scores, np.arange(len(x)))
    np.testing.assert_allclose(found.means, x.mean(axis=0))
    np.testing.assert_allclose(found.errors, x.std(axis=0, ddof=1) / np.sqrt(len(x)))
    assert not found.is_controlled.any()
    moments = stein_moments(x, positions, scores, np.arange(len(x)))
    np.testing.assert_allclose(moments.sds, x.std(axis=0, ddof=1))


def test_a_column_that_is_not_finite_leaves_the_others_alone():
    x, scores = log_gamma(np.random.default_rng(0), 200)
    values = x.copy()
    values[5, 0] = np.inf
    found = stein_moments(values, x, scores, np.arange(200))
    clean = stein_moments(x, x, scores, np.arange(200))
    assert not np.isfinite(found.means[0])
    np.testing.assert_allclose(found.means[1:], clean.means[1:])
    np.testing.assert_allclose(found.sds[1:], clean.sds[1:])


def test_one_draw_has_no_error():
    found = stein_moments(np.ones((1, 2)), np.ones((1, 3)), np.ones((1, 3)), np.zeros(1, int))
    np.testing.assert_array_equal(found.means, 1)
    assert np.isnan(found.mean_errors).all()
    assert np.isnan(found.sd_errors).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.zeros(40)}, "shapes"),
        ({"scores": np.zeros((40, 2))}, "shapes"),
        ({"groups": np.zeros(39, int)}, "shapes"),
        ({"groups": np.zeros(40)}, "whole numbers"),
        ({"values": [["a"]] * 40}, "arrays of numbers"),
        ({"positions": np.zeros((40, 0)), "scores": np.zeros((40, 0))}, "at least one"),
    ],
)
def test_bad_input(change, message):
    inputs = {
        "values": np.zeros((40, 1)),
        "positions": np.zeros((40, 3)),
        "scores": np.zeros((40, 3)),
        "groups": np.arange(40),
    }
    with pytest.raises(InputError, match=message):
        stein_expectation(**(inputs | change))
