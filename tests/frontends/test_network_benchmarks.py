"""The parts of `benchmarks/networks` whose errors a table would not show."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.networks.shifts import altered, area_under_curve
from benchmarks.networks.tuning import best_rate
from benchmarks.networks.witness_forms import shrunk_precision_times


class Scored:
    """A model that predicts y with an error of the position, a number."""

    def predict(self, key, positions, x, *, y, quantiles, samples):
        """The log likelihood falls with the error."""
        del key, x, quantiles, samples
        return SimpleNamespace(
            mean=y + positions, log_likelihood=-(np.full(len(y), positions) ** 2)
        )


@pytest.mark.parametrize("best", [0.1, 1.0, 10.0, 1000.0])
def test_best_rate_is_found_wherever_it_is(best):
    """Errors grow with the distance to the best rate."""
    rates, y = (0.1, 1.0, 10.0, 100.0, 1000.0), np.array([-20.0, 20.0])
    target: Any = SimpleNamespace(model=Scored())
    found = best_rate(lambda _, rate: abs(np.log10(rate / best)), rates, target, y[:, None], y)
    assert found == best


def test_best_rate_leaves_rates_at_which_networks_diverge():
    """Every rate above the smallest gives predictions worse than a constant."""
    y = np.array([-1.0, 1.0])
    target: Any = SimpleNamespace(model=Scored())
    rates = (0.1, 1.0, 10.0, 100.0)
    found = best_rate(lambda _, rate: 0.0 if rate < 1 else 9.0, rates, target, y[:, None], y)
    assert found == 0.1


def test_shrunk_precision_is_the_inverse_of_a_shrunk_covariance():
    """For rows Av with A far from the identity, the result is linear in the rows: P(v − v̄)."""
    values = jax.random.normal(jax.random.key(0), (30, 50)) * jnp.linspace(0.2, 4.0, 50)
    rows = np.asarray(values - values.mean(axis=0), np.float64)
    found = np.asarray(shrunk_precision_times(values), np.float64)
    covariance = rows.T @ rows / 30
    # Σ = αI + β C for two numbers, which two rows determine: found Σ = rows.
    design = np.stack([found[0], found[0] @ covariance], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, rows[0], rcond=None)
    assert alpha > 0
    assert 0 < beta < 1
    np.testing.assert_allclose(alpha * found + beta * found @ covariance, rows, atol=1e-3)
    assert np.isclose(alpha, (1 - beta) * np.trace(covariance) / 50, rtol=1e-3)


def test_outliers_keep_the_pixels():
    """Shuffled patches hold the same pixels; inverted twice, a digit is itself."""
    images = np.arange(2 * 784).reshape(2, 28, 28).astype(np.uint8)
    made = altered(images)
    for before, after in zip(images, made["shuffled patches"], strict=True):
        assert not np.array_equal(before, after)
        np.testing.assert_array_equal(np.sort(before, axis=None), np.sort(after, axis=None))
    np.testing.assert_array_equal(255 - made["inverted digits"], images)


def test_area_under_curve():
    """The share of pairs in the right order, ties half."""
    assert area_under_curve(np.array([0.0, 1.0]), np.array([2.0, 0.5])) == 0.75
    assert area_under_curve(np.zeros(3), np.zeros(4)) == 0.5
