"""Shard files: the bytes of TensorFlow's own writer, their index, and nothing after a failure."""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from recordmill.pipeline.dataset.tfrecord import ShardWriter, frame, frame_head, masked_crc, record_length
from tests.messages import raises

RECORDS = [b"", b"one", bytes(range(256)) * 300, "ü".encode(), b"\0"]


@pytest.mark.parametrize("records", [[], [b""], RECORDS], ids=["none", "an empty one", "several"])
def test_the_bytes_are_those_of_tensorflow(tmp_path: Path, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as theirs:
        for record in records:
            theirs.write(record)
    with ShardWriter(str(tmp_path / "ours"), str(tmp_path / "index")) as ours:
        ours.write(records[:2])
        ours.write([])
        ours.write(records[2:])
    data = (tmp_path / "theirs").read_bytes()
    assert (tmp_path / "ours").read_bytes() == data
    index = hashlib.sha256((tmp_path / "index").read_bytes()).hexdigest()
    assert (ours.bytes, ours.records, ours.sha256) == (len(data), len(records), hashlib.sha256(data).hexdigest())
    assert ours.index_entry()["sha256"] == index


def test_the_index_leads_to_every_record(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "shard"), str(tmp_path / "index")) as writer:
        writer.write(RECORDS)
    data = (tmp_path / "shard").read_bytes()
    offsets = np.frombuffer((tmp_path / "index").read_bytes(), "<u8").tolist()
    assert (offsets[0], offsets[-1]) == (0, len(data))
    assert [data[start:end] for start, end in pairwise(offsets)] == [frame(record) for record in RECORDS]
    assert [data[start + 12 : end - 4] for start, end in pairwise(offsets)] == RECORDS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "shard"]


def write(folder: Path, index: str = "index", error: Exception | None = None) -> None:
    with ShardWriter(str(folder / "shard"), str(folder / index)) as writer:
        writer.write([b"record"])
        if error is not None:
            raise error


def test_a_failed_build_of_a_shard_leaves_what_was_there_and_a_repeated_one_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"before")
    with pytest.raises(RuntimeError, match="a broken graph"):
        write(tmp_path, error=RuntimeError("a broken graph"))
    with raises(FileNotFoundError, "missing/index"):
        write(tmp_path, index="missing/index")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("shard", b"before")]
    write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("size", [0, 1, 300, 1 << 40])
def test_a_header_says_the_length_and_a_damaged_one_says_nothing(size: int) -> None:
    assert (masked_crc(b""), masked_crc(b"123456789")) == (0xA282EAD8, 0xC78AB0E5)
    header = frame_head(size)
    assert record_length(header) == size
    assert record_length(header[:-1]) is None
    assert record_length(bytes([header[0] ^ 1]) + header[1:]) is None
    assert record_length(b"") is None
