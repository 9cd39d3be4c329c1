"""Exports a version: a file for each shard, and a spec that rebuilds the same rows from them.

>>> export(open_dataset("out/emoji"), "parquet", Path("emoji-parquet")).rows  # doctest: +SKIP
10000
"""

import json
import math
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import yaml

from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.export.columns import Columns, columns_of
from recordmill.pipeline.export.formats import FORMATS, ExportWriter, Row
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.contract.kinds.base import ExportError

SPEC_FILE = "dataset.yaml"
OPTIONS = ("shards", "together")  # copied to the export's spec, besides name, splits, features and label


@dataclass(frozen=True)
class Exported:
    """The outcome of an export."""

    rows: int
    files: int
    bytes: int
    notes: list[str]
    has_spec: bool
    """Whether the export includes a spec; a build needs rows of `train`."""


def export(dataset: DatasetVersion, to: str, target: Path, split: str | None = None) -> Exported:
    """Writes a version's rows into a folder, completely or not at all, with a few rows in memory.

    Args:
        dataset: the version.
        to: the format, a name in `FORMATS`.
        target: a new or empty folder; not the current one.
        split: the only split to write; None: all.

    Raises:
        ExportError: the format is unknown, or cannot hold a feature; or the folder is not empty, or the current one.
        SpecError: the rows cannot be rebuilt by a spec.
        DatasetError: the split is unknown, or a record is damaged.
        OSError: the folder cannot be written.
    """
    if to not in FORMATS:
        raise ExportError(f"unknown format '{to}'{did_you_mean(to, FORMATS)}; known: {', '.join(FORMATS)}")
    writer, target, columns = FORMATS[to], _target(target), columns_of(dataset)
    writer.check(columns)
    spec = _spec(dataset, writer, columns) if split in (None, "train") else None
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        folder.chmod(0o755)  # `mkdtemp` lets only the owner read
        rows = _write(dataset, writer, columns, folder, split)
        if spec is not None:
            for path, lines in columns.files.items():
                path_within(folder, path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            (folder / SPEC_FILE).write_text(spec, encoding="utf-8")
        files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        folder.rename(target)  # also replaces an empty folder
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise
    return Exported(rows, len(files), sum(files), columns.notes, spec is not None)


def _target(given: Path) -> Path:
    """Resolves the links of a target's path. Raises: ExportError: a rename cannot replace it."""
    target = given.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{given} is not empty: name a new folder")
    if target == Path.cwd() or target.is_mount():
        what = "the current folder" if target == Path.cwd() else "a mount point"
        raise ExportError(f"{given} is {what}, which cannot be replaced: name a folder in it")
    return target


def _write(
    dataset: DatasetVersion, writer: type[ExportWriter], columns: Columns, folder: Path, split: str | None
) -> int:
    """Writes a file for each nonempty shard; returns the number of rows."""
    rows = 0
    features = {**dataset.features, **columns.as_stored}
    dataset = DatasetVersion(dataset.folder, replace(dataset.manifest, features=features))
    for name in dataset.splits if split is None else [split]:
        shards = len(dataset.manifest.split(name).shards)
        for number, records in _by_shard(dataset, name):
            with writer(folder, f"{name}-{number:05d}-of-{shards:05d}", columns) as shard:
                for record, row in _rows(records, columns):
                    try:
                        shard.write(record, row)
                    except ExportError as error:
                        raise ExportError(f"row '{record.key}': {error}") from None
                    rows += 1
    return rows


def _by_shard(dataset: DatasetVersion, split: str) -> Iterator[tuple[int, Iterator[Record]]]:
    """Groups a split's records by shard number, since shards in other versions' folders may share a file name."""
    ends = list(accumulate(shard.records for shard in dataset.manifest.split(split).shards))
    return groupby(read_records(dataset, split), key=lambda record: bisect_right(ends, record.position))


def _rows(records: Iterator[Record], columns: Columns) -> Iterator[tuple[Record, Row]]:
    own = (*columns.key, columns.split)
    for record in records:
        span = (record.span,) if columns.is_by_span else ()
        row: dict[str, Any] = dict(zip(own, (*span, _key(record), record.split), strict=True))
        for column in columns.columns:
            try:
                row[column.name] = column.cell(record.values[column.feature])
            except ExportError as error:
                raise ExportError(f"row '{record.key}', feature '{column.feature}': {error}") from None
        yield record, row


def _key(record: Record) -> str:
    try:
        record.key.encode()
    except UnicodeEncodeError:
        raise ExportError(f"the key {record.key!a} is not UTF-8, so it cannot be exported") from None
    return record.key


def _spec(dataset: DatasetVersion, writer: type[ExportWriter], columns: Columns) -> str:
    """Returns the spec of the exported rows. Raises: SpecError: a spec cannot describe them."""
    given = dataset.manifest.spec
    version = " ".join(dataset.version.split())  # a line break would end the comment
    notes = [f"Rebuilds the rows of {dataset.name} {version}: recordmill build {SPEC_FILE} --output DIR"]
    spec = {
        "name": dataset.name,
        "source": writer.source,
        "key": [writer.name_in_spec(name) for name in columns.key],
        "splits": given.get("splits"),
        "split_by": {"column": writer.name_in_spec(columns.split)},
        **{name: given[name] for name in OPTIONS if given.get(name)},
        "features": _features(writer, columns),
        **({"label": dataset.label} if dataset.label else {}),
    }
    copied = json.loads(json.dumps(spec))  # YAML writes an object that occurs twice as an anchor and an alias
    yaml_text = yaml.safe_dump(copied, default_flow_style=None, sort_keys=False, allow_unicode=True, width=math.inf)
    text = "".join(f"# {note}\n" for note in [*notes, *columns.notes]) + yaml_text
    parse_spec(text)
    return text


def _features(writer: type[ExportWriter], columns: Columns) -> dict[str, Any]:
    """Returns the spec's features, each with its column's name if that differs."""
    by_name = {column.name: column for column in columns.columns}
    features = {}
    for name, options in columns.features.items():
        column = options.get("column", name)
        read = writer.name_in_spec(column, by_name[column])
        features[name] = options if read == name else {**options, "column": read}
    return features
