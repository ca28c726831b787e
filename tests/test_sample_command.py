"""`nvgd sample`: from a file with a model to numbers, figures and particles."""

import json

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
    texts = {"plain": PLAIN, "typed": TYPED, "probabilistic": NUMPYRO, "broken": BROKEN}
    for name, text in texts.items():
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
    # Again, with more steps: goes on.
    assert main([*arguments, *OPTIONS, "--num-steps", "30"]) == 0
    assert nvgd.load(out / "posterior.npz").num_steps == 30


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
        (["--devices", "-1", "--data-devices", "2"], "devices must be a whole number ≥ 1, got -1"),
        (["--devices", "8", "--data-devices", "3"], "devices must be a multiple of data_devices"),
        (["--devices", "512", "--data-devices", "2"], "256 × 2 × 1 devices needs 512 of them"),
    ],
)
def test_options_that_cannot_be(directory, options, message, capsys):
    model = f"{directory}/plain.py:log_density"
    out = str(directory / "out")
    assert main(["sample", model, "--dim", "2", "--out", out, *OPTIONS, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("plain.py", "must be given as FILE.py:NAME"),
        ("absent.py:model", "must name a file that exists"),
        ("plain.py:density", "defines nothing called 'density'"),
        ("plain.py:scale", "must be a function, a pymc.Model or an nvgd.Target, got a float"),
        ("broken.py:model", "could not be run: ModuleNotFoundError"),
    ],
)
def test_models_that_cannot_be_loaded(directory, model, message, capsys):
    assert main(["sample", f"{directory}/{model}", "--out", str(directory / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (directory / "out").exists()
