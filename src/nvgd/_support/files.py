"""Atomic writes, and checks and locks of output directories."""

import contextlib
import errno
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from nvgd._support.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# Prefix of the names of temporary files.
TEMPORARY = ".nvgd-"
# The file in an output directory that its writer has locked.
LOCK = ".nvgd.lock"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file with the suffix of `path`, then rename it to `path`.

    An OSError names `path`, which is left as it was.
    """
    try:
        _write_atomically(path, write)
    except OSError as error:
        if error.errno is not None:  # with a message of the operating system
            error.filename, error.filename2 = str(path), None
        raise


def _write_atomically(path: Path, write: Callable[[Path], object]) -> None:
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


@contextlib.contextmanager
def locked(path: Path, argument: str = "out") -> Iterator[None]:
    """Context manager: write to the directory `path` alone; refuse it if another process does.

    The directory is created if necessary, and removed again if nothing was written. The operating
    system releases the lock of a process that was killed; its temporary files are deleted. Where
    there are no locks, as on Windows and on some network file systems, any number of processes can
    write.
    """
    missing = [place for place in (path, *path.absolute().parents) if not place.exists()]
    output_directory(path, argument)
    try:
        handle = _lock(path, argument)
        try:
            remove_temporaries(path)
            yield
        finally:
            if handle is not None:
                # Unlink first: another process could lock the file between the two.
                with contextlib.suppress(OSError):
                    (path / LOCK).unlink()
                os.close(handle)
    finally:
        with contextlib.suppress(OSError):  # not empty
            for place in missing:
                place.rmdir()


def _lock(directory: Path, argument: str) -> int | None:
    """An open file that holds the lock of the directory; None if there are no locks here."""
    if fcntl is None:
        return None
    path = directory / LOCK
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 100).decode(errors="replace").strip()
            os.close(handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                path.unlink(missing_ok=True)
                return None
            raise InputError(
                f"{argument} is in use by another run ({holder or 'unknown'}), got "
                f"{str(directory)!r}: wait until it has ended, or choose another directory."
            ) from None
        # The previous holder may have removed the file after this process opened it.
        if _is_at(handle, path):
            break
        os.close(handle)
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return handle


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
