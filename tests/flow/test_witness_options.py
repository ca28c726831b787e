"""Options of the neural direction behind the authors' stored results, and fast sorts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import directions, stein
from nvgd._support.robust import order_of_rows, sorted_rows
from nvgd.flow.directions.standardised_witness import StandardisedWitness
from nvgd.stein.divergences import values_and_divergences

PARTICLES = 5.0 + jnp.array([0.01, 1.0, 30.0]) * jax.random.normal(jax.random.key(0), (40, 3))
SCORES = -(PARTICLES - 5.0) / jnp.array([0.01, 1.0, 30.0]) ** 2
KEY = jax.random.key(1)


def fit(direction, state=None, key=KEY):
    state = direction.init(PARTICLES, key=jax.random.key(2)) if state is None else state
    return direction.fit(PARTICLES, SCORES, state, view=None, key=key)


@pytest.mark.parametrize("kind", [stein.MLP, eqx.nn.MLP])
def test_a_standardised_witness_has_the_divergence_of_its_jacobian(kind):
    if kind is stein.MLP:
        network = stein.MLP(3, key=KEY)
    else:
        network = eqx.nn.MLP(3, 3, 8, 1, jax.nn.tanh, key=KEY)
    centre, spread = jnp.mean(PARTICLES, axis=0), jnp.std(PARTICLES, axis=0)
    witness = StandardisedWitness(network, centre, spread)
    basis = jnp.broadcast_to(jnp.eye(3), (40, 3, 3))
    values, divergences = values_and_divergences(witness, PARTICLES, basis, 1.0)

    def plain(x):
        return network((x - centre) / spread)

    jacobians = jax.vmap(jax.jacobian(plain))(PARTICLES)
    assert np.allclose(values, jax.vmap(plain)(PARTICLES), rtol=1e-4, atol=1e-5)
    assert np.allclose(divergences, jnp.trace(jacobians, axis1=1, axis2=2), rtol=1e-3, atol=1e-4)


def test_a_standardised_witness_sees_standardised_particles():
    result = fit(directions.Neural(standardise=True, max_inner_steps=3))
    witness = result.state.witness
    assert np.allclose(witness.centre, jnp.mean(PARTICLES, axis=0), rtol=1e-4)
    assert np.allclose(witness.spread, jnp.std(PARTICLES, axis=0) + 1e-5, rtol=1e-4)
    seen = (PARTICLES - witness.centre) / witness.spread
    assert np.allclose(result.velocities, jax.vmap(witness.network)(seen), rtol=1e-3, atol=1e-4)


def test_a_reinitialised_witness_forgets_its_weights_but_not_its_optimiser():
    # A learning rate so small that weights stay as they were drawn.
    for options in ({}, {"standardise": True}):
        settings = {"learning_rate": 1e-12, "max_inner_steps": 4, **options}
        kept, anew = (directions.Neural(reinitialise=flag, **settings) for flag in (False, True))
        first = fit(anew)
        second = fit(anew, first.state, jax.random.key(7))
        third = fit(kept, fit(kept).state, jax.random.key(7))

        def weights(result):
            return jax.tree.leaves(result.state.witness)[0]

        assert not np.allclose(weights(first), weights(second))
        assert np.allclose(weights(third), weights(fit(kept)))
        count = int(first.diagnostics["inner_steps"] + second.diagnostics["inner_steps"])
        assert int(second.state.optimizer[0].count) == count > 0


def test_dropout_acts_in_training_only():
    settings = {"max_inner_steps": 5, "learning_rate": 1e-2, "divergence": "exact"}
    plain, dropped = (fit(directions.Neural(dropout=rate, **settings)) for rate in (0.0, 0.5))
    assert not np.allclose(plain.velocities, dropped.velocities)
    witness = dropped.state.witness
    assert np.allclose(dropped.velocities, jax.vmap(witness)(PARTICLES), rtol=1e-4, atol=1e-5)
    assert (np.abs(np.asarray(dropped.velocities)).max(axis=0) > 0).all()
    # The value that is reported is that of the whole witness on the validation particles.
    assert np.isfinite(dropped.diagnostics["stein_discrepancy"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: directions.Neural(dropout=1.0), "dropout must lie strictly between 0 and 1"),
        (
            lambda: directions.Neural(witness=stein.MLP(2, key=KEY), reinitialise=True),
            "leave witness or reinitialise out",
        ),
        (lambda: nvgd.NVGD(reinitialise=True), "which reinitialise would erase"),
    ],
)
def test_options_that_do_not_fit_are_refused(make, message):
    with pytest.raises(nvgd.InputError, match=message):
        make()


def test_rows_sorted_as_integers_are_in_order():
    values = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    values[:6, 0] = [0.0, -0.0, np.inf, -np.inf, 1e-42, -1e-42]
    values[:2, 1] = [np.nan, -np.nan]
    found = np.asarray(sorted_rows(jnp.asarray(values)))
    assert np.array_equal(found, np.sort(values, axis=0), equal_nan=True)


@pytest.mark.parametrize("num", [2, 30, 1000, 1500])
def test_rows_in_order_differ_from_a_sort_by_rounding_only(num):
    values = np.random.default_rng(num).normal(size=(num, 3)).astype(np.float32)
    order = np.asarray(order_of_rows(jnp.asarray(values)))
    assert np.array_equal(np.sort(order, axis=0), np.tile(np.arange(num)[:, None], 3))
    ordered = np.take_along_axis(values, order, axis=0)
    assert np.allclose(ordered, np.sort(values, axis=0), rtol=2**-13, atol=0)


def test_there_is_no_network_in_thousands_of_dimensions():
    wide = jax.random.normal(KEY, (4, 1001))
    direction = nvgd.NVGD().direction
    state = direction.init(wide, key=KEY)
    result = direction.fit(wide, -wide, state, view=None, key=KEY)
    assert result.state.witness is None
    assert int(result.state.step) == 1
    assert float(result.diagnostics["network_weight"]) == 0.0
    given = nvgd.NVGD(witness=stein.MLP(1001, width=2, key=KEY)).direction
    assert given.init(wide, key=KEY).witness is not None
