"""The loader of data sets: where it looks, what it refuses."""

import http.client
import sys
import types

import numpy as np
import pytest

import nvgd
from nvgd.experiments import datasets

TINY = {
    "quant": np.arange(20, dtype=np.int16).reshape(2, 10),
    "wilderness": np.array([1, 3], np.uint8),
    "soil": np.array([0, 39], np.uint8),
    "label": np.array([2, 7], np.uint8),
}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A covertype of two rows, a repository without data, an empty cache, no scikit-learn."""
    monkeypatch.setitem(datasets.CHECKSUMS, "covertype", datasets.checksum(TINY))
    monkeypatch.setattr(datasets, "REPOSITORY_DATA", tmp_path / "repository")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NVGD_DATA_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    return tmp_path


def store(directory, dataset=None):
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "covertype.npz", **(TINY if dataset is None else dataset))


def test_committed_files_are_whole():
    for name in datasets.CHECKSUMS:
        assert datasets.load(name)


def test_places_are_tried_in_order(tiny, monkeypatch):
    store(tiny / "cache" / "nvgd")
    assert np.array_equal(datasets.load("covertype")["quant"], TINY["quant"])
    store(tiny / "repository", {"quant": np.zeros(3)})
    with pytest.raises(nvgd.InputError, match=r"repository.*checksum differs"):
        datasets.load("covertype")
    store(tiny / "named")
    monkeypatch.setenv("NVGD_DATA_DIR", str(tiny / "named"))
    assert datasets.load("covertype")
    with pytest.raises(nvgd.InputError, match=r"must hold covertype\.npz"):
        datasets.load("covertype", tiny / "elsewhere")


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_damaged_files_are_named(tiny, cut):
    store(tiny / "repository")
    path = tiny / "repository" / "covertype.npz"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(nvgd.InputError, match="damaged and cannot be read: delete it"):
        datasets.load("covertype")


def test_a_flipped_bit_anywhere_is_named(tiny):
    store(tiny / "repository")
    path = tiny / "repository" / "covertype.npz"
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            # Bits without meaning for the reader, such as times, change nothing.
            assert datasets.checksum(datasets.load("covertype")) == datasets.checksum(TINY)
        except nvgd.InputError:
            refused += 1
    assert refused > 20


def test_changed_values_are_noticed(tiny):
    changed = {**TINY, "label": np.array([2, 6], np.uint8)}
    store(tiny / "repository", changed)
    with pytest.raises(nvgd.InputError, match="checksum differs"):
        datasets.load("covertype")


def test_missing_data_without_the_extra_say_what_to_do(tiny):
    with pytest.raises(nvgd.InputError, match=r"--data-dir, or `pip install 'nvgd\[data\]'`"):
        datasets.load("covertype")


def fake_sklearn(monkeypatch, fetch):
    module = types.ModuleType("sklearn")
    setattr(module, "datasets", types.SimpleNamespace(fetch_covtype=fetch))  # noqa: B010
    monkeypatch.setitem(sys.modules, "sklearn", module)


def test_fetched_data_are_converted_verified_and_kept(tiny, monkeypatch):
    features = np.zeros((2, 54))
    features[:, :10] = TINY["quant"]
    features[[0, 1], 10 + TINY["wilderness"]] = 1
    features[[0, 1], 14 + TINY["soil"]] = 1
    bunch = types.SimpleNamespace(data=features, target=TINY["label"].astype(int))
    fake_sklearn(monkeypatch, lambda shuffle: bunch)
    assert datasets.checksum(datasets.load("covertype")) == datasets.checksum(TINY)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert datasets.load("covertype")
    assert [path.name for path in (tiny / "cache" / "nvgd").iterdir()] == ["covertype.npz"]


@pytest.mark.parametrize(
    "fault", [OSError, EOFError, ValueError, ImportError, http.client.HTTPException]
)
def test_a_failed_or_wrong_download_leaves_nothing_behind(tiny, monkeypatch, fault):
    def broken(shuffle):
        raise fault("no route to host")

    fake_sklearn(monkeypatch, broken)
    with pytest.raises(nvgd.InputError, match=r"could not be fetched \(no route to host\)"):
        datasets.load("covertype")
    bunch = types.SimpleNamespace(data=np.zeros((2, 54)), target=np.array([1, 1]))
    fake_sklearn(monkeypatch, lambda shuffle: bunch)
    with pytest.raises(nvgd.InputError, match="checksum differs"):
        datasets.load("covertype")
    assert not (tiny / "cache").exists()
