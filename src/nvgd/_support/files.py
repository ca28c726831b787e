"""Atomic writes, and checks of output directories."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from nvgd._support.errors import InputError

# Prefix of the names of temporary files.
TEMPORARY = ".nvgd-"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file with the suffix of `path`, then rename it to `path`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY, suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # Flush to disk before the rename, so that `path` never names an incomplete file.
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp creates private files; give the result the permissions of any other new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporaries(directory: Path) -> None:
    """Delete the temporary files of writers that were killed."""
    for path in directory.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def cache_directory() -> Path:
    """The user's cache directory for this library; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nvgd"


def check_output(path: Path, argument: str = "out") -> None:
    """Refuse a directory that cannot be created or written to, before any work is done."""
    try:
        existing = next(place for place in (path, *path.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise InputError(
            f"{argument} must be a directory that can be written to, got {str(path)!r}: "
            f"{error.strerror}."
        ) from error


def output_directory(path: Path, argument: str = "out") -> Path:
    """Create the directory `path` if necessary, and return it."""
    check_output(path, argument)
    path.mkdir(parents=True, exist_ok=True)
    return path
