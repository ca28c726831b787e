"""The gallery: its targets, and a page that needs nothing else and plays."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.gallery import page, running
from benchmarks.gallery.targets import TARGETS, two_moons
from browser import CHROMIUM, DRIVER, MISSING, open_browser

SIZE = {"num_particles": 20, "num_steps": 12}


@pytest.fixture(scope="module")
def entries():
    """Two targets with real runs of the methods that compile quickly, at one step size each."""
    methods = (running.SVGD, running.LANGEVIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "FLOWS", {name: running.FLOWS[name][:1] for name in methods})
        patch.setattr(running, "NUM_REFERENCE_DRAWS", 500)
        patch.setattr(running, "NUM_EXACT_SAMPLES", 2)
        return {
            name: page.Entry(
                {method: running.best_film(TARGETS[name], method, **SIZE) for method in methods},
                running.exact_level(TARGETS[name], 20),
            )
            for name in ("ring", "funnel")
        }


def test_targets_lie_within_what_is_shown():
    for shown in TARGETS.values():
        draws = np.asarray(shown.density.sample(jax.random.key(0), 2000))
        first, second = (draws[:, ::-1] if shown.is_turned else draws).T
        inside = [
            (values >= low) & (values <= high)
            for values, (low, high) in ((first, shown.across), (second, shown.up))
        ]
        assert np.mean(inside[0] & inside[1]) > 0.95


def test_moons_are_two():
    draws = np.asarray(two_moons().sample(jax.random.key(0), 4000))
    assert np.allclose(draws.mean(axis=0), 0, atol=0.1)
    middle = jax.vmap(two_moons().log_density)(jnp.array([[-1.0, 1.6], [0.0, 0.0], [1.0, -1.6]]))
    assert min(middle[0], middle[2]) > middle[1] + 1


def test_the_last_frame_shows_what_is_returned(entries):
    for entry in entries.values():
        for film in entry.films.values():
            assert film.steps[0] == 0
            assert film.steps[-1] == 12
            assert film.energy[-1] < film.energy[0]
            assert film.positions.shape == (len(film.steps), 20, 2)
        assert entry.exact > 0


def test_the_page_and_the_picture(entries, tmp_path):
    path = tmp_path / "index.html"
    page.write_gallery(entries, path, **SIZE)
    text = path.read_text()
    assert not re.search(r"https?:|@import|url\(", text)
    rows = page.table(entries)
    assert rows[0] == ["", "SVGD", "Langevin", "exact sample"]
    assert all(f"<td>{cell}</td>" in text for cell in rows[1][1:])
    assert page.draw(entries, tmp_path / "gallery.png").stat().st_size > 10_000


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_the_page_in_a_browser(entries, tmp_path):
    path = tmp_path / "index.html"
    page.write_gallery(entries, path, **SIZE)
    with open_browser(tmp_path / "profile") as browser:
        for width, height in ((1280, 900), (390, 844)):
            browser.resize(width, height)
            browser.open(path)
            assert browser.run("return document.documentElement.scrollWidth") <= width
            seen = browser.run(
                "const slider = document.querySelector('.frame');"
                "const look = () => [document.querySelector('.step').textContent,"
                "    document.querySelector('canvas').toDataURL(),"
                "    document.querySelector('.note').textContent];"
                "const seen = [look()];"
                "slider.value = 0; slider.dispatchEvent(new Event('input')); seen.push(look());"
                "document.querySelectorAll('#targets button')[1].click(); seen.push(look());"
                "return seen"
            )
            assert [look[0] for look in seen] == ["step 12", "step 0", "step 12"]
            assert len({look[1] for look in seen}) == 3
            assert all("energy distance" in look[2] for look in seen)
            assert browser.messages() == []
