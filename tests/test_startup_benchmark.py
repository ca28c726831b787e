"""The pure parts of benchmarks/startup: budgets and thinning."""

import numpy as np
import pytest
from benchmarks.startup import budgets
from benchmarks.startup.methods import thinned

import nvgd

LIMITS = budgets.read()


def _time(posterior, method, state="cold", **fields):
    return {"posterior": posterior, "method": method, "state": state, "seed": 0, **fields}


def test_what_is_over_its_budget_is_said():
    times = [
        _time("easy", "nvgd", cpu_seconds=10.0),
        _time("easy", "blackjax_nuts", cpu_seconds=10.0),
        _time("hard", "nvgd", cpu_seconds=90.0),
        _time("hard", "blackjax_nuts", cpu_seconds=10.0),
        _time("hard", "blackjax_nuts", failure="no posterior"),
        _time("easy", "nvgd", "known shape", cpu_seconds=3.0, first_cpu_seconds=2.0),
    ]
    assert budgets.ratios(times) == {"easy": 1.0, "hard": 9.0}
    measured = {limited.what: limited for limited in budgets.of_times(times, LIMITS)}
    number = measured["posteriors of 2 with more than 1.2 × BlackJAX NUTS"]
    assert number.value == 1
    assert not number.is_over
    assert not measured["known shape beyond import, easy"].is_over
    lines = budgets.verdict(list(measured.values())).splitlines()
    assert [line.startswith("OVER") for line in lines] == [True, False]
    assert "hard: 9, limit 2" in lines[0]


def test_corrections_may_take_longer_where_gradients_do():
    costs = {"target": "model", "dim": 4, "flow_cpu_ms": 99.0, "corrections_cpu_ms": 3.0}
    (cheap,) = budgets.of_steps([{**costs, "gradient_cpu_ms": 0.1}], LIMITS)
    (dear,) = budgets.of_steps([{**costs, "gradient_cpu_ms": 2.0}], LIMITS)
    assert cheap.is_over
    assert not dear.is_over


def test_a_missing_budget_is_named():
    with pytest.raises(nvgd.InputError, match=r"'worst_ratio' in \[startup\]"):
        budgets.limit({"startup": {}}, "startup", "worst_ratio")


def test_thinning_keeps_every_chain():
    chains = np.arange(4 * 1000 * 2).reshape(4, 1000, 2)
    draws = thinned(chains)
    assert draws.shape == (256, 2)
    assert {0, 3999} <= set(draws[:, 0] // 2)
