"""Which room of the library imports which: a table, and what breaks the rules.

    python tools/import_graph.py        # or: make graph

Imports are read from the syntax trees, those inside functions and under TYPE_CHECKING included. A
room may import from itself and from rooms above it in the list; no modules may import each other in
a circle.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
PACKAGE = "nvgd"

# Each room may know the ones above it.
ROOMS = (
    "_support",
    "targets",
    "stein",
    "flow",
    "exact",
    "posterior",
    "running",
    "evaluation",
    "frontends",
    "experiments",
    "cli",
)
# Public modules that only pass names on; no room imports them.
FACADES = (
    "",
    "__main__",
    "coordinates",
    "densities",
    "directions",
    "metrics",
    "movers",
    "networks",
    "sklearn",
)

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    """`nvgd.flow.stage` of its file; a package has the name of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_graph() -> Graph:
    """Module → the modules of the library that it imports."""
    paths = sorted((ROOT / PACKAGE).rglob("*.py"))
    known = {module_name(path) for path in paths}
    graph: Graph = {}
    for path in paths:
        imported: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                # `from nvgd.exact import jumps` imports a module, other names come from one.
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    imported.add(inner if inner in known else node.module)
        graph[module_name(path)] = {name for name in imported if name in known}
    return graph


def room(module: str) -> str:
    """The folder, or the module, directly under the package; "" for the package itself."""
    return module.removeprefix(PACKAGE).lstrip(".").partition(".")[0]


def upward_imports(graph: Graph) -> list[str]:
    """Imports from a room below, or of a facade, one sentence each."""
    found = []
    for module, imported in sorted(graph.items()):
        if room(module) in FACADES:
            continue
        for other in sorted(imported):
            if room(other) in FACADES:
                found.append(f"{module} imports the facade {other}")
            elif ROOMS.index(room(other)) > ROOMS.index(room(module)):
                found.append(f"{module} imports {other}, a room below")
    return found


def circles(graph: Graph) -> list[str]:
    """Groups of modules that import each other, one line each (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[str] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            members = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(members) > 1:
                found.append(" ↔ ".join(sorted(members)))

    for module in sorted(graph):
        if module not in numbers:
            visit(module)
    return found


def table(graph: Graph) -> str:
    """Rows import columns: how many imports lead from room to room."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for module, imported in graph.items():
        for other in imported:
            counts[room(module), room(other)] += 1
    names = list(ROOMS)
    width = max(map(len, names))
    lines = [" " * width + "  modules  " + "  ".join(names)]
    for name in names:
        number = sum(room(module) == name for module in graph)
        cells = "  ".join(f"{counts[name, other] or '·':>{len(other)}}" for other in names)
        lines.append(f"{name:<{width}}  {number:>7}  {cells}")
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 if a rule is broken."""
    graph = read_graph()
    print(table(graph))
    broken = [*upward_imports(graph), *(f"a circle: {circle}" for circle in circles(graph))]
    print("\n".join(broken) if broken else "no upward import, no circle")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
