"""The data of Covertype and MNIST: found on the disk or fetched, and verified."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nvgd._support.errors import InputError, first_line
from nvgd._support.files import cache_directory, output_directory, write_atomically

Dataset = dict[str, np.ndarray]

# Next to src/ in a clone; an installed package has no such directory.
REPOSITORY_DATA = Path(__file__).parents[3] / "data"

# SHA-256 over the arrays instead of the file, because a fetched copy is compressed differently.
CHECKSUMS = {
    "covertype": "4913395f3e4cc1ca04486d285826401dcf376553a2318761668a6af5a92035e3",
    "mnist": "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
}


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """A data set by name, from the first place that has it; its contents are verified.

    The places, in order: `data_dir` or $NVGD_DATA_DIR, which must have the file if given; data/ in
    the repository; the user's cache; scikit-learn's fetchers, whose result is written to the cache.
    """
    file_name = f"{name}.npz"
    named = os.environ.get("NVGD_DATA_DIR") if data_dir is None else data_dir
    if named is not None:
        path = Path(named) / file_name
        if not path.is_file():
            raise InputError(
                f"--data-dir (or NVGD_DATA_DIR) must hold {file_name}, got {str(named)!r}, where "
                "there is none: copy the file there, or leave the option out."
            )
        return _read(name, path)
    cached = cache_directory() / file_name
    for path in (REPOSITORY_DATA / file_name, cached):
        if path.is_file():
            return _read(name, path)
    dataset = FETCHERS[name]()
    _verify(name, dataset, "what was fetched")
    output_directory(cached.parent)
    write_atomically(cached, lambda path: np.savez_compressed(path, allow_pickle=False, **dataset))
    return dataset


def checksum(dataset: Dataset) -> str:
    """SHA-256 over names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(dataset):
        array = np.ascontiguousarray(dataset[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read(name: str, path: Path) -> Dataset:
    try:
        # Opened here, so that it is closed even if it is not an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            dataset = dict(stored)
    except Exception as error:  # what a damaged archive raises depends on where it is damaged
        raise InputError(
            f"{str(path)!r} is damaged and cannot be read: delete it, or copy it anew."
        ) from error
    _verify(name, dataset, repr(str(path)))
    return dataset


def _verify(name: str, dataset: Dataset, where: str) -> None:
    if checksum(dataset) != CHECKSUMS[name]:
        raise InputError(
            f"{where} is not the {name} data that the experiments need (its checksum differs): "
            "delete it, or copy it anew."
        )


def _fetchers(name: str):
    try:
        from sklearn import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            f"{name}.npz is not here: put it into a directory and pass --data-dir, or "
            "`pip install 'nvgd[data]'` to fetch it."
        ) from error
    return datasets


def _download(name: str, fetch: Callable):
    try:
        return fetch()
    except Exception as error:  # the network, a truncated file, a missing package
        raise InputError(
            f"{name} could not be fetched ({first_line(error).rstrip('.')}): check the network, "
            "or pass --data-dir."
        ) from error


def _fetch_covertype() -> Dataset:
    datasets = _fetchers("covertype")
    bunch = _download("covertype", lambda: datasets.fetch_covtype(shuffle=False))
    features = np.asarray(bunch.data)
    return {
        "quant": features[:, :10].astype(np.int16),
        "wilderness": features[:, 10:14].argmax(axis=1).astype(np.uint8),
        "soil": features[:, 14:54].argmax(axis=1).astype(np.uint8),
        "label": np.asarray(bunch.target).astype(np.uint8),
    }


def _fetch_mnist() -> Dataset:
    datasets = _fetchers("mnist")
    bunch = _download(
        "mnist", lambda: datasets.fetch_openml("mnist_784", version=1, as_frame=False)
    )
    images = np.asarray(bunch.data).reshape(-1, 28, 28).astype(np.uint8)
    labels = np.asarray(bunch.target).astype(np.uint8)
    return {
        "train_images": images[:60_000],
        "train_labels": labels[:60_000],
        "test_images": images[60_000:],
        "test_labels": labels[60_000:],
    }


FETCHERS: dict[str, Callable[[], Dataset]] = {
    "covertype": _fetch_covertype,
    "mnist": _fetch_mnist,
}
