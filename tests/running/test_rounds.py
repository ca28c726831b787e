"""Rounds of corrections: repeated until the chains have mixed, resumed to the bit."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvgd
from nvgd import coordinates, directions, movers
from nvgd.densities import Gaussian
from nvgd.posterior.chains import Chains
from nvgd.running import rounds
from nvgd.running.history import History
from nvgd.running.plan import FEWEST_FLOW_STEPS, CorrectionLeg
from nvgd.running.rounds import EARLIEST_END, FIRST_ROUND, RoundsLength

DENSITY = Gaussian([2.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
TARGET = nvgd.Target(DENSITY.log_density, dim=2)
# A flow with corrections, at a fraction of the price of `NVGD()`.
FLOW = nvgd.ParticleFlow(
    coordinates.Diagonal(), directions.Kernel(), movers.Euler(0.3), corrected=True
)

SLOW = nvgd.ParticleFlow(
    coordinates.Identity(), directions.Kernel(), movers.Euler(0.003), corrected=True
)

pytestmark = pytest.mark.xdist_group("rounds")


def run(target=TARGET, flow=FLOW, **options):
    return nvgd.sample(target, flow, **{"num_particles": 40, "progress": False, **options})


def made_up_chains(is_mixed):
    """Forty chains, each of which is everywhere, or in a place of its own."""
    values = np.random.default_rng(0).normal(size=(40, 30, 2))
    if not is_mixed:
        values = 0.1 * values + np.arange(40)[:, None, None]
    return Chains(values, -0.5 * np.sum(values**2, axis=2), -values)


def no_state() -> Any:
    """What the rounds do not look at."""


def look(length, is_mixed, density_error=0.0):
    length.look(
        length.end, no_state, History(), lambda: made_up_chains(is_mixed), lambda: density_error
    )


def ends(length):
    return [leg.until_step for leg in length.legs]


def test_rounds_double_until_the_chains_have_mixed():
    length = RoundsLength(FLOW, TARGET, 10_000)
    assert length.is_converged is None
    assert ends(length) == [400, 1000]
    for expected in ([400, 1000, 2200], [400, 1000, 2200, 4600]):
        look(length, is_mixed=False)
        assert length.is_converged is False
        assert ends(length) == expected
        assert length.end == expected[-1]
    look(length, is_mixed=True)
    assert length.is_converged
    assert length.end == 4600
    # What a checkpoint holds leads to the same plan.
    other = RoundsLength(FLOW, TARGET, 10_000)
    other.restore(length.records())
    assert (ends(other), other.end, other.is_converged) == (ends(length), length.end, True)


def test_minibatches_begin_with_a_short_round_and_end_over_the_right_density():
    rows = np.zeros((50, 2), np.float32)
    target = nvgd.Target(
        lambda x: -0.5 * x @ x,
        dim=2,
        log_likelihood=lambda x, row: -0.5 * jnp.sum((row - x) ** 2),
        data=rows,
        batch_size=5,
    )
    length = RoundsLength(FLOW, target, 10_000)
    assert ends(length) == [400, 600, 1200]
    # Mixed, but over a log density that is not that of all rows.
    look(length, is_mixed=True, density_error=0.5)
    assert length.is_converged is False
    assert ends(length) == [400, 600, 1200, 2400]
    look(length, is_mixed=True, density_error=0.05)
    assert length.is_converged
    assert length.end == 2400


def test_the_last_round_takes_what_is_left():
    length = RoundsLength(FLOW, TARGET, 3000)
    look(length, is_mixed=False)
    # A third round of 2,400 would not fit.
    assert ends(length) == [400, 1000, 3000]
    look(length, is_mixed=False)
    assert length.end == 3000
    assert length.is_converged is False
    assert ends(RoundsLength(FLOW, TARGET, 1500)) == [400, 1500]


def test_chains_that_have_barely_mixed_take_one_more_round_of_the_same_length():
    mixed = made_up_chains(True)
    barely = mixed._replace(positions=mixed.positions + np.linspace(-0.6, 0.6, 40)[:, None, None])
    length = RoundsLength(FLOW, TARGET, 2000)
    length.look(length.end, no_state, History(), lambda: barely, lambda: 0.0)
    assert length.is_converged
    assert ends(length) == [400, 2000]
    length = RoundsLength(FLOW, TARGET, 2500)
    length.look(length.end, no_state, History(), lambda: barely, lambda: 0.0)
    # The rest of the run is not needed for a confirmation.
    assert ends(length) == [400, 1000, 1600]
    look(length, is_mixed=True)
    assert length.is_converged
    assert length.end == 1600


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_fixed_number_of_steps_has_rounds_too_and_uses_all_of_them(is_mixed):
    length = RoundsLength(FLOW, TARGET, 2000, is_fixed=True)
    assert (ends(length), length.end) == ([400, 1000], 2000)
    length.look(1000, no_state, History(), lambda: made_up_chains(is_mixed), lambda: 0.0)
    assert (ends(length), length.end) == ([400, 1000, 2000], 2000)
    # After a round that has mixed, the next one hardly adapts.
    stage = cast(Any, length.legs[-1])
    assert stage.adapting == (rounds.SHARE_AFTER_MIXING if is_mixed else rounds.SHARE_ADAPTING)
    look(length, is_mixed)
    assert (ends(length), length.is_converged) == ([400, 1000, 2000], None)
    # One round of what is left, where two would be short; a flow of a fifth of many steps.
    assert ends(RoundsLength(FLOW, TARGET, 1500, is_fixed=True)) == [400, 1500]
    assert ends(RoundsLength(FLOW, TARGET, 450, is_fixed=True)) == [250, 450]
    assert ends(RoundsLength(FLOW, TARGET, 5000, is_fixed=True)) == [1000, 1600]


def test_a_run_with_a_fixed_number_of_steps_takes_its_rounds():
    posterior = run(num_steps=1600)
    assert posterior.stages == (("flow", 200), ("corrections", 800), ("corrections", 1600))
    assert posterior.chains is not None
    # An eighth of the last round adapts; of the other 700 steps, every eleventh is kept.
    assert posterior.chains.positions.shape[1] == 64


def test_a_look_between_two_rounds_changes_nothing():
    length = RoundsLength(FLOW, TARGET, 10_000)
    length.look(700, no_state, History(), lambda: made_up_chains(False), lambda: 0.0)
    assert length.is_converged is None
    look(length, is_mixed=True)
    look(length, is_mixed=False)
    assert length.is_converged


def test_a_run_ends_after_the_first_round_if_its_chains_have_mixed():
    posterior = run()
    end = EARLIEST_END + FIRST_ROUND
    assert posterior.stages == (("flow", EARLIEST_END), ("corrections", end))
    assert posterior.completed
    assert posterior.diagnose().converged
    assert posterior.chains is not None
    assert np.array_equal(posterior.chains.positions[:, -1], posterior.state.particles)
    assert posterior.draws["x"].shape == posterior.chains.positions.shape
    draws = np.asarray(posterior.draws["x"]).reshape(-1, 2)
    error = np.sqrt(np.diag(DENSITY.covariance) / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - DENSITY.mean) < 5 * error)


def test_a_flow_that_has_not_come_to_rest_goes_on():
    posterior = run(nvgd.Target(lambda x: -0.5 * jnp.sum((x - 100.0) ** 2), dim=2), SLOW)
    assert posterior.stages[0] == ("flow", FEWEST_FLOW_STEPS)


@pytest.fixture
def two_rounds(monkeypatch):
    """Rounds of 60 and 120 steps; the first counts as not mixed."""
    measure = rounds.measure_mixing

    def measured(values):
        found = measure(values)
        is_first = values.shape[1] == 30  # the steps that do not adapt
        return found._replace(bulk=found.bulk + 1.0) if is_first else found

    monkeypatch.setattr(rounds, "FIRST_ROUND", 60)
    monkeypatch.setattr(rounds, "measure_mixing", measured)


class Interrupted(Exception):
    pass


def interrupt_at(step):
    def callback(state):
        if state.step == step:
            raise Interrupted

    return callback


def check_same(again, whole):
    assert again.stages == whole.stages
    assert np.array_equal(again.particles, whole.particles)
    assert np.array_equal(again.draws["x"], whole.draws["x"])
    for name, values in whole.history.items():
        assert np.array_equal(again.history[name], values, equal_nan=True), name


def two_modes(x):
    squares = jnp.array([jnp.sum((x + 5.0) ** 2), jnp.sum((x - 5.0) ** 2)])
    return jax.nn.logsumexp(-0.5 * squares)


TWO_MODES = nvgd.Target(two_modes, dim=2)


# In the first round, at its end, while the second one adapts, and while it keeps draws.
@pytest.mark.parametrize(
    ("step", "target"), [(240, TARGET), (260, TARGET), (290, TWO_MODES), (370, TARGET)]
)
@pytest.mark.usefixtures("two_rounds")
def test_a_run_resumes_to_the_bit_in_every_round(tmp_path, step, target):
    options: dict[str, Any] = {"metrics_every": 10, "target": target}
    whole = run(**options)
    assert whole.stages[:3] == (("flow", 200), ("corrections", 260), ("corrections", 380))
    # One gradient per particle for each step, and for each beginning of a round; the search for
    # modes takes the rest.
    rest = whole.history["num_gradients"][-1] / 40 - whole.num_steps - len(whole.stages) + 1
    assert 0 < rest <= 90
    options |= {"checkpoint": tmp_path, "checkpoint_every": 10}
    with pytest.raises(Interrupted):
        run(callback=interrupt_at(step), **options)
    again = run(**options)
    check_same(again, whole)
    assert again.chains is not None
    assert whole.chains is not None
    for one, other in zip(again.chains, whole.chains, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(again.sample(30).particles, whole.sample(30).particles)


def ctrl_c_at_call(number, function):
    """The function, with Ctrl-C at one of its calls."""
    calls = []

    def interrupted(*arguments):
        calls.append(None)
        if len(calls) == number:
            raise KeyboardInterrupt
        return function(*arguments)

    return interrupted


@pytest.mark.usefixtures("two_rounds")
def test_ctrl_c_between_two_stages_or_in_a_check_resumes_to_the_bit(tmp_path, monkeypatch):
    whole = run()
    # Before the first round, before the second, and in the checks at the ends of the two.
    moments = [
        (CorrectionLeg, "enter", 1, 200),
        (CorrectionLeg, "enter", 2, 260),
        (rounds, "measure_mixing", 1, 260),
        (rounds, "measure_mixing", 2, 380),
    ]
    for owner, name, number, step in moments:
        directory = tmp_path / f"{name}-{number}"
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, ctrl_c_at_call(number, getattr(owner, name)))
            with pytest.warns(nvgd.RunStoppedWarning, match=f"Ctrl-C after step {step} .*resumes"):
                stopped = run(checkpoint=directory)
        assert stopped.stages == whole.stages[: 1 + (step > 200) + (step > 260)]
        # The draws of the round that has just ended are not lost.
        assert stopped.draws["x"].shape[0] == (40 if step > 200 else 1)
        check_same(run(checkpoint=directory), whole)


def test_a_run_that_has_not_mixed_goes_on_with_more_steps(tmp_path, monkeypatch):
    never = rounds.measure_mixing(made_up_chains(False).positions)
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "measure_mixing", lambda values: never)
        with pytest.warns(nvgd.NotConvergedWarning):
            first = run(max_steps=520, checkpoint=tmp_path)
    again = run(num_steps="auto", max_steps=700, checkpoint=tmp_path)
    assert again.stages == (*first.stages, ("corrections", 700))
    assert np.array_equal(again.history["log_density"][:520], first.history["log_density"])


def test_chains_that_have_not_mixed_at_the_end_are_announced():
    # A thin, bent ridge, along which chains are slow.
    def log_density(x):
        return -0.5 * (x[0] ** 2 / 4 + jnp.sum((x[1:] - x[0] ** 2) ** 2) / 0.05**2)

    with pytest.warns(
        nvgd.NotConvergedWarning, match=r"did not converge in 600 steps: posterior\.diagnose\(\)"
    ):
        posterior = run(
            nvgd.Target(log_density, dim=3),
            nvgd.NVGD(width=4, max_inner_steps=1),
            num_particles=40,
            max_steps=600,
        )
    diagnosis = posterior.diagnose()
    assert diagnosis.verdict == "not yet"
    assert "the chains have not mixed: R-hat of" in diagnosis.reason
    assert "max_steps=2400" in diagnosis.advice
