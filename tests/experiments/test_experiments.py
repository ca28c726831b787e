"""The paper's experiments: they run, record, resume, and refuse bad input."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvgd.cli.main import All, main
from nvgd.experiments import covertype, network, records
from nvgd.experiments.base import reproduce
from nvgd.experiments.catalogue import EXPERIMENTS, from_records
from nvgd.experiments.classification import ClassificationExperiment, Split, measures
from nvgd.experiments.records import read
from nvgd.experiments.stein import Stein
from nvgd.flow.methods import SVGD
from nvgd.targets.target import Target

FIGURES = {
    "stein": {"stein.png"},
    "funnel": {"funnel-curves.png", "funnel-scatter.png", "figure-1.gif"},
    "sweep": {"sweep.png"},
    "covertype": {"covertype.png"},
    "mnist": {"mnist.png"},
}


def reproduce_quickly(name, out, *options):
    environment = dict(os.environ)
    # Smaller still, where that saves a third of the time.
    smaller = {"sweep": ["--max-dim", "2", "--num-particles", "50"], "mnist": ["--num-test", "100"]}
    options = (*options, *smaller.get(name, []))
    if name in ("mnist", "stein"):
        # These run long enough for some compiler optimisation to pay off.
        environment["XLA_FLAGS"] = environment["XLA_FLAGS"].replace("level=0", "level=1")
    command = [sys.executable, "-m", "nvgd.cli", "reproduce", name, "--quick", "--seeds", "1"]
    result = subprocess.run(
        [*command, "--out", out, *options],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert (out / "table.md").read_text().strip() in result.stdout


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The results directory of a quick experiment, made once per experiment by the command."""
    directory = tmp_path_factory.mktemp("quick")

    @functools.cache
    def run(name):
        out = directory / name
        reproduce_quickly(name, out)
        return out

    return run


# One worker per experiment, so that its tests share one run.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in EXPERIMENTS]
)
def test_quick_experiment_runs_to_the_end_and_its_records_parse(name, quick, tmp_path, capsys):
    out = tmp_path / name
    shutil.copytree(quick(name), out)
    config, rows, _ = read(out)
    assert config["experiment"] == name
    assert config["settings"]["quick"] is True
    assert {"jax", "nvgd"} <= set(config["versions"])
    experiment = from_records(out)
    done = [row["task"] for row in rows if row.get("done")]
    assert done == [task.name for task in experiment.tasks()]
    files = {path.name for path in out.iterdir()}
    records = {"config.json", "metrics.jsonl", "particles.npz", "table.md"}
    assert files == FIGURES[name] | records
    table = (out / "table.md").read_text()
    # Figures are drawn from the records alone: deleted, they can be drawn again.
    for figure in FIGURES[name]:
        (out / figure).unlink()
    assert main(["plot", str(out)]) == 0
    assert table.strip() in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == files
    assert (out / "table.md").read_text() == table


