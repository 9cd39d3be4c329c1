"""Rows of a step against runs that record their keys, steps of a row, and rows that a training leaves out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import DamagedRecordError, Dataset, DatasetError, Input, mix, open_dataset, open_tfrecords
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.tfrecord import pack
from tests import published, tfrecords
from tests.messages import raises

PACKED = {"text": "packed", "features": ["text"], "label": None}
BAD = ["row/3", "row/17", "row/42", "row/111", "row/0", "row/199"]
ROWS, LENGTH = 200, 2


def write(folder: Path) -> Dataset:
    """A version of texts of up to 3 ids, packed at 2, so that some records are two pieces."""
    version = published.write_version(folder, ROWS)
    manifest, splits = read_manifest(version), {}
    for name, split in manifest.splits.items():
        texts = open_dataset(version).source(name, features=["text"], label=None, text="ragged")
        lengths, shards = iter([len(each["text"]) for each in texts]), []
        for shard in split.shards:
            of_shard = [next(lengths) for _ in range(shard.records)]
            index = pack(np.array(of_shard), LENGTH, split=True)
            described = index.describe(LENGTH, shard.file.replace("tfrecord", "pack-2"), 0, of_shard.count(0))
            (version / described.file).write_bytes(index.to_bytes())
            shards.append(replace(shard, packs=(described,)))
        splits[name] = replace(split, shards=tuple(shards))
    published.write_manifest(version, replace(manifest, splits=splits, packs=(Pack(LENGTH, ("text",)),)))
    return open_dataset(folder)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = write(tmp_path_factory.mktemp("damaged"))
    for shard in dataset.manifest.splits["train"].shards[:3]:
        data = bytearray((dataset.folder / shard.file).read_bytes())
        data[40] ^= 255
        (dataset.folder / shard.file).write_bytes(data)
    return dataset


def read(dataset: Dataset, *, mixed: bool = False, **options: Any) -> Input:
    """An input of two epochs of the split train, or of both splits."""
    options = {"batch_size": 6, "seed": 3, "epochs": 2, "with_key": True, "text": "padded"} | options
    if not mixed:
        return dataset.training_input("train", **options)
    less = {name: value for name, value in options.items() if name != "without"}
    inputs = [dataset.training_input("train", **options), dataset.training_input("test", **less)]
    return mix(inputs, [3, 1], seed=5, epochs=2)


def recorded(given: Input) -> dict[int, list[list[str]]]:
    """Each step's keys, a list for each row of the batch."""
    found, batches = {}, given.as_numpy()
    for batch in batches:
        keys = (batch if isinstance(batch, dict) else batch[0])["key"]
        rows = map(keys.row, range(len(keys.splits) - 1)) if hasattr(keys, "splits") else ([key] for key in keys)
        found[batches.step - 1] = [[key.decode() for key in row] for row in rows]
    return found


def told(given: Input, steps: Sequence[int]) -> dict[int, list[list[str]]]:
    found = {}
    for step in steps:
        rows = given.rows(step)
        places = range(1 + max((row.place for row in rows), default=-1))
        found[step] = [[row.key for row in rows if row.place == place] for place in places]
    return found


FORMS = {
    "records": {},
    "blocks": {"shuffle": "blocks"},
    "in order": {"shuffle": "none", "drop_remainder": False},
    "balanced": {"balance": True},
    "bucketed": {"text": "bucketed", "batch_size": 1},
    "packed": PACKED,
    "packed in blocks": {**PACKED, "shuffle": "blocks"},
    "mixed": {"mixed": True},
    "mixed and packed": {**PACKED, "mixed": True},
    "without": {"without": BAD},
    "packed without": {**PACKED, "without": BAD},
    "mixed without": {"mixed": True, "without": [key for key in BAD if key != "row/3"]},
}


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_a_step_has_the_rows_that_a_run_records(form: str, hosts: int, dataset: Dataset) -> None:
    for host in range(hosts):
        given = read(dataset, host_index=host, host_count=hosts, **FORMS[form])
        steps = recorded(given)
        assert len(steps) == 2 * given.batches_per_epoch > 0
        assert told(given, [*steps]) == steps


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("form", ["records", "packed", "mixed", "without", "mixed and packed"])
def test_damaged_records_are_skipped_or_replaced_as_in_the_run(form: str, hosts: int, damaged: Dataset) -> None:
    given = read(damaged, host_index=hosts - 1, host_count=hosts, on_error="skip", **FORMS[form])
    steps = recorded(given)
    assert told(given, [*steps]) == steps
    if hosts == 1:
        with pytest.raises(DamagedRecordError):
            told(read(damaged, **FORMS[form]), [*steps])
