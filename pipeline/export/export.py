"""Exports a version: a file for each shard, and a spec that builds the same rows of them again.

>>> export(open_dataset("out/emoji"), "parquet", Path("emoji-parquet")).rows  # doctest: +SKIP
10000
"""

import json
import re
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.safe_paths import path_within
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.export.columns import Columns, ExportError, columns_of
from recordmill.pipeline.export.formats import FORMATS, Format, Row
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.pipeline.spec.model import parse_spec

SPEC_FILE = "dataset.yaml"
KEPT = ("shards", "together")
"""The options of the spec that the export's has, too, beside its name, splits, features and label."""

PATH_FIELD = re.compile(r"(.+_)?file_names?")
"""The fields of a folder's metadata that are paths of images."""


@dataclass(frozen=True)
class Exported:
    """The outcome of an export."""

    rows: int
    files: int
    bytes: int
    notes: list[str]
    """Sentences on values that do not go back as they came."""
    has_spec: bool
    """Whether a spec that builds the rows again lies beside them: no build is without rows of `train`."""


def export(dataset: Dataset, to: str, target: Path, split: str | None = None) -> Exported:
    """Writes the rows of a version into a folder, which is there whole or not at all.

    Memory holds a few rows at a time.

    Args:
        dataset: the version.
        to: the format, a name of `FORMATS`.
        target: a folder that is not there, or empty; not the current one.
        split: the only split to write; None: all.

    Raises:
        ExportError: the format is unknown, or cannot hold a feature; or the folder is not empty, or the current one.
        SpecError: no spec could build the rows again.
        DatasetError: there is no such split, or a record is damaged.
        OSError: the folder cannot be written.
    """
    form = _format(to)
    target = _target(target)
    columns = columns_of(dataset)
    _check(columns, form, to)
    spec = _spec(dataset, form, columns) if split in (None, "train") else None
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        folder.chmod(0o755)  # `mkdtemp` lets nobody else read
        rows = _write(dataset, form, columns, folder, split)
        if spec is not None:
            _write_spec(spec, columns, folder)
        files = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        folder.rename(target)  # in the place of an empty folder, too
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise
    return Exported(rows, len(files), sum(files), columns.notes, spec is not None)


def _format(to: str) -> Format:
    if to not in FORMATS:
        raise ExportError(f"there is no format '{to}'{did_you_mean(to, FORMATS)}; there are: {', '.join(FORMATS)}")
    return FORMATS[to]


def _target(given: Path) -> Path:
    """Gives a target's path with links followed. Raises: ExportError: an export cannot take its place by a rename."""
    target = given.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{given} is not empty: name a folder that is not there yet")
    if target == Path.cwd() or target.is_mount():
        what = "the current folder" if target == Path.cwd() else "where a disk is mounted"
        raise ExportError(f"{given} is {what}, whose place no other folder can take: name one in it")
    return target


def _check(columns: Columns, form: Format, to: str) -> None:
    """Refuses features that a format cannot hold."""
    for column in columns.columns:
        if column.type in form.refused:
            raise ExportError(
                f"'{column.feature}' has several images a row, which {to} cannot hold: use parquet or jsonl"
            )
    if form.has_members:
        _check_members([column.name for column in columns.columns if column.type == "image"], to)
    if not form.is_of_images:
        return
    images = [column.feature for column in columns.columns if column.type == "image"]
    if len(images) != 1:
        has = ", ".join(images) or "none"
        raise ExportError(f"{to} is of one image a row, and the features that are an image are: {has}; use parquet")
    if columns.features[images[0]].get("optional"):
        raise ExportError(f"{to} is of one image a row, and '{images[0]}' is optional: use parquet or jsonl")
    for column in columns.columns:
        if column.type != "image" and (column.name == "image" or PATH_FIELD.fullmatch(column.name)):
            raise ExportError(f"'{column.name}' is a field of {to} that names or holds the image: use parquet or jsonl")


