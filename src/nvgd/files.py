"""Writing results so that a file is either whole or not there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from nvgd.errors import InputError

# How the names of files that are not yet whole begin.
TEMPORARY = ".nvgd-"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file of the same ending, then put it in place of `path`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY, suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
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


def output_directory(path: Path, argument: str = "out") -> Path:
    """Create `path` if need be; refuse now, not after the work, if nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(
            f"{argument} must be a directory that can be written to, got {str(path)!r}: "
            f"{error.strerror}."
        ) from error
    return path
