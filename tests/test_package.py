"""The package as installed: imports, command line, demo."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from nvgd.cli import main
from nvgd.files import write_atomically


def python(code: str, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return result.stdout.strip()


def test_importing_the_library_pulls_nothing_heavy():
    code = "import sys, nvgd; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = set(python(code).split())
    assert {"jax", "equinox", "optax", "jaxtyping"} <= loaded
    assert not loaded & {"matplotlib", "PIL", "tqdm", "tyro", "blackjax", "pytest", "beartype"}


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
        "pULA ε",
        "pULA ε/5",
        "exact sample",
        "energy distance",
        "seconds",
    ):
        assert word in printed
    assert sorted(path.name for path in out.iterdir()) == ["demo.gif", "demo.json", "demo.png"]
    records = json.loads((out / "demo.json").read_text())
    assert np.shape(records["methods"]["NVGD"]["mmd_curves"]) == (2, 7)
    with Image.open(out / "demo.gif") as film, Image.open(out / "demo.png") as figure:
        film.seek(2)  # raises if there are fewer frames
        assert min(figure.size) > 600


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["demo", "--num-steps", "0"], "num_steps must be a whole number ≥ 1, got 0"),
        (["demo", "--step-size", "-1"], "step_size must be a finite number > 0, got -1.0"),
        (["demo", "--num-particles", "1"], "num_particles must be a whole number ≥ 2, got 1"),
        (["demo", "--num-seeds", "two"], "--num-seeds must be a whole number, got 'two'; "),
        (["demo", "--step-size", "small"], "--step-size must be a number, got 'small'; "),
        (["demo", "--speed", "1"], "options: --speed"),
        (["demo", "--out"], "missing value for argument '--out'"),
        (["reproduce", "stein", "--seeds", "0"], "seeds must be a whole number ≥ 1, got 0"),
        (["reproduce", "stein", "--seed", "3"], "--seed 3; perhaps you meant --seeds"),
        (
            ["reproduce", "poetry"],
            "options: poetry; accepted: stein, funnel, sweep, covertype, mnist, all; ",
        ),
        (
            ["reproduce"],
            "a command is missing; accepted: stein, funnel, sweep, covertype, mnist, all; ",
        ),
        (["plot"], "missing from nvgd plot: DIRECTORY (A directory that `nvgd reproduce` wrote); "),
        (
            ["sample", "model.py:target", "--initial", "middle"],
            "choice 'middle' for argument '--initial'",
        ),
        (["dance"], "options: dance; accepted: sample, demo, reproduce, plot; "),
        ([], "a command is missing; accepted: sample, demo, reproduce, plot; "),
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


def test_help_is_printed_whole(capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "funnel", "--help"])
    assert end.value.code == 0
    assert "--seeds" in capsys.readouterr().out


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    assert main(["demo", "--out", str(occupied)]) == 2
    assert "out must be a directory that can be written to" in capsys.readouterr().err
    assert occupied.read_text() == "mine"


def test_version(capsys):
    import nvgd

    assert main(["--version"]) == 0
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


def test_the_command_line_keeps_compiled_programs_in_the_users_cache(tmp_path):
    code = (
        "import jax; from nvgd.compilation import keep_compiled_programs as keep; keep();"
        "print(jax.config.jax_compilation_cache_dir)"
    )
    home = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    home.pop("JAX_COMPILATION_CACHE_DIR", None)
    assert python(code, home) == str(tmp_path / "nvgd" / "compiled")
    elsewhere = {**home, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine")}
    assert python(code, elsewhere) == str(tmp_path / "mine")
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    assert python(code, {**home, "XDG_CACHE_HOME": str(occupied)}) == "None"
