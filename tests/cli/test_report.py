"""The report of `nvgd sample` in a real browser: whole, silent, and readable on a telephone."""

import re

import pytest
from browser import CHROMIUM, DRIVER, MISSING, open_browser

from nvgd.cli import main

MODEL = """
import jax.numpy as jnp
import nvgd
target = nvgd.Target(
    lambda x: -0.5 * jnp.sum(x["a"] ** 2) - 0.5 * (x["</script><b>"] - 3.0) ** 2,
    example={"a": jnp.zeros(5), "</script><b>": 0.0},
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
        # The animation: another frame shows another picture.
        frames = browser.run(
            "const slider = document.getElementById('frame');"
            "const canvas = document.getElementById('canvas');"
            "const seen = [[document.getElementById('step').textContent, canvas.toDataURL()]];"
            "slider.value = 0; slider.dispatchEvent(new Event('input'));"
            "seen.push([document.getElementById('step').textContent, canvas.toDataURL()]);"
            "document.getElementById('play').click();"
            "return [...seen, document.getElementById('play').textContent]"
        )
        assert frames[0][0] == "step 60"
        assert frames[1][0] == "step 0"
        assert frames[0][1] != frames[1][1]
        assert frames[2] == "Pause"
        assert browser.messages() == []
