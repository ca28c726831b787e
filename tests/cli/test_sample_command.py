"""`nvgd sample`: from a file with a model to numbers, figures and particles."""

import json
from pathlib import Path

import numpy as np
import pytest

import nvgd
from nvgd.cli import main

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
