"""The documentation holds: snippets run, links lead somewhere, tables are those of the records."""

import re
from pathlib import Path

import pytest

from nvgd.experiments.catalogue import EXPERIMENTS, from_records
from nvgd.experiments.records import read

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    RESULTS / "README.md",
]
WITH_SNIPPETS = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: page.name)
def test_snippets_run(page, capsys):
    namespace: dict = {}
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(snippet, page.name, "exec"), namespace)
    assert namespace["posterior"].completed
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_tables_of_results_are_those_of_their_records(name):
    _, rows, arrays = read(RESULTS / name)
    table = from_records(RESULTS / name).table(rows, arrays)
    assert (RESULTS / name / "table.md").read_text() == table + "\n"
