"""Files of any content: the library's own errors, no code run from them, no file outside."""

import contextlib
import dataclasses
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nvgd
from nvgd._support.archives import read_archive, write_archive
from nvgd._support.errors import InputError
from nvgd.cli import main
from nvgd.experiments import datasets, records
from nvgd.experiments.catalogue import EXPERIMENTS, from_records

many = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
# (where, what): bytes that are replaced, as shares of a file's length.
DAMAGE = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)


class Bomb:
    """Written when it is unpickled."""

    path = ""

    def __reduce__(self):
        return open, (self.path, "w")


def bomb(path):
    Bomb.path = str(path)
    return Bomb()


def damaged(content, damage):
    content = bytearray(content)
    for share, new in damage:
        first = int(share * len(content))
        content[first : first + len(new)] = new
    return bytes(content)


@many
@given(content=st.binary(max_size=300))
def test_any_bytes_are_refused_as_an_archive(tmp_path, content):
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_archive(path, "posterior")
    with pytest.raises(InputError):
        nvgd.load(path)


@many
@given(damage=DAMAGE)
def test_a_damaged_archive_is_refused_or_as_it_was(tmp_path, damage):
    path = tmp_path / "file.npz"
    arrays = {"a": np.arange(5.0), "b": np.arange(3)}
    write_archive(path, "kind", {"name": "x"}, arrays)
    path.write_bytes(damaged(path.read_bytes(), damage))
    try:
        facts, found = read_archive(path, "kind")
    except InputError:
        return
    assert facts == {"name": "x"}
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


@many
@given(header=JSON)
def test_any_header_is_refused(tmp_path, header):
    path = tmp_path / "file.npz"
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=text, a=np.zeros(2))
    with pytest.raises(InputError):
        read_archive(path, "kind")


@many
@given(config=JSON, rows=st.lists(JSON, max_size=4), content=st.binary(max_size=100))
def test_any_records_are_read_or_refused(tmp_path, config, rows, content):
    (tmp_path / records.CONFIG).write_text(json.dumps(config))
    (tmp_path / records.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / records.PARTICLES).write_bytes(content)
    with pytest.raises(InputError):
        from_records(tmp_path)
    assert main(["plot", str(tmp_path)]) == 2


FIELDS = sorted({field.name for kind in EXPERIMENTS.values() for field in dataclasses.fields(kind)})


@many
@given(
    name=st.sampled_from(sorted(EXPERIMENTS)),
    chosen=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    rows=st.lists(st.dictionaries(st.sampled_from(["task", "method", "seed", "step"]), JSON)),
)
def test_any_settings_of_an_experiment_are_drawn_or_refused(tmp_path, name, chosen, rows):
    directory = tmp_path / "inside"
    directory.mkdir(exist_ok=True)
    config = {"experiment": name, "settings": chosen}
    (directory / records.CONFIG).write_text(json.dumps(config))
    (directory / records.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.suppress(InputError):
        from_records(directory)
    assert main(["plot", str(directory)]) in (0, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@many
@given(content=st.binary(max_size=300))
def test_any_bytes_are_refused_as_data(tmp_path, content):
    (tmp_path / "covertype.npz").write_bytes(content)
    with pytest.raises(InputError):
        datasets.load("covertype", tmp_path)


@many
@given(words=st.lists(st.text(min_size=1, max_size=12), max_size=5))
def test_any_command_line_is_answered(words, capsys):
    others = ("demo", "reproduce", "sample", "--help", "-h", "--version")
    assert main([word for word in words if word not in others]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def pickled_arrays(path):
    np.savez(path, a=np.array([bomb(path.with_suffix(".ran"))], dtype=object), allow_pickle=True)


def pickled_file(path):
    path.write_bytes(pickle.dumps(bomb(path.with_suffix(".ran"))))


def pickled_header(path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([bomb(path.with_suffix(".ran"))], dtype=object), allow_pickle=True)
    np.savez(path, header=np.frombuffer(buffer.getvalue(), np.uint8))


@pytest.mark.parametrize("write", [pickled_arrays, pickled_file, pickled_header])
def test_nothing_in_a_file_is_run(tmp_path, write):
    path = tmp_path / "covertype.npz"
    write(path)
    for read in (
        lambda: nvgd.load(path),
        lambda: read_archive(path, "checkpoint"),
        lambda: datasets.load("covertype", tmp_path),
    ):
        with pytest.raises(InputError):
            read()
    (tmp_path / records.CONFIG).write_text('{"experiment": "stein", "settings": {}}')
    path.rename(tmp_path / records.PARTICLES)
    # Bytes that would be a pickle elsewhere are plain numbers here.
    with contextlib.suppress(InputError):
        records.read(tmp_path)
    assert not list(tmp_path.glob("*.ran"))


def test_names_in_an_archive_lead_nowhere(tmp_path):
    path = tmp_path / "inside" / "file.npz"
    path.parent.mkdir()
    write_archive(path, "kind", {}, {"../../outside": np.zeros(1), "/tmp/outside": np.zeros(1)})
    _, arrays = read_archive(path, "kind")
    assert set(arrays) == {"../../outside", "/tmp/outside"}
    assert [item.name for item in tmp_path.rglob("*") if item.is_file()] == ["file.npz"]
    assert not Path("/tmp/outside").exists()