def _check_members(images: Sequence[str], to: str) -> None:
    """Refuses images whose files in a sample would have one name."""
    owners = {"json": "the row's values"}
    for name in images:
        own = f"the image '{name}'"
        if (owner := owners.setdefault(name.lower(), own)) != own:
            raise ExportError(
                f"{own} and {owner} would be one file of a sample, since {to} knows no capitals: use parquet or jsonl"
            )


def _write(dataset: Dataset, form: Format, columns: Columns, folder: Path, split: str | None) -> int:
    """Writes a file for each shard that has records; returns the number of rows."""
    rows = 0
    features = {**dataset.features, **columns.as_stored}
    dataset = Dataset(dataset.folder, replace(dataset.manifest, features=features))
    for name in dataset.splits if split is None else [split]:
        shards = len(dataset.manifest.split(name).shards)
        for number, records in _by_shard(dataset, name):
            with form.open(folder, f"{name}-{number:05d}-of-{shards:05d}", columns) as writer:
                for record, row in _rows(records, columns):
                    try:
                        writer.write(record, row)
                    except ExportError as error:
                        raise ExportError(f"in the row '{record.key}' {error}") from None
                    rows += 1
    return rows


def _by_shard(dataset: Dataset, split: str) -> Iterator[tuple[int, Iterator[Record]]]:
    """Gives a split's records by the number of their shard: shards in other versions' folders may share a file name."""
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
                raise ExportError(f"'{column.feature}' of the row '{record.key}': {error}") from None
        yield record, row


def _key(record: Record) -> str:
    try:
        record.key.encode()
    except UnicodeEncodeError:
        raise ExportError(f"the key {record.key!a} is no UTF-8, which no column of an export holds") from None
    return record.key


def _write_spec(spec: str, columns: Columns, folder: Path) -> None:
    for path, lines in columns.files.items():
        path_within(folder, path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / SPEC_FILE).write_text(spec, encoding="utf-8")


def _spec(dataset: Dataset, form: Format, columns: Columns) -> str:
    """Gives the spec that builds the exported rows. Raises: SpecError where none can."""
    given = dataset.manifest.spec
    version = " ".join(dataset.version.split())  # on one line, so that nothing of it leaves the comment
    lines = [
        f"# Builds the rows of {dataset.name} {version} again: recordmill build {SPEC_FILE} --output DIR",
        *(f"# {note}" for note in columns.notes),
        f"name: {_flow(dataset.name)}",
        f"source: {_flow(_source(form, columns))}",
        f"key: {_flow([form.plain_column(name) for name in columns.key])}",
        f"splits: {_flow(given['splits'])}",
        f"split_by: {_flow({'column': form.plain_column(columns.split)})}",
        *(f"{name}: {_flow(given[name])}" for name in KEPT if given.get(name)),
        "features:",
    ]
    by_feature = {column.name: column for column in columns.columns}
    for name, options in columns.features.items():
        column = form.column(by_feature[options.get("column", name)])
        lines.append(f"  {_flow(name)}: {_flow({**options, **({'column': column} if column != name else {})})}")
    text = "\n".join([*lines, *([f"label: {_flow(dataset.label)}"] if dataset.label else [])]) + "\n"
    parse_spec(text)
    return text


def _source(form: Format, columns: Columns) -> Mapping[str, Any]:
    """Gives the source of a format, without a folder of images where there are none."""
    has_images = any(column.type in ("image", "images") for column in columns.columns)
    return {name: value for name, value in form.source.items() if name != "images" or has_images}


def _flow(value: Any) -> str:
    """Writes a value on one line, as YAML and JSON both read it; names without quotes.

    >>> _flow({"kind": "category", "classes": ["no", "cat"]})
    '{kind: category, classes: ["no", "cat"]}'
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(name)}: {_flow(each)}' for name, each in value.items())}}}"
    if isinstance(value, str) and value.isidentifier() and value.lower() not in YAML_WORDS:
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(_quoted(each) if isinstance(each, str) else _flow(each) for each in value)}]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    """Quotes a string; YAML takes characters beyond 16 bits as they are, and would fold some that break lines."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


YAML_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
