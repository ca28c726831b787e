"""`nvgd sample`: from a file with a model to numbers, figures and particles."""

import errno
import json
from pathlib import Path

import numpy as np
import pytest

import nvgd
from nvgd._support.files import locked
from nvgd.cli import main, sample
from nvgd.cli.main import COMMANDS
from nvgd.cli.parsing import parse
from nvgd.cli.report.frames import Frames

PLAIN = """
import jax.numpy as jnp
scale = 2.0
def log_density(x):
    return -0.5 * jnp.sum(((x - 3.0) / scale) ** 2)
"""

NUMPYRO = """
import numpyro, numpyro.distributions as dist
def model():
    numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
"""

BOTH = """
import jax.numpy as jnp, numpyro
def log_density(x):
    return -0.5 * jnp.sum(x ** 2)
"""

TYPED = """
from __future__ import annotations
import dataclasses
import jax.numpy as jnp
@dataclasses.dataclass
class Settings:
    scale: float = 2.0
def log_density(x):
    return -0.5 * jnp.sum((x / Settings().scale) ** 2)
"""

BROKEN = "import nothing_of_this_name"

OPTIONS = ["--num-steps", "20", "--num-particles", "20", "--method", "ula", "--step-size", "0.1"]

pytestmark = pytest.mark.xdist_group("command")


@pytest.fixture
def directory(tmp_path):
    texts = {"plain": PLAIN, "typed": TYPED, "probabilistic": NUMPYRO, "both": BOTH}
    for name, text in {**texts, "broken": BROKEN}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_log_density(directory, capsys):
    out = directory / "out"
    arguments = ["sample", f"{directory}/plain.py:log_density", "--dim", "2", "--out", str(out)]
    assert main([*arguments, *OPTIONS]) == 0
    printed = capsys.readouterr().out
    assert "x[1]" in printed
    assert "completed" in printed
    assert "not yet" in printed
    names = sorted(path.name for path in out.iterdir())
    figures = ["history.png", "marginals.png", "pairs.png"]
    numbers = ["diagnosis.json", "frames.npz", "posterior.npz", "report.html", "summary.txt"]
    assert names == sorted(["checkpoints", *figures, *numbers])
    assert json.loads((out / "diagnosis.json").read_text())["verdict"] == "not yet"
    first = nvgd.load(out / "posterior.npz")
    assert first.particles.shape == (20, 2)
    # The same command with more steps continues the run.
    assert main([*arguments, *OPTIONS, "--num-steps", "30"]) == 0
    assert nvgd.load(out / "posterior.npz").num_steps == 30
    # The figures again, from the stored posterior.
    drawn = {name: (out / name).read_bytes() for name in figures}
    for name in figures:
        (out / name).unlink()
    capsys.readouterr()
    assert main(["plot", str(out)]) == 0
    printed = capsys.readouterr().out
    assert all(str(out / name) in printed for name in figures)
    assert {name: (out / name).read_bytes() for name in figures} == drawn


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((), "is not a results directory of `nvgd sample` or `nvgd reproduce`: it has neither"),
        (("checkpoints",), "holds an unfinished run: repeat its `nvgd sample` command"),
        (("checkpoints", "posterior.npz"), "is damaged or not a file of nvgd"),
    ],
)
def test_directories_without_a_posterior_are_not_plotted(tmp_path, content, message, capsys):
    for name in content:
        (tmp_path / name).touch()
    assert main(["plot", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(content)


def test_a_file_whose_classes_look_up_their_module(directory):
    model = f"{directory}/typed.py:log_density"
    out = str(directory / "out")
    assert main(["sample", model, "--dim", "2", "--out", out, *OPTIONS]) == 0


def test_a_numpyro_model(directory, capsys):
    model = f"{directory}/probabilistic.py:model"
    assert main(["sample", model, "--out", str(directory / "out"), *OPTIONS]) == 0
    assert "rate" in capsys.readouterr().out
    assert np.all(np.asarray(nvgd.load(directory / "out" / "posterior.npz").draws["rate"]) > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint-every", "0"], "checkpoint_every must be"),
        (["--num-particles", "0"], "num_particles must be a whole number ≥ 1, got 0"),
        (["--num-steps", "-3"], "num_steps must be a whole number ≥ 1, got -3"),
        (["--num-replicates", "-1"], "num_replicates must be a whole number ≥ 0, got -1"),
        (["--max-steps", "9"], 'max_steps is for num_steps="auto"'),
        (["--devices", "-1", "--data-devices", "2"], "devices must be a whole number ≥ 1, got -1"),
        (["--devices", "8", "--data-devices", "3"], "devices must be a multiple of data_devices"),
        (["--devices", "512", "--data-devices", "2"], "256 × 2 devices needs 512 of them"),
    ],
)
def test_options_that_cannot_be(directory, options, message, capsys):
    model = f"{directory}/plain.py:log_density"
    out = str(directory / "out")
    assert main(["sample", model, "--dim", "2", "--out", out, *OPTIONS, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("plain.py", "must be given as FILE.py:NAME"),
        ("absent.py:model", "must name a file that exists"),
        ("plain.py:density", "defines nothing called 'density'"),
        ("plain.py:scale", "must be a function, a pymc.Model or an nvgd.Target, got a float"),
        ("broken.py:model", "could not be run: ModuleNotFoundError"),
        ("both.py:log_density", "needs --dim, the length of the vector that it takes"),
        ("both.py:log_density", "`target = nvgd.from_numpyro(model, data)`"),
    ],
)
def test_models_that_cannot_be_loaded(directory, model, message, capsys):
    assert main(["sample", f"{directory}/{model}", "--out", str(directory / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (directory / "out").exists()


def arguments(directory):
    model = f"{directory}/plain.py:log_density"
    return ["sample", model, "--dim", "2", "--out", str(directory / "out"), *OPTIONS]


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], None), (["--num-steps", "auto"], "auto"), (["--num-steps", "700"], 700)],
)
def test_the_length_is_automatic_unless_it_is_given(words, expected):
    command = parse(COMMANDS, ["sample", "model.py:target", *words], program="nvgd", version="0")
    assert command.num_steps == expected


