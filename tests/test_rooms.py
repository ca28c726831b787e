"""The house: every room imports only from rooms above it, and its folders are all that there is."""

from pathlib import Path

import import_graph

import nvgd

SOURCE = Path(nvgd.__file__).parent


def test_no_room_imports_from_one_below_and_nothing_imports_in_circles():
    graph = import_graph.read_graph()
    assert len(graph) > 80
    assert import_graph.upward_imports(graph) == []
    assert import_graph.circles(graph) == []


def test_a_broken_rule_is_found():
    graph = {
        "nvgd.targets.target": {"nvgd.flow.stage", "nvgd.metrics"},
        "nvgd.flow.stage": {"nvgd.targets.target"},
        "nvgd.metrics": set(),
    }
    assert import_graph.upward_imports(graph) == [
        "nvgd.targets.target imports nvgd.flow.stage, a room below",
        "nvgd.targets.target imports the facade nvgd.metrics",
    ]
    assert import_graph.circles(graph) == ["nvgd.flow.stage ↔ nvgd.targets.target"]


def test_everything_lives_in_a_room():
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(import_graph.ROOMS)
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert modules == set(import_graph.FACADES) - {""}


def test_the_top_level_has_what_most_people_need_and_no_more():
    assert len(nvgd.__all__) <= 30
    leaked = {"Any", "importlib", "TYPE_CHECKING"} & set(dir(nvgd))
    assert not leaked
    for module in (nvgd.coordinates, nvgd.directions, nvgd.movers, nvgd.stein):
        assert all(getattr(module, name).__doc__ for name in module.__all__)
