"""Simulated nights, each compared with a model of the dataset by a parser of its own; more: `make test-nights`."""

from pathlib import Path

import pytest
import tensorflow as tf

from tests.messages import raises
from tests.nights import mode_of, simulate
from tests.own_records import frames, parse_example

NIGHTS = 6


@pytest.mark.nightly
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize(("seed", "in_bucket"), [(1, False), (2, False), (3, False), (1, True)])
def test_no_night_loses_moves_doubles_or_changes_a_row(tmp_path: Path, seed: int, in_bucket: bool) -> None:
    counts = simulate(tmp_path, seed, NIGHTS, mode_of(seed), in_bucket=in_bucket)
    assert counts["nights"] == NIGHTS
    assert counts["reads of the live version"] > NIGHTS


def test_the_parser_reads_what_tensorflow_writes(tmp_path: Path) -> None:
    values = {"bytes": [b"", b"\xff" * 300], "floats": [0.5, -1.0], "integers": [0, 1, -1, 1 << 62], "none": []}
    features = {
        "bytes": tf.train.Feature(bytes_list=tf.train.BytesList(value=values["bytes"])),
        "floats": tf.train.Feature(float_list=tf.train.FloatList(value=values["floats"])),
        "integers": tf.train.Feature(int64_list=tf.train.Int64List(value=values["integers"])),
        "none": tf.train.Feature(),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    with tf.io.TFRecordWriter(str(tmp_path / "shard")) as writer:
        writer.write(example)
        writer.write(b"")
    data = (tmp_path / "shard").read_bytes()
    assert [*frames(data)] == [(0, example), (16 + len(example), b"")]
    assert parse_example(example) == values
    for byte in (0, 9, 20, len(data) - 1):
        with raises(AssertionError, "CRC"):
            [*frames(data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :])]