def ctrl_c_at(monkeypatch, number):
    """Ctrl-C at one of the frames of the animation, of which there is one per step."""
    calls, take = [], Frames.__call__

    def interrupted(self, state):
        calls.append(None)
        if len(calls) == number:
            raise KeyboardInterrupt
        take(self, state)

    monkeypatch.setattr(Frames, "__call__", interrupted)


@pytest.mark.parametrize(
    ("number", "sentence", "is_there"),
    [
        (1, "interrupted before the first step; the same command starts anew.", False),
        (8, "interrupted after step 7; the same command continues the run.", True),
    ],
)
def test_ctrl_c(directory, monkeypatch, capsys, number, sentence, is_there):
    assert main(arguments(directory)) == 0
    whole = nvgd.load(directory / "out" / "posterior.npz")
    (directory / "out").rename(directory / "whole")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        ctrl_c_at(patch, number)
        assert main(arguments(directory)) == 130
    printed = capsys.readouterr()
    assert printed.err == f"nvgd: {sentence}\n"
    assert printed.out == ""
    # A checkpoint is promised only if there is one.
    assert bool(list((directory / "out").glob("checkpoints/*.npz"))) == is_there
    assert main(arguments(directory)) == 0
    again = nvgd.load(directory / "out" / "posterior.npz")
    assert np.array_equal(again.particles, whole.particles)
    frames = (np.load(directory / name / "frames.npz") for name in ("out", "whole"))
    assert len({tuple(frame["steps"].tolist()) for frame in frames}) == 1


def test_ctrl_c_while_results_are_written(directory, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(sample, "write_report", press_ctrl_c)
        assert main(arguments(directory)) == 130
    error = capsys.readouterr().err
    assert "after the last step; the same command writes the rest of the results" in error
    assert main(arguments(directory)) == 0
    assert (directory / "out" / "report.html").exists()


def press_ctrl_c(*arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["posterior.npz", "report.html", "pairs.png"])
def test_a_full_disk_while_results_are_written(directory, monkeypatch, capsys, name):
    replace = Path.replace

    def full(self, path):
        if Path(path).name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, path)

    out = directory / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert main(arguments(directory)) == 1
    error = capsys.readouterr().err
    assert f"nvgd: '{out / name}' could not be written: No space left on device. " in error
    assert error.count("\n") == 1
    assert not (out / name).exists()
    assert not list(out.glob(".*"))
    # What was there before stays, and the same command writes the rest.
    assert main(arguments(directory)) == 0
    assert (out / name).exists()


def test_a_full_disk_costs_frames_of_the_animation_only(directory, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nvgd.cli.report.frames.write_archive", full)
    monkeypatch.setattr("nvgd.cli.report.frames.SECONDS_BETWEEN_WRITES", -1.0)
    assert main(arguments(directory)) == 0
    assert (directory / "out" / "report.html").exists()


def test_a_directory_that_another_run_uses(directory, capsys):
    with locked(directory / "out"):
        assert main(arguments(directory)) == 2
        assert not list((directory / "out").glob("[!.]*"))
    error = capsys.readouterr().err
    assert error.startswith("nvgd: out is in use by another run (process ")
    assert error.count("\n") == 1
    assert main(arguments(directory)) == 0
