"""Where the reference job's data come from, and what the user is told about it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from tests.messages import raises
from tfps.errors import DataError


@pytest.fixture
def offline(data, monkeypatch, tmp_path):
    """No network, nothing prepared, no package of Debian's."""

    def fail(url):
        raise data.prepared.Unavailable("no network in this test")

    monkeypatch.setattr(data.prepared, "probe", fail)
    monkeypatch.setattr(data, "DEBIAN_FOLDER", tmp_path / "nowhere")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def test_shipped_subset_is_balanced_and_says_how_to_get_the_rest(data):
    subset = data.load(source="subset")
    assert subset.x_train.shape == (10_000, 28, 28, 1)
    assert subset.x_test.shape == (3_000, 28, 28, 1)
    assert np.bincount(subset.y_train).tolist() == [1_000] * 10
    assert np.bincount(subset.y_test).tolist() == [300] * 10
    assert subset.source == "shipped subset (10,000 + 3,000 images)"
    assert "--set data.path=FOLDER" in subset.notice


def test_shipped_subset_is_small_and_has_its_licence(data):
    files = list(data.SUBSET_FOLDER.glob("*.xz"))
    assert len(files) == 4
    assert sum(file.stat().st_size for file in files) < 5_000_000
    assert "Copyright (c) 2017 Zalando SE" in (data.SUBSET_FOLDER / "LICENSE").read_text()


def test_shipped_subset_is_what_its_script_builds(data, idx, tmp_path):
    folder = data.DEBIAN_FOLDER
    if not folder.is_dir():
        pytest.skip(f"needs the original files of dataset-fashion-mnist in {folder}")
    original = idx.read_folder(folder, suffix=".gz")
    shipped = idx.read_folder(data.SUBSET_FOLDER, suffix=".xz")
    for part, count in {"train": 1000, "t10k": 300}.items():
        labels = original[f"{part}-labels-idx1-ubyte"]
        rows = [row for label in range(10) for row in np.flatnonzero(labels == label)[:count]]
        for kind in ("images-idx3", "labels-idx1"):
            stem = f"{part}-{kind}-ubyte"
            assert np.array_equal(shipped[stem], original[stem][sorted(rows)])


def test_script_builds_the_same_from_the_same(idx_folder, idx, tmp_path):
    from fashion_mnist import build_subset  # type: ignore[import-not-found]

    for target in ("a", "b"):
        build_subset.build(idx_folder, tmp_path / target)
    for stem in idx.STEMS:
        first, second = (tmp_path / target / f"{stem}.xz" for target in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


def test_a_folder_with_the_original_files_is_used_without_asking_the_network(
    data, idx_folder, offline
):
    loaded = data.load(path=str(idx_folder))
    assert loaded.source == f"IDX files in {idx_folder}"
    assert loaded.x_train.shape == (20, 28, 28, 1)
    assert loaded.notice == ""


def test_files_of_debian_are_found_without_a_network(data, idx_folder, offline, monkeypatch):
    monkeypatch.setattr(data, "DEBIAN_FOLDER", idx_folder)
    assert data.load().source == f"IDX files in {idx_folder}"
    assert str(idx_folder) in data.check()


def test_damaged_files_of_debian_are_an_error_and_no_reason_for_the_subset(
    data, idx_folder, offline, monkeypatch
):
    monkeypatch.setattr(data, "DEBIAN_FOLDER", idx_folder)
    (idx_folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    for use in (data.load, data.check):
        with raises(DataError, "t10k-labels-idx1-ubyte.gz"):
            use()


def test_subset_is_the_last_resort_and_the_notice_says_why(data, offline):
    loaded = data.load()
    assert loaded.source.startswith("shipped subset")
    assert "no network in this test" in loaded.notice
    assert "shipped subset" in data.check()


def test_no_network_is_an_error_where_the_source_was_chosen(data, offline):
    with raises(DataError, "no network in this test"):
        data.load(source="tensorflow-datasets")


def test_damaged_subset_is_named(data, offline, monkeypatch, tmp_path):
    monkeypatch.setattr(data, "SUBSET_FOLDER", tmp_path)
    with raises(DataError, "train-images-idx3-ubyte.xz"):
        data.load()


def test_an_interrupted_preparation_does_not_count(data, tmp_path):
    unfinished = tmp_path / "fashion_mnist" / "3.0.1.incompleteX"
    unfinished.mkdir(parents=True)
    (unfinished / "dataset_info.json").write_text("{}")
    assert not data.prepared.is_prepared(str(tmp_path))
    finished = tmp_path / "fashion_mnist" / "3.0.1"
    finished.mkdir()
    (finished / "dataset_info.json").write_text("{}")
    assert data.prepared.is_prepared(str(tmp_path))


def test_a_refused_connection_is_noticed_at_once(data):
    with raises(data.prepared.Unavailable, "127.0.0.1"):
        data.prepared.probe("http://127.0.0.1:9/file")  # the port of "discard": no process listens


def test_a_server_that_never_answers_is_given_up(data, monkeypatch):
    monkeypatch.setattr(data.prepared, "PROBE_TIMEOUT_S", 0.2)
    released = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            released.wait()  # longer than any test

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(data.prepared.Unavailable):
            data.prepared.probe(f"http://127.0.0.1:{server.server_port}/file")
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_child_that_neither_writes_nor_computes_is_ended(data, monkeypatch, tmp_path):
    import subprocess
    import sys

    monkeypatch.setattr(data.prepared, "STALL_TIMEOUT_S", 1.0)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command) as child:
        try:
            assert data.prepared.wait_for(child, written=tmp_path) is None
        finally:
            child.kill()
