"""MkDocs hook: execute `docs/tutorials/*.py` as notebooks and add them to the site as pages.

A tutorial is a notebook kept as text (jupytext, `py:percent`). Executed notebooks are kept in
`.cache/tutorials` and run again only if the tutorial, the library, `requirements.lock` or
`tools/matplotlibrc`, the style of the figures, changed.
"""

import base64
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tutorials"
FIGURE_STYLE = ROOT / "tools" / "matplotlibrc"
SECONDS_PER_CELL = 600
IMAGES = {"image/png": "png", "image/gif": "gif"}

log = logging.getLogger("mkdocs.hooks.tutorials")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace every tutorial's source by its page, its figures and its notebook."""
    sources = sorted((ROOT / "src").rglob("*.py"))
    known = _digest([*sources, ROOT / "requirements.lock", FIGURE_STYLE])
    for source in [file for file in files if _is_tutorial(file)]:
        files.remove(source)
        page = Path(source.src_uri)
        notebook = executed(ROOT / "docs" / page, known)
        download = page.with_suffix(".ipynb")
        pages: dict[Path, str | bytes] = {
            download: nbformat.writes(notebook),
            page.with_suffix(".md"): f"{markdown(notebook, page.stem)}\n\n"
            f"[Download this tutorial as a notebook]({download.name}){{ .md-button }}\n",
        }
        for number, (extension, content) in enumerate(_images(notebook)):
            pages[page.with_suffix("") / f"{number}.{extension}"] = content
        for path, content in pages.items():
            files.append(File.generated(config, path.as_posix(), content=content))
    return files


def executed(path: Path, known: str) -> nbformat.NotebookNode:
    """The tutorial with its outputs, from the cache if nothing that it depends on changed."""
    cached = CACHE / f"{path.stem}-{_digest([path], known)}.ipynb"
    if cached.exists():
        return nbformat.read(cached, as_version=4)
    log.info("Executing %s", path.name)
    notebook = jupytext.read(path)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        # No ports: local sockets.
        config=Config(KernelManager={"transport": "ipc"}),
    )
    try:
        # Without MPLBACKEND, which would take the place of the notebook's own backend.
        inherited = {name: text for name, text in os.environ.items() if name != "MPLBACKEND"}
        client.execute(env={**inherited, "MATPLOTLIBRC": str(FIGURE_STYLE)})
    except CellExecutionError as error:
        raise PluginError(f"{path.name} failed:\n{error}") from error
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # Progress bars and warnings of the machine, which are not for the reader.
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(notebook, cached)
    return notebook


def markdown(notebook: nbformat.NotebookNode, directory: str) -> str:
    """The notebook as Markdown, with links to its figures in `directory`."""
    parts, number = [], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for is_text, outputs in itertools.groupby(cell.outputs, _is_text):
            if is_text:
                text = "".join(
                    output.get("text") or output.data["text/plain"] for output in outputs
                )
                parts.append(f"```text {{ .output }}\n{text.rstrip()}\n```")
                continue
            for output in outputs:
                kind = _image_kind(output)
                if kind is None:
                    parts.append(output.data["text/html"])
                else:
                    parts.append(f"![Figure]({directory}/{number}.{IMAGES[kind]})")
                    number += 1
    return "\n\n".join(parts)


def _is_tutorial(file: File) -> bool:
    return file.src_uri.startswith("tutorials/") and file.src_uri.endswith(".py")


def _digest(paths: list[Path], start: str = "") -> str:
    contents = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(start.encode() + contents).hexdigest()[:16]


def _is_text(output: nbformat.NotebookNode) -> bool:
    return _image_kind(output) is None and "text/html" not in output.get("data", {})


def _image_kind(output: nbformat.NotebookNode) -> str | None:
    return next((kind for kind in IMAGES if kind in output.get("data", {})), None)


def _images(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, bytes]]:
    for cell in notebook.cells:
        for output in cell.outputs if cell.cell_type == "code" else ():
            kind = _image_kind(output)
            if kind is not None:
                yield IMAGES[kind], base64.b64decode(output.data[kind])
