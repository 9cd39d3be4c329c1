"""Texts packed into records, as Recordmill once built them: how they are read, measured and shown."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.dataset.profile import add_up_lengths, describe_lengths, measure_lengths
from recordmill.pipeline.json_values import read_as
from recordmill.transforms.texts import text_graph as text
from recordmill.transforms.texts.text_stored import TextDescription
from tests.descriptions import whole
from tests.messages import assert_names
from tests.running import BOTH_WAYS, Run

PACKED = {"kind": "text", "max_length": None, "padding_id": 0, "packed": 4}
PACKED |= {"vocabulary_size": 12, "padding_id": 0, "unknown_id": None, "first_id": 1} | PACKED


def ragged(rows: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int64, ragged_rank=1)


FINISHED = [
    # (ids, lengths, padded, segments, positions)
    ([[5, 6, 7], [8]], [[1, 2], [1]], [[5, 6, 7, 9], [8, 9, 9, 9]], [[1, 2, 2, 0], [1, 0, 0, 0]],
     [[0, 0, 1, 0], [0, 0, 0, 0]]),
    ([[], [5]], [[0], [1]], [[9, 9, 9, 9], [5, 9, 9, 9]], [[0] * 4, [1, 0, 0, 0]], [[0] * 4] * 2),
    ([[1, 2, 3, 4, 5]], [[5]], [[1, 2, 3, 4]], [[1, 1, 1, 1]], [[0, 1, 2, 3]]),  # as serving may have it
    ([], [], [], [], []),
]  # fmt: skip


@BOTH_WAYS
@pytest.mark.parametrize(("ids", "lengths", "padded", "segments", "positions"), FINISHED)
def test_model_ready(run: Run, ids: Any, lengths: Any, padded: Any, segments: Any, positions: Any) -> None:
    description = TextDescription.from_json(PACKED | {"padding_id": 9})
    ready = run(lambda stored: text.features(description, stored), {"": ragged(ids), "lengths": ragged(lengths)})
    assert {part: tensor.numpy().tolist() for part, tensor in ready.items()} == {
        "": padded, "segments": segments, "positions": positions
    }  # fmt: skip
    assert all(tensor.shape == (len(ids), 4) for tensor in ready.values())


@given(st.lists(st.lists(st.integers(0, 50), max_size=70), min_size=1, max_size=4))
def test_lengths_are_measured(shards: list[list[int]]) -> None:
    found = add_up_lengths([measure_lengths(np.array(lengths, np.int64)) for lengths in shards])
    every = [length for lengths in shards for length in lengths]
    batches = [[number for _, number in group] for lengths in shards
               for _, group in groupby(enumerate(lengths), lambda pair: pair[0] // 32)]  # fmt: skip
    padded = sum(len(batch) * max(batch) for batch in batches)
    assert found == {"rows": len(every), "ids": sum(every), "longest": max(every, default=0), "in_batches": padded}


MEASURED = {"rows": 4, "ids": 10, "longest": 6, "in_batches": 24}
LENGTHS = ("mean 2.5 ids", "longest 6", "32 rows wastes 58.3%")


@pytest.mark.parametrize(("description", "found", "facts"), [
    ({"max_length": None}, {}, LENGTHS),
    ({"max_length": 1000}, {}, (*LENGTHS, "1,000 wastes 99.8%")),
    ({"packed": 4}, {"packed_rows": 3}, (*LENGTHS, "packing wastes 16.7%")),
    ({}, {"ids": 0}, ("no ids",)),
])  # fmt: skip
def test_padding_is_shown(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    description: dict[str, Any],
    found: dict[str, Any],
    facts: tuple[str, ...],
) -> None:
    max_length, packed = description.get("max_length"), description.get("packed")
    line = describe_lengths(MEASURED | found, max_length=max_length, packed=packed)
    assert_names(line, *facts)
    features = {"x": whole({"kind": "text", **description}), "y": {"kind": "own", "stored": "int64"}}
    statistics = {"x": {"lengths": MEASURED | found}, "y": {"lengths": MEASURED}}
    rows = {"read": 4, "written": 4, "rejected": 0}
    split = Split((Shard("f", 9, 3, "00", "i"),), documents=4 if "packed" in description else None)
    print_dataset(Manifest("d", "v", "00", None, features, {"train": split}, statistics, rows), tmp_path, [])
    printed = capsys.readouterr().out
    assert f"\nx: {line}\n" in printed
    assert "\ny: " not in printed
    assert ("documents" in printed, "packed in rows of 4" in printed) == ("packed" in description,) * 2


def test_a_manifest_with_and_without_documents() -> None:
    for split in (Split((), documents=7), Split(())):
        assert read_as(json.loads(json.dumps(split.to_json())), Split, "a split") == split
    assert "documents" not in Split(()).to_json()
