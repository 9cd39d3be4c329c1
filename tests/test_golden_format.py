"""Format 1 for ever: a version that was published with it opens, reads as it did, and lets the format grow.

`golden_format_1.tar.xz` is an output as the first Recordmill left it: every kind, two spans, a gate that was overruled,
rejects, a pin. `golden_format_1.json` holds its stored values, which TensorFlow, NumPy and Pillow read of its records.
Neither is ever made again.
"""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import field, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.inputs.input_table import Remembered
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.arrow_tables import WORDS, read_table
from recordmill.pipeline.dataset.manifest import Latest, Manifest, Shard, Span, Split, Written, read_latest
from recordmill.pipeline.dataset.manifest_parts import read_report
from recordmill.pipeline.dataset.profile import read_profiles
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.json_values import read_as
from recordmill.pipeline.reader.iteration import step_of
from recordmill.pipeline.versions import acts
from recordmill.pipeline.versions.base import read_forgotten
from recordmill.pipeline.versions.files import needs_of
from recordmill.pipeline.versions.listing import find
from recordmill.pipeline.versions.publishing import published
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.messages import raises

STORED = Path(__file__).with_name("golden_format_1.json")
VERSION = "20261127T064609Z-4db3c8f1"
LATER = {"lost": {"bits": 3}, "later": [1]}
"""Fields of a later Recordmill."""


@pytest.fixture
def output(tmp_path: Path) -> Path:
    with tarfile.open(STORED.with_suffix(".tar.xz")) as archive:
        archive.extractall(tmp_path / "out")
    return tmp_path / "out"


def edit(file: Path, **changes: Any) -> None:
    """Changes fields of a JSON file."""
    text = json.dumps({**json.loads(file.read_text()), **changes})
    file.unlink()
    file.write_text(text)


def padded(values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """A feature's values in a row of a batch, which may be longer."""
    flat = np.ravel(np.array(values or [0]))
    return [*flat.tolist(), *[0] * (int(np.prod(shape)) - len(flat))]


def expected(name: str, row: dict[str, Any], shape: tuple[int, ...]) -> list[Any]:
    """Returns a record's values as a batch has them, for kinds that are more than padded."""
    values = row[name]
    if name == "hot":
        return [float(id_ in values) for id_ in range(*shape)]
    if name == "captions":
        ends = np.cumsum([0, *row["captions_lengths"]])
        texts = [values[start:end] for start, end in zip(ends, ends[1:], strict=False)]
        return [id_ for text in [*texts, [], [], []][:3] for id_ in padded(text, shape[1:])]
    if name == "missing":
        return padded([] if values == [""] else values, shape)
    return [values[0].encode()] if name == "note" else padded(values, shape)


def test_a_golden_version_is_read_for_ever(output: Path) -> None:
    dataset, rows = open_dataset(output), json.loads(STORED.read_text())
    assert dataset.splits == {split: len(each) for split, each in rows.items()}
    assert {row["key"][0] for each in rows.values() for row in each} == {r.key for r in dataset.records()}
    for split, stored in rows.items():
        features, labels = next(dataset.evaluation_input(split, batch_size=len(stored)).as_numpy())
        features |= {"label": labels}
        for name in stored[0].keys() - {"key"}:
            for number, row in enumerate(stored):
                value = np.asarray(features[name][number])
                assert value.ravel().tolist() == expected(name, row, value.shape), (split, name, row["key"])


@pytest.mark.parametrize("command", ["show", "head", "verify", "versions list", "history"])
def test_a_golden_version_is_shown_for_ever(command: str, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), str(output)])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    assert "row-12" in shown.out if command == "head" else VERSION in shown.out


def grown(kind: type[Written]) -> type[Written]:
    """The part as a later Recordmill has it, with one more field."""
    return make_dataclass("Grown", [("lost", dict[str, int], field(default_factory=dict))], bases=(kind,), frozen=True)


def parts(manifest: dict[str, Any], latest: dict[str, Any]) -> Iterator[tuple[type[Written], dict[str, Any]]]:
    yield from ((Manifest, manifest), (Latest, latest))
    yield from ((Span, each) for each in manifest["spans"].values())
    for split in manifest["splits"].values():
        yield from ((Split, split), *((Shard, each) for each in split["shards"]))


