"""Archives: arrays and metadata in one pickle-free, versioned and checksummed file.

An archive is a NumPy `.npz` file. Besides its arrays it holds `header`, the UTF-8 bytes of a JSON
object with these entries:

- `kind` and `version`: the format of the archive;
- `facts`: metadata, any JSON values;
- `dtypes`: the types of arrays that NumPy lacks, such as bfloat16, which are stored as integers;
- `sha256`: a checksum over the rest of the header and all arrays.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nvgd._support.errors import InputError, first_line
from nvgd._support.files import write_atomically

VERSION = 1
HEADER = "header"

Arrays = dict[str, np.ndarray]


def archive_path(path: str | os.PathLike[str]) -> Path:
    """Where a person wants an archive; its directory must exist."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(
            f"path must lie in a directory that exists, got {str(path)!r}: create "
            f"{str(path.parent)!r} first."
        )
    return path


def write_archive(
    path: Path, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write an archive atomically: `path` holds the whole archive or is left as it was."""
    dtypes = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    stored = {
        name: array.view(f"u{array.dtype.itemsize}") if name in dtypes else array
        for name, array in arrays.items()
    }
    header = {"kind": kind, "version": VERSION, "facts": dict(facts), "dtypes": dtypes}
    # A JSON round trip, so that the checksum covers exactly what `read_archive` parses.
    header = json.loads(json.dumps(header))
    text = json.dumps({**header, "sha256": _checksum(header, stored)})

    header_bytes = {HEADER: np.frombuffer(text.encode(), np.uint8)}

    def write(temporary: Path) -> None:
        # An open file, because NumPy may append `.npz` to a path.
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **header_bytes, **stored)

    write_atomically(path, write)


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Read facts and arrays; raise InputError if the file is damaged or of another kind."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        header = json.loads(arrays.pop(HEADER).tobytes())
        checksum = header.pop("sha256")
        found_kind, version, facts, dtypes = (
            header[name] for name in ("kind", "version", "facts", "dtypes")
        )
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}.") from None
    except Exception as error:  # the error depends on where the file is damaged
        raise InputError(
            f"{str(path)!r} is damaged or not a file of nvgd: {first_line(error)}"
        ) from error
    if found_kind != kind or version != VERSION:
        raise InputError(
            f"{str(path)!r} holds a {found_kind} of version {version}; expected a {kind} of "
            f"version {VERSION}."
        )
    if checksum != _checksum(header, arrays):
        raise InputError(f"{str(path)!r} is damaged: its checksum does not match its content.")
    for name, dtype in dtypes.items():
        arrays[name] = arrays[name].view(jnp.dtype(dtype))
    return facts, arrays


def _checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def tree_to_arrays(tree: PyTree, prefix: str) -> Arrays:
    """The arrays of a pytree under numbered names; typed keys become their key data."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(plain)}


def arrays_to_tree(like: PyTree, arrays: Mapping[str, np.ndarray], prefix: str) -> PyTree:
    """Rebuild a pytree from the output of `tree_to_arrays`; raise InputError if it does not fit.

    Arguments:
        like: a pytree of the same structure, with arrays or `jax.ShapeDtypeStruct` leaves.
    """
    parts, rest = eqx.partition(like, _has_shape)
    leaves, structure = jax.tree.flatten(parts)
    names = [f"{prefix}/{i}" for i in range(len(leaves))]
    found = [name for name in arrays if name.startswith(f"{prefix}/")]
    if sorted(found) != sorted(names):
        raise InputError(f"it holds {len(found)} arrays of {prefix}, where {len(names)} belong.")
    restored = []
    for name, leaf in zip(names, leaves, strict=True):
        value = jnp.asarray(arrays[name])
        if _is_key(leaf):
            value = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
        if (value.shape, value.dtype) != (leaf.shape, leaf.dtype):
            raise InputError(
                f"its array {name} is {value.dtype}{list(value.shape)}, where "
                f"{leaf.dtype}{list(leaf.shape)} belongs."
            )
        restored.append(value)
    return eqx.combine(jax.tree.unflatten(structure, restored), rest)


def _has_shape(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
