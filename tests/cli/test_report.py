"""The report of `nvgd sample` in a real browser: whole, silent, and readable on a telephone."""

import ast
import base64
import inspect
import json
import re

import numpy as np
import pytest
from browser import CHROMIUM, DRIVER, MISSING, open_browser

from nvgd.cli import main
from nvgd.cli.report.advice import for_command_line
from nvgd.cli.report.film import LARGEST, OUTSIDE, pack_film
from nvgd.posterior.diagnostics import verdict
from nvgd.posterior.diagnostics.diagnosis import Diagnosis

MODEL = """
import jax.numpy as jnp
import nvgd
target = nvgd.Target(
    lambda x: -0.5 * jnp.sum(x["a"] ** 2) - 0.5 * (x["</script><b>"] - 3.0) ** 2,
    example={"a": jnp.zeros(8), "</script><b>": 0.0},
)
"""

pytestmark = pytest.mark.xdist_group("command")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    (directory / "model.py").write_text(MODEL)
    options = ["--num-steps", "60", "--num-particles", "30", "--method", "ula"]
    arguments = ["sample", f"{directory}/model.py:target", "--out", str(directory / "out")]
    assert main([*arguments, *options, "--step-size", "0.1"]) == 0
    return directory / "out" / "report.html"


def test_the_page_needs_nothing_else(report):
    page = report.read_text()
    references = re.findall(r"""(?:src|href|srcset)=["']?([^"'\s>]{1,30})""", page)
    assert len(references) == 7
    assert all(reference.startswith("data:") for reference in references)
    assert not re.search(r"https?:|@import|url\(", page.replace("data:", ""))
    # Nothing that a name holds can end a script or begin an element.
    assert "</script><b>" not in page
    assert "None" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_the_page_in_a_browser(report, tmp_path):
    with open_browser(tmp_path) as browser:
        for width, height in ((1280, 900), (390, 844)):
            browser.resize(width, height)
            browser.open(report)
            assert browser.messages() == []
            pictures = browser.run(
                "return [...document.images].map(i => [i.id, i.complete && i.naturalWidth > 0])"
            )
            assert pictures == [["marginals", True], ["pairs", True], ["history", True]]
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert browser.run("return innerWidth") == width
            # Letters of pictures are not made smaller than 85 % of what they were drawn at.
            scales = browser.run("return [...document.images].map(i => i.width / i.naturalWidth)")
            assert min(scales) > 0.75
            # Figures and page follow the device's colours.
            backgrounds = []
            for scheme in ("light", "dark"):
                browser.prefer(scheme)
                backgrounds.append(browser.run("return getComputedStyle(document.body).background"))
            assert backgrounds[0] != backgrounds[1]
        assert browser.run("return document.getElementById('verdict').textContent.length") > 50
        headings = browser.run("return [...document.querySelectorAll('h2')].map(h => h.innerText)")
        assert [heading.split(":")[0] for heading in headings] == [
            "Summary",
            "Marginals",
            "Pairs",
            "Particles during the run",
            "History of the run",
            "Diagnostics",
            "Settings",
        ]
        # The film: another frame, and other scalars, show another picture.
        frames = browser.run(
            "const [slider, step, play] = ['frame', 'step', 'play'].map("
            "    (name) => document.querySelector('.' + name));"
            "const canvas = document.querySelector('#film canvas');"
            "const look = () => [step.textContent, canvas.toDataURL()];"
            "const seen = [look()];"
            "slider.value = 0; slider.dispatchEvent(new Event('input')); seen.push(look());"
            "const up = document.querySelector('#film .up');"
            "up.value = (Number(up.value) + 1) % up.options.length;"
            "up.dispatchEvent(new Event('change')); seen.push(look());"
            "play.click(); return [...seen, play.textContent, up.options.length]"
        )
        assert [frame[0] for frame in frames[:3]] == ["step 60", "step 0", "step 0"]
        assert len({frame[1] for frame in frames[:3]}) == 3
        assert frames[3:] == ["Pause", 9]
        # Any pair of draws.
        pictures = browser.run(
            "const canvas = document.querySelector('#pair canvas');"
            "const seen = [canvas.toDataURL()];"
            "const up = document.querySelector('#pair .up');"
            "up.value = (Number(up.value) + 1) % up.options.length;"
            "up.dispatchEvent(new Event('change')); seen.push(canvas.toDataURL());"
            "return [...seen, up.options.length]"
        )
        assert pictures[0] != pictures[1]
        assert pictures[2] == 9
        assert browser.messages() == []


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_a_single_scalar_has_neither_pairs_nor_a_choice(tmp_path):
    (tmp_path / "model.py").write_text("def log_density(x):\n    return -0.5 * x[0] ** 2\n")
    arguments = ["sample", f"{tmp_path}/model.py:log_density", "--dim", "1", "--method", "ula"]
    options = ["--num-steps", "10", "--num-particles", "10", "--out", str(tmp_path / "out")]
    assert main([*arguments, *options]) == 0
    with open_browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "out" / "report.html")
        assert browser.messages() == []
        assert browser.run("return [...document.images].map(i => i.id)") == ["marginals", "history"]
        assert browser.run("return document.getElementById('pair')") is None
        assert browser.run("return document.querySelector('#film .across').offsetParent") is None
        assert browser.run("return document.querySelector('#film canvas').offsetParent") is not None


def test_a_film_shows_what_matters_and_marks_what_is_outside():
    names = ["wide", "plain"]
    positions = np.zeros((4, 50, 2))
    positions[:, :, 0] = np.geomspace(1e-3, 1e3, 50)
    positions[:, :, 1] = np.linspace(-1, 1, 50)
    positions[0, 0, 1] = 1e6
    film = pack_film(positions, [0, 5, 10, 15], names, captions=["flow"] * 4)
    assert film["log"] == [True, False]
    codes = np.frombuffer(base64.b64decode(film["codes"]), "<u2").reshape(film["shape"])
    assert codes[0, 0, 1] == OUTSIDE
    low, high = film["limits"][0]
    assert np.allclose(
        low + codes[1, :, 0] / LARGEST * (high - low), np.linspace(-3, 3, 50), atol=1e-3
    )
    assert json.loads(json.dumps(film)) == film


def test_advice_is_in_the_words_of_the_command_line():
    """No sentence of a verdict leaves a person with an argument of a Python function."""
    tree = ast.parse(inspect.getsource(verdict))
    nodes = list(ast.walk(tree))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    texts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
        for node in formatted
    ]
    skipped = {id(part) for node in formatted for part in ast.walk(node)}
    # An expression that is a statement of its own is a docstring.
    skipped |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts += [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in skipped
    ]
    assert len(texts) > 30
    python = re.compile(r"\w=|\w\(\)|\bnum_\w|\bmax_")
    assert sum(bool(python.search(text)) for text in texts) > 5
    for text in texts:
        said = for_command_line(Diagnosis("not yet", text, text, {}, (text,)))
        for shown in (said.reason, said.advice, *said.cautions):
            assert not python.search(shown.replace("JAX_ENABLE_X64=1", "")), shown