def test_each_part_of_format_1_may_grow_by_a_field_with_a_default(output: Path) -> None:
    text = (output / "versions" / VERSION / "dataset.json").read_text()
    manifest, latest = json.loads(text), json.loads((output / "LATEST").read_text())
    for kind, json_ in parts(manifest, latest):
        read = read_as(json_, grown(kind), "")
        assert (read.lost, read.to_json().get("lost")) == ({}, None)
    assert Manifest.from_json(manifest).to_text() == text


def test_a_manifest_of_what_format_1_needs_opens(output: Path) -> None:
    folder = output / "versions" / VERSION
    manifest = json.loads((folder / "dataset.json").read_text())
    needed = ("format", "name", "version", "build_key", "label", "features", "splits")
    least = Manifest.from_json({name: manifest[name] for name in needed})
    assert (least.splits["train"].records, least.files, least.trial, least.rows) == (8, {}, 0, {})


def test_what_later_builds_read_of_a_golden_version_opens(output: Path) -> None:
    dataset, folder = open_dataset(output), output / "versions" / VERSION
    counted = {split: profile["number"].rows for split, profile in (read_profiles(folder) or {}).items()}
    assert counted == {"train": 8, "validation": 4}
    reports = [read_report((folder / f"spans/{span}/report.json").read_bytes()) for span in dataset.manifest.spans]
    assert [each["sources"]["0"]["read"] for each in reports] == [7, 7]
    inputs = Remembered.read(folder, by_span=True)
    assert inputs is not None
    assert {b"2026-11-01.jsonl", b"p/0.png"} < {*inputs.table["path"].to_pylist()}


def test_a_table_may_grow_by_a_column() -> None:
    table = pa.table({"later": [1], "word": [b"a"], "count": [2], "feature": ["text"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytes(sink.getvalue())
    assert read_table(Path("v"), "x.arrow", data, WORDS).to_pydict() == {"feature": ["text"], "word": [b"a"],
        "count": [2]}  # fmt: skip
    with raises(DatasetError, "x.arrow", "later, word"):
        read_table(Path("v"), "x.arrow", data, WORDS.append(pa.field("more", pa.int64())))


@pytest.mark.parametrize("rest", [{}, {"splits": 7, "name": None, "features": [], "keys": 3, "step": "x"}])
@pytest.mark.parametrize("of", ["live", "named", "pointer", "acts", "state", "forgotten"])
def test_a_newer_format_is_refused_by_its_number_alone(of: str, rest: dict[str, Any], output: Path) -> None:
    newer, manifest = json.dumps({"format": 3, **rest}), output / "versions" / VERSION / "dataset.json"
    reads = {
        "live": (manifest, lambda: open_dataset(output)),
        "named": (manifest, lambda: open_dataset(output, VERSION)),
        "pointer": (output / "LATEST", lambda: open_dataset(output)),
        "acts": (output / "LATEST", lambda: acts.rollback(str(output), VERSION)),
        "state": (None, lambda: step_of(json.loads(newer), {})),
        "forgotten": (output / "forgotten.json", lambda: read_forgotten(open_store(str(output)))),
    }
    file, read = reads[of]
    if file:
        file.write_text(newer)
    with raises(UserError, "newer Recordmill", "format 3", "upgrade") as refused:
        read()
    assert str(file or "the state") in str(refused.value)


def test_a_version_that_cannot_be_read_is_named_and_its_files_stay(
    output: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, manifest = open_store(str(output)), output / "versions" / VERSION / "dataset.json"
    manifest.write_text('{"format": 3, "splits": "20261127T064556Z-4b3aecba"}')
    (output / "versions" / "20261127T064556Z-4b3aecba").mkdir()
    assert published(store) == []
    with raises(UserError, f"no version '{VERSION}'"):
        find(str(output), VERSION)
    assert [VERSION in line and "format 3" in line and "upgrade" in line for line in caplog.messages] == [True]
    assert needs_of(store).whole == {"20261127T064556Z-4b3aecba": VERSION}


def test_what_a_newer_recordmill_added_is_written_back(output: Path) -> None:
    manifest = output / "versions" / VERSION / "dataset.json"
    edit(output / "LATEST", **LATER)
    edit(manifest, **LATER)
    acts.unpin(str(output), VERSION)
    assert json.loads((output / "LATEST").read_text()).items() >= LATER.items()
    read = replace(open_dataset(output).manifest, trial=3)
    assert json.loads(read.to_text()).items() >= {**LATER, "format": 1, "trial": 3}.items()
    assert read_latest(output) == replace(read_latest(output), unknown_fields={})
