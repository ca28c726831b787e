"""The file of results: read, looked up, and written after every measurement."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvgd._support.errors import InputError
from nvgd._support.files import write_atomically

Record = dict[str, Any]
Key = tuple[Any, ...]

# The fields that tell the records of a part apart.
KEYS = {
    "times": ("posterior", "method", "state", "seed"),
    "steps": ("target",),
    "programs": ("flow", "target"),
}


class Records:
    """The results of all parts; a measurement that is in the file is not made again."""

    def __init__(self, path: Path, machine: dict[str, str]):
        self.path, self._machine = path, machine
        self._parts: dict[str, dict[Key, Record]] = {part: {} for part in KEYS}
        if not path.exists():
            return
        try:
            stored = json.loads(path.read_text())
            for part, fields in KEYS.items():
                rows = stored.get(part, [])
                self._parts[part] = {tuple(row[f] for f in fields): row for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"--out must be new or hold the records of an earlier run, got {str(path)!r}."
            ) from error

    def __contains__(self, key: tuple[str, Key]) -> bool:
        part, rest = key
        # A failure is tried again.
        return "failure" not in self._parts[part].get(rest, {"failure": "not measured"})

    def add(self, part: str, record: Record) -> None:
        """Keep a record, and write the file."""
        key = tuple(record[field] for field in KEYS[part])
        self._parts[part][key] = record
        results = {part: list(rows.values()) for part, rows in self._parts.items()}
        text = json.dumps({"machine": self._machine, **results}, indent=1)
        write_atomically(self.path, lambda path: path.write_text(text))

    def chosen(self, part: str, is_chosen: Callable[[Record], bool]) -> list[Record]:
        """The records of a part that were asked for."""
        return [record for record in self._parts[part].values() if is_chosen(record)]