@pytest.mark.xdist_group("mnist")
def test_an_unfinished_run_shows_the_methods_that_it_has(quick, tmp_path, capsys):
    out = tmp_path / "unfinished"
    shutil.copytree(quick("mnist"), out)
    (out / "mnist.png").unlink()
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert main(["plot", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "holds 10 of 11 tasks, which are shown" in shown
    assert "SVGD Adam" in shown
    assert "SGLD" not in shown
    assert (out / "mnist.png").exists()
    # Searches alone cannot be shown.
    (out / "metrics.jsonl").write_text(
        "".join(line for line in lines if json.loads(line)["task"].startswith("tune/"))
    )
    assert main(["plot", str(out)]) == 2
    assert "holds 5 of 11 tasks: finish the run" in capsys.readouterr().err


def small_stein(out, **options):
    return Stein(
        out=out, seeds=3, dim=4, num_particles=50, num_steps=20, measure_every=10, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results directory of a small finished experiment; read-only."""
    out = tmp_path_factory.mktemp("small") / "stein"
    reproduce(small_stein(out))
    return out


@pytest.mark.xdist_group("stein")
def test_an_interrupted_run_resumes_to_the_same_numbers(finished, tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    run = Stein.run

    def interrupted(self, task, report, records):
        if task.seed == 1:
            report.measure(step=0, discrepancy=-1.0)
            raise KeyboardInterrupt
        return run(self, task, report, records)

    monkeypatch.setattr(Stein, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(small_stein(broken))
    monkeypatch.undo()
    # A crash in the middle of a line.
    with (broken / "metrics.jsonl").open("a") as stream:
        stream.write('{"task": "seed-1", "st')
    monkeypatch.setattr(records, "_commit", lambda: "a later one")
    reproduce(small_stein(broken, resume=True))
    config, rows, _ = read(broken)
    assert rows == read(finished)[1]
    assert [environment["commit"] for environment in config["resumed_with"]] == ["a later one"]
    # Resumed again with the same code, the records stay the same.
    reproduce(small_stein(broken, resume=True))
    assert read(broken)[0] == config


class SmallClassification(ClassificationExperiment):
    """Logistic regression with two coefficients and their precision, by SVGD."""

    name = "small"
    methods = ("SVGD",)
    untuned = ()
    checkpoint_every = 7

    def __init__(self, out, resume=False):
        super().__init__(
            out=out,
            resume=resume,
            seeds=2,
            num_particles=5,
            batch_size=10,
            num_steps=30,
            tuning_steps=4,
            largest_step_size=0.1,
            num_decades=2,
            measure_every=5,
            max_inner_steps=1,
        )

    @functools.cached_property
    def rows(self):
        rng = np.random.default_rng(0)
        features = rng.normal(size=(100, 2)).astype(np.float32)
        return features, (features[:, 0] > 0).astype(np.float32)

    def flow(self, method, step_size):
        return SVGD(jnp.asarray(step_size))

    def target(self, *, tuning):
        return Target(
            covertype.log_prior,
            dim=3,
            log_likelihood=covertype.log_likelihood,
            data=self.rows,
            batch_size=self.batch_size,
        )

    def split(self, *, tuning):
        return Split(self.rows[0], self.rows[1].astype(int))

    def initial(self, key):
        return jax.random.normal(key, (self.num_particles, 3))

    def probabilities(self, particles, inputs):
        positive = jax.nn.sigmoid(inputs @ particles[:, 1:].T).mean(axis=1)
        return np.stack([1 - positive, positive], axis=1)

    def table(self, rows, arrays):
        return ""

    def draw(self, rows, arrays, directory):
        return []


@pytest.fixture(scope="module")
def small_classification(tmp_path_factory):
    """The results directory of a finished `SmallClassification`; read-only."""
    out = tmp_path_factory.mktemp("small") / "classification"
    reproduce(SmallClassification(out))
    return out


def check_same_records(directory, expected_directory):
    _, rows, arrays = read(directory)
    _, expected_rows, expected_arrays = read(expected_directory)
    assert rows == expected_rows
    assert set(arrays) == set(expected_arrays)
    for name, array in expected_arrays.items():
        assert array.tobytes() == arrays[name].tobytes()


@pytest.mark.xdist_group("classification")
def test_an_interrupted_classification_goes_on_within_its_tasks(
    small_classification, tmp_path, monkeypatch
):
    broken = tmp_path / "broken"
    num_measured = len([row for row in read(small_classification)[1] if "accuracy" in row])
    measure, calls = ClassificationExperiment.measure, []

    def interrupted(self, particles, split):
        calls.append(None)
        if len(calls) in kills:
            raise KeyboardInterrupt
        return measure(self, particles, split)

    monkeypatch.setattr(ClassificationExperiment, "measure", interrupted)
    # At the third step size of the search; at step 20 of the second run, which leaves a checkpoint;
    # and again there, when the run resumes.
    kills = {3, 3 + 2 + 7 + 5, 3 + 2 + 7 + 5 + 1}
    for attempt in range(len(kills)):
        with pytest.raises(KeyboardInterrupt):
            reproduce(SmallClassification(broken, resume=attempt > 0))
    assert (broken / "checkpoints" / "SVGD-1").exists()
    reproduce(SmallClassification(broken, resume=True))
    check_same_records(broken, small_classification)
    assert not (broken / "checkpoints").exists()
    # Measured again: the interrupted measurements.
    assert len(calls) == num_measured + len(kills)


def test_without_git_a_run_has_no_commit(monkeypatch):
    def missing(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert records._environment()["commit"] is None


def test_quick_cuts_down_what_is_not_given():
    assert Stein(quick=True).scaled().seeds == 2
    given = Stein(quick=True, seeds=7).scaled().settings()
    assert given["seeds"] == 7
    assert given["num_steps"] < Stein().num_steps


@pytest.mark.xdist_group("funnel")
def test_measurements_without_their_particles_are_no_finished_tasks(quick, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(quick("funnel"), broken)
    (broken / "particles.npz").unlink()
    assert main(["plot", str(broken)]) == 2
    assert re.search(r"holds 1 of \d+ tasks: finish the run", capsys.readouterr().err)


@pytest.mark.xdist_group("classification")
def test_lost_particles_are_made_again(small_classification, tmp_path):
    """A task without its arrays is not finished."""
    broken = tmp_path / "broken"
    shutil.copytree(small_classification, broken)
    with np.load(broken / "particles.npz") as stored:
        particles = dict(stored)
    del particles["SVGD/1/particles"]
    np.savez(broken / "particles.npz", **particles)
    reproduce(SmallClassification(broken, resume=True))
    check_same_records(broken, small_classification)


@pytest.mark.xdist_group("stein")
def test_output_that_nobody_reads_is_no_fault(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "stein")
    command = [sys.executable, "-m", "nvgd.cli", "plot", tmp_path / "stein"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, complaints = process.communicate()
    assert complaints == b""
    assert process.returncode == 141
    assert (tmp_path / "stein" / "stein.png").exists()


@pytest.mark.xdist_group("stein")
def test_a_directory_with_other_contents_is_refused_and_left_alone(finished, tmp_path, capsys):
    out = tmp_path / "stein"
    shutil.copytree(finished, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    shutil.copytree(out, tmp_path / "cut")
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut" / "metrics.jsonl").write_text("".join(lines[:-1]))
    small = ["--dim", "4", "--num-particles", "50", "--num-steps", "20", "--seeds", "3"]
    cases = [
        (["reproduce", "funnel", "--out", str(out)], "holds the experiment 'stein', not 'funnel'"),
        (["reproduce", "stein", *small, "--out", str(out)], "holds a run already: add --resume"),
        (
            ["reproduce", "stein", *small, "--learning-rate", "0.5", "--out", str(out), "--resume"],
            "other settings (learning_rate)",
        ),
        (["reproduce", "stein", "--out", str(tmp_path)], "must be new or empty"),
        (["reproduce", "stein", "--out", str(tmp_path / "no"), "--resume"], "no run to resume"),
        (["plot", str(tmp_path)], "is not a results directory"),
        (["plot", str(tmp_path / "cut")], "holds 5 of 6 tasks: finish the run"),
        (["reproduce", "covertype", "--data-dir", str(tmp_path)], "must hold covertype.npz"),
    ]
    for arguments, message in cases:
        capsys.readouterr()
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"stein", "cut"}


@pytest.mark.xdist_group("covertype")
def test_settings_and_places_are_checked_before_the_first_step(tmp_path, capsys):
    out = tmp_path / "out"
    occupied = tmp_path / "all" / "sweep"
    occupied.mkdir(parents=True)
    (occupied / "mine").write_text("mine")
    cases = [
        (["mnist", "--num-test", "0"], "num_test must be a whole number ≥ 1, got 0"),
        (["mnist", "--patience", "0"], "patience must be a whole number ≥ 1, got 0"),
        (["covertype", "--learning-rate", "-1"], "learning_rate must be a finite number > 0"),
        (["covertype", "--max-inner-steps", "0"], "max_inner_steps must be a whole number ≥ 1"),
        (["covertype", "--batch-size", "1000000000"], "batch_size must be"),
    ]
    for arguments, message in cases:
        assert main(["reproduce", *arguments, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert main(["reproduce", "all", "--out", str(occupied.parent)]) == 2
    assert f"must be new or empty, got {str(occupied)!r}" in capsys.readouterr().err
    # No experiment has begun.
    assert not out.exists()
    assert [path.name for path in occupied.parent.iterdir()] == ["sweep"]


def test_all_goes_on_where_there_is_a_run_and_begins_the_others(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "stein")
    (tmp_path / "funnel").mkdir()
    every = All(out=tmp_path, resume=True, seeds=3, data_dir=tmp_path).experiments()
    assert {e.name: e.resume for e in every} == {name: name == "stein" for name in EXPERIMENTS}
    assert [e.data_dir for e in every if isinstance(e, ClassificationExperiment)] == [tmp_path] * 2


@pytest.mark.xdist_group("stein")
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '["experiment", "settings"]'),
        ("config.json", '{"experiment": "stein", "settings": 3}'),
        ("metrics.jsonl", '{"task": 1}\nnot json\n'),
        ("metrics.jsonl", "3\n"),
        ("metrics.jsonl", '{"task": ["a"]}\n'),
        ("particles.npz", "PK no zip"),
    ],
)
def test_damaged_records_are_named(finished, tmp_path, capsys, file, damage):
    shutil.copytree(finished, tmp_path / "stein")
    (tmp_path / "stein" / file).write_text(damage)
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "stein")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_logistic_log_density_equals_numpy_with_its_jacobian():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 5)), rng.integers(0, 2, 40).astype(float)

    def log_density(position):
        log_precision, coefficients = position[0], position[1:]
        precision = np.exp(log_precision)
        logit = features @ coefficients
        likelihood = np.sum(labels * logit - np.log1p(np.exp(logit)))
        prior = np.sum(0.5 * np.log(precision) - 0.5 * precision * coefficients**2)
        gamma = (1.0 - 1) * np.log(precision) - 0.01 * precision
        return likelihood + prior + gamma + log_precision

    data = (features.astype(np.float32), labels.astype(np.float32))
    target = Target(covertype.log_prior, dim=6, log_likelihood=covertype.log_likelihood, data=data)
    particles = 0.5 * rng.normal(size=(4, 6))
    values, scores = target.log_densities_and_scores(jnp.asarray(particles, jnp.float32))
    for position, value, score in zip(particles, values, scores, strict=True):
        assert np.isclose(value, log_density(position), rtol=1e-5)
        steps = 1e-5 * np.eye(6)
        numeric = [(log_density(position + s) - log_density(position - s)) / 2e-5 for s in steps]
        assert np.allclose(score, numeric, rtol=1e-3, atol=1e-3)


def test_laplace_reference_is_the_optimum_and_its_curvature():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(500, 3))
    labels = (rng.random(500) < 1 / (1 + np.exp(-features @ [1.0, -0.5, 0.2]))).astype(float)
    mode, deviations = covertype.laplace(features, labels)
    with jax.enable_x64(True):
        target = Target(
            covertype.log_prior,
            dim=4,
            log_likelihood=covertype.log_likelihood,
            data=(features, labels),
        )
        position = jnp.asarray(mode)
        assert np.allclose(jax.grad(target.log_density)(position), 0, atol=1e-6)
        covariance = jnp.linalg.inv(-jax.hessian(target.log_density)(position))
        assert np.allclose(jnp.sqrt(jnp.diagonal(covariance)), deviations, rtol=1e-6)


def plain_logits(parameters, images):
    """The same network with XLA's own convolution."""
    kernel_1, bias_1, kernel_2, bias_2, weights, bias = network.unpack(parameters)
    hidden = images[:, None]
    for kernel, offset in ((kernel_1.reshape(8, 1, 3, 3), bias_1), (kernel_2, bias_2)):
        kernel = kernel.reshape(8, -1, 3, 3)
        hidden = jax.lax.conv_general_dilated(hidden, kernel, (2, 2), "SAME")
        hidden = jax.nn.relu(hidden + offset[:, None, None])
    return hidden.reshape(len(images), -1) @ weights.T + bias


@pytest.mark.parametrize("name", ["unit", "authors"])
def test_network_has_the_papers_size_and_the_gradient_of_a_plain_convolution(name):
    assert network.NUM_PARAMETERS == 80 + 584 + 3930 == 4594
    largest, scale = {"unit": (255.0, 0.15), "authors": (1.0, 0.01)}[name]
    setting = network.SETTINGS[name]
    images = jax.random.uniform(jax.random.key(0), (6, 28, 28)) * 255
    labels = jnp.arange(6)
    particles = scale * jax.random.normal(jax.random.key(1), (4, 4594))
    target = Target(
        functools.partial(network.log_prior, setting),
        dim=4594,
        log_likelihood=functools.partial(network.log_likelihood, setting),
        data=(images, labels),
        vectorised=True,
        particles_at_once=2,
    )
    values, scores = target.log_densities_and_scores(particles)

    def plain(parameters):
        chosen = jax.nn.log_softmax(plain_logits(parameters, images / largest))
        chosen = chosen[jnp.arange(6), labels]
        return jnp.sum(chosen) - 0.5 * jnp.sum(parameters**2) / scale**2

    expected, gradients = jax.vmap(jax.value_and_grad(plain))(particles)
    assert np.allclose(values, expected, rtol=1e-5)
    size = np.abs(gradients).max()
    assert np.allclose(scores, gradients, rtol=1e-3, atol=1e-5 * size + 1e-3)


def test_measures_of_predictions():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.55, 0.45]])
    found = measures(probabilities, np.array([0, 1, 1, 0]))
    assert found["accuracy"] == 0.75
    assert np.isclose(found["log_likelihood"], np.mean(np.log([0.9, 0.4, 0.8, 0.55])))
    # All four confidences fall into different bins.
    expected = (abs(1 - 0.9) + abs(0 - 0.6) + abs(1 - 0.8) + abs(1 - 0.55)) / 4
    assert np.isclose(found["calibration_error"], expected)
