"""The documentation holds: snippets and examples run, links lead somewhere, every public name has
an entry in the reference, and tables are those of the records."""

import doctest
import importlib
import inspect
import math
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import nbformat
import numpy as np
import pytest

import nvgd
from nvgd.experiments.catalogue import EXPERIMENTS, from_records
from nvgd.experiments.records import read

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
SNIPPETS = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}
# Home has the README's first snippet, which runs once.
ON_ITS_OWN = [page for page in PAGES if page != DOCS / "index.md" and SNIPPETS[page]]
MODULES = (
    "coordinates",
    "densities",
    "directions",
    "metrics",
    "movers",
    "networks",
    "sklearn",
    "stein",
)


def public_names():
    """Every public name once, as a user writes it, except for the modules."""
    homes = [nvgd, *(importlib.import_module(f"nvgd.{module}") for module in MODULES)]
    for home in homes:
        for name in home.__all__:
            found = getattr(home, name)
            is_alias = home is not nvgd and getattr(nvgd, name, None) is found
            if not inspect.ismodule(found) and not is_alias:
                yield f"{home.__name__}.{name}"


PUBLIC_NAMES = sorted(public_names())


def called(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", ON_ITS_OWN, ids=called)
def test_snippets_run(page, capsys):
    namespace: dict = {}
    for snippet in SNIPPETS[page]:
        exec(compile(snippet, page.name, "exec"), namespace)
    if "posterior" in namespace:
        assert namespace["posterior"].completed
    assert capsys.readouterr().out


def test_home_begins_like_the_readme():
    assert SNIPPETS[DOCS / "index.md"] == SNIPPETS[ROOT / "README.md"][:1]


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_examples_of_public_names_run(name):
    home, own_name = name.rsplit(".", 1)
    documented = getattr(importlib.import_module(home), own_name)
    assert documented.__doc__
    prepared = {"jax": jax, "jnp": jnp, "math": math, "np": np, "nvgd": nvgd}
    example = doctest.DocTestParser().get_doctest(documented.__doc__, prepared, name, None, 0)
    assert example.examples, f"{name} has no example"
    with warnings.catch_warnings():
        result = doctest.DocTestRunner().run(example)
    assert result.failed == 0


def test_every_public_name_has_an_entry_in_the_reference():
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    entries = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    assert set(PUBLIC_NAMES) <= entries


def test_every_tutorial_is_listed():
    listed = (DOCS / "tutorials" / "index.md").read_text()
    navigation = (ROOT / "mkdocs.yml").read_text()
    for tutorial in (DOCS / "tutorials").glob("*.py"):
        assert f"({tutorial.stem}.md)" in listed
        assert f"tutorials/{tutorial.stem}.md" in navigation


def test_a_notebook_becomes_a_page():
    tutorials = importlib.import_module("tutorials")
    printed = {"output_type": "stream", "name": "stdout"}
    outputs = [
        {**printed, "text": "one\n"},
        {**printed, "text": "two\n"},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "aGk="}},
    ]
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("run()")]
    cells[1].outputs = [nbformat.from_dict(output) for output in outputs]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert tutorials.markdown(notebook, "name") == (
        "# Title\n\n```python\nrun()\n```\n\n```text { .output }\none\ntwo\n```\n\n"
        "![Figure](name/0.png)"
    )


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        path = page.parent / link
        # Pages of tutorials are made from their sources when the site is built.
        is_tutorial = path.parent.name == "tutorials" and path.with_suffix(".py").exists()
        assert path.exists() or is_tutorial, link


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_tables_of_results_are_those_of_their_records(name):
    _, rows, arrays = read(RESULTS / name)
    table = from_records(RESULTS / name).table(rows, arrays)
    assert (RESULTS / name / "table.md").read_text() == table + "\n"
