"""Writing results so that a file is either whole or not there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from nvgd._support.errors import InputError

# How the names of files that are not yet whole begin.
TEMPORARY = ".nvgd-"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file of the same ending, then put it in place of `path`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY, suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # On the disk before it takes its place: a name is never that of a file not yet written.
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp's files are private; results are as readable as any other new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporaries(directory: Path) -> None:
    """What writers that were killed have left behind."""
    for path in directory.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def cache_directory() -> Path:
    """Where the user's caches of this library lie; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nvgd"


def check_output(path: Path, argument: str = "out") -> None:
    """Refuse now, not after the work, a directory in which nothing can be written or made."""
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
    """Create `path` if need be."""
    check_output(path, argument)
    path.mkdir(parents=True, exist_ok=True)
    return path
