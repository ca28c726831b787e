"""The package as installed: imports, command line, demo."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nvgd._support.files import write_atomically
from nvgd.cli import main
from nvgd.cli.main import COMMANDS
from nvgd.cli.parsing import Group, parse
from nvgd.cli.sample import Sample
from nvgd.experiments import demo
from nvgd.experiments.mnist import Mnist


def python(code: str, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return result.stdout.strip()


def test_importing_the_library_pulls_nothing_heavy():
    code = "import sys, nvgd; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = set(python(code).split())
    assert {"jax", "equinox", "optax", "jaxtyping"} <= loaded
    assert not loaded & {"matplotlib", "PIL", "tqdm", "blackjax", "pytest", "beartype"}


def test_every_public_name_exists_and_is_documented():
    import nvgd

    for name in nvgd.__all__:
        assert getattr(nvgd, name).__doc__, name


def test_demo_runs_to_the_end_and_writes_what_it_says(tmp_path, capsys):
    out = tmp_path / "new" / "demo"
    options = ["--num-steps", "6", "--num-particles", "12", "--num-seeds", "2"]
    assert main(["demo", "--out", str(out), *options]) == 0
    printed = capsys.readouterr().out
    for word in (
        "NVGD paper",
        "NVGD  ",
        "SVGD",
        "Langevin  ",
        "Langevin ε/5",
        "exact sample",
        "energy distance",
        "first run, s",
    ):
        assert word in printed
    assert sorted(path.name for path in out.iterdir()) == ["demo.gif", "demo.json", "demo.png"]
    records = json.loads((out / "demo.json").read_text())
    assert np.shape(records["methods"]["NVGD"]["curves"]["energy"]) == (2, 7)
    with Image.open(out / "demo.gif") as film, Image.open(out / "demo.png") as figure:
        film.seek(2)  # raises if there are fewer frames
        assert min(figure.size) > 600


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["demo", "--num-steps", "0"], "num_steps must be a whole number ≥ 1, got 0"),
        (["demo", "--step-size", "-1"], "step_size must be a finite number > 0, got -1.0"),
        (["demo", "--num-particles", "1"], "num_particles must be a whole number ≥ 2, got 1"),
        (["demo", "--num-seeds", "two"], "--num-seeds: must be a whole number, got 'two'; "),
        (["demo", "--step-size", "small"], "--step-size: must be a number, got 'small'; "),
        (["demo", "--zoom=1"], "unknown argument '--zoom=1'; `nvgd demo --help` lists"),
        (["demo", "two\nlines"], r"unknown argument 'two\nlines'; "),
        (["demo", "--out"], "argument --out: expected one argument; "),
        (["reproduce", "stein", "--seeds", "0"], "seeds must be a whole number ≥ 1, got 0"),
        (["reproduce", "stein", "--seed", "3"], "'--seed'; perhaps you meant --seeds; "),
        (["reproduce", "--quick", "all"], "must come after the command, as in `nvgd reproduce all"),
        (["reproduce", "poetry"], "argument EXPERIMENT: invalid choice: 'poetry' (choose from "),
        (
            ["reproduce"],
            "EXPERIMENT is missing (choose from stein, funnel, sweep, covertype, mnist, all); ",
        ),
        (["plot"], "required: DIRECTORY; `nvgd plot --help` lists what is accepted"),
        (
            ["sample", "model.py:target", "--initial", "middle"],
            "--initial: must be 'prior' or 'laplace', got 'middle'; `nvgd sample --help`",
        ),
        (
            ["sample", "model.py:target", "--num-steps", "many"],
            "--num-steps: must be a whole number or 'auto', got 'many'; ",
        ),
        (["dance"], "argument COMMAND: invalid choice: 'dance' (choose from "),
        ([], "argument COMMAND is missing (choose from sample, demo, reproduce, plot); "),
    ],
)
@pytest.mark.parametrize("columns", ["40", "200"])
def test_wrong_command_lines_are_answered_with_one_sentence(
    arguments, pattern, columns, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert pattern in error
    assert error.startswith("nvgd: ")
    assert error.endswith(".\n")
    assert len(error.splitlines()) == 1


def every_command(spec: type | Group = COMMANDS, words=()):
    """The words that lead to every command and group, with its class or group."""
    yield list(words), spec
    if isinstance(spec, Group):
        for name, inner in spec.commands.items():
            yield from every_command(inner, (*words, name))


@pytest.mark.parametrize(("words", "spec"), list(every_command()))
def test_help_is_printed_whole(words, spec, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    if isinstance(spec, Group):
        assert spec.description in printed
        assert all(f"\n    {name}" in printed for name in spec.commands)
        return
    assert spec.__doc__.splitlines()[0] in printed
    for field in dataclasses.fields(spec):
        if field.default is dataclasses.MISSING:
            option = rf"  {field.metadata['metavar']}"
        else:
            option = rf"  --{field.name.replace('_', '-')}( [^\s-]\S*|, --no-[a-z]+)"
        # Every option is followed by the docstring of its field, on the same line or on the next.
        assert re.search(rf"^{option}\s{{2,}}[^\s-]", printed, re.MULTILINE), field.name


def test_options_are_read_by_their_types():
    words = ["sample", "a.py:b", "--num-steps", "auto", "--step-size=1e-2", "--out", "here"]
    command = parse(COMMANDS, words, program="nvgd", version="1")
    assert command == Sample("a.py:b", num_steps="auto", step_size=0.01, out=Path("here"))
    words = ["reproduce", "mnist", "--quick", "--resume", "--no-resume", "--seeds", "4"]
    assert parse(COMMANDS, words, program="nvgd", version="1") == Mnist(quick=True, seeds=4)


def test_ctrl_c_ends_with_one_sentence(monkeypatch, capsys):
    def interrupt(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    assert main(["demo"]) == 130
    error = capsys.readouterr().err
    assert error.startswith("nvgd: interrupted; all files are complete")
    assert error.count("\n") == 1


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    assert main(["demo", "--out", str(occupied)]) == 2
    assert "out must be a directory that can be written to" in capsys.readouterr().err
    assert occupied.read_text() == "mine"


def test_version(capsys):
    import nvgd

    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"nvgd {nvgd.__version__}\n"


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "result.txt"

    def fail(temporary):
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert list(tmp_path.iterdir()) == []
    write_atomically(path, lambda temporary: temporary.write_text("whole"))
    assert path.read_text() == "whole"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_compiled_programs_are_kept_in_the_users_cache_by_default(tmp_path):
    code = (
        "import jax, jax.numpy as jnp, nvgd;"
        "nvgd.sample(lambda x: -x @ x, nvgd.ULA(), dim=1, num_particles=2, num_steps=1);"
        "print(jax.config.jax_compilation_cache_dir)"
    )
    home = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    home.pop("JAX_COMPILATION_CACHE_DIR", None)
    shared = tmp_path / "nvgd" / "compiled"
    found = Path(python(code, home))
    assert found.parent == shared
    assert found.stat().st_mode & 0o777 == 0o700
    # A process that was killed while it wrote a program leaves part of it, or nothing.
    quiet = f"import warnings; warnings.simplefilter('error'); {code}"
    for size in (100, 0):
        programs = list(found.glob("*-cache"))
        for program in programs:
            program.write_bytes(program.read_bytes()[:size])
        assert python(quiet, home) == str(found)
    assert programs
    assert all(program.stat().st_size > 0 for program in programs)
    # Programs of somebody else are not run.
    shared.chmod(0o777)
    assert python(code, home) == "None"
    shared.chmod(0o700)
    elsewhere = {**home, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine")}
    assert python(code, elsewhere) == str(tmp_path / "mine")
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    assert python(code, {**home, "XDG_CACHE_HOME": str(occupied)}) == "None"
