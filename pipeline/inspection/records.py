"""Some records of a version, decoded for people.

>>> for record in read_records(open_dataset("out/emoji"), "train", label="cat", limit=2):  # doctest: +SKIP
...     print(record.key, record.values["label"], record.values["image"])
cats/17.jpg cat JPEG, 224x224, 11,420 bytes
cats/4.jpg cat JPEG, 224x224, 9,816 bytes

Records are in the order of their keys' hashes: a split's first ones are a random sample of it, or of its first span.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, Shard
from recordmill.pipeline.dataset.version import DatasetVersion, parts_to_parse
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.inspection.values import Decoder, Value, shown, to_json
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import Numbers
from recordmill.pipeline.rows import find_records, open_records, runs
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.stored import KEY, RowError

TOGETHER = 64  # records read at once: from an object store in one request


@dataclass(frozen=True)
class Record:
    """A record, and its place in the version."""

    key: str  # the row's key as text; invalid UTF-8 as surrogates (`surrogateescape`)
    split: str
    position: int  # the record's number in the split, from 0, in the order of `evaluation_input`
    span: str | None
    shard: str  # the path of the shard's file in the version's folder
    bytes: int  # the record's size
    values: Mapping[str, Value]  # by feature, in the spec's order


@dataclass(frozen=True)
class _Part:
    """Records of one shard by number; `first` is the position of the shard's first record in the split."""

    split: str
    shard: Shard
    first: int
    numbers: Numbers


def read_records(
    dataset: DatasetVersion,
    split: str | None = None,
    *,
    key: str | bytes | None = None,
    label: str | None = None,
    span: str | None = None,
    positions: Sequence[int] | None = None,
    features: Sequence[str] | None = None,
    limit: int | None = None,
) -> Iterator[Record]:
    """Reads records lazily, with a few in memory, in the order of their positions or of `positions`.

    Args:
        dataset: a version.
        split: a split's name; None: all splits in order.
        key: the rows' key; found by binary search.
        label: a class name, the record's or one of the record's; reads in order until `limit` is reached.
        span: a span's name.
        positions: numbers in the split, from 0, in any order; needs `split`.
        features: the features to decode; None: all.
        limit: the most records; None: all.

    Raises:
        DatasetError: the split, span, class, position or feature does not exist; records of packed texts lack keys
            and classes; or a record or a file is damaged.
    """
    if split is not None:
        dataset.manifest.split(split)
    if span is not None and span not in dataset.manifest.spans:
        near = did_you_mean(span, dataset.manifest.spans)
        raise DatasetError(f"unknown span '{span}'{near}; {dataset.name} has: {listed(dataset.manifest.spans)}")
    decoder, class_id = Decoder(dataset, features), None
    if label is not None:
        if dataset.label is None:
            raise DatasetError(f"{dataset.name} has no label, so its records have no class")
        names = dataset.classes
        if label not in names:
            raise DatasetError(f"unknown class '{label}'{did_you_mean(label, names)}; known: {listed(names)}")
        class_id = names.index(label)
    if key is not None:
        parts = _of_key(dataset, split, span, key)
    elif positions is None:
        every = _shards(dataset.manifest, split, span)
        parts = (_Part(name, shard, first, np.arange(shard.records)) for name, shard, first in every)
    elif split is None:
        raise DatasetError("positions need a split: name it")
    else:
        parts = _at(dataset.manifest, split, positions)
    return islice((record for part in parts for record in _read(dataset, part, decoder, class_id)), limit)


def _shards(manifest: Manifest, split: str | None, span: str | None) -> Iterator[tuple[str, Shard, int]]:
    """Yields the shards of a split and a span, or of all, with their first records' positions."""
    for run in runs(manifest):
        for shard, first in run.placed() if split in (None, run.split) else ():
            if span is None or shard.span == span:
                yield run.split, shard, first


def _at(manifest: Manifest, split: str, positions: Sequence[int]) -> Iterator[_Part]:
    shards = list(_shards(manifest, split, None))
    ends = np.cumsum([shard.records for _, shard, _ in shards])
    records = manifest.splits[split].records
    for position in positions:
        if not 0 <= position < records:
            raise DatasetError(f"the split '{split}' has no record {position:,}: its {records:,} are numbered from 0")
        _, shard, first = shards[int(np.searchsorted(ends, position, side="right"))]
        yield _Part(split, shard, first, np.array([position - first]))


def _of_key(dataset: DatasetVersion, split: str | None, span: str | None, key: str | bytes) -> Iterator[_Part]:
    for row in find_records(dataset.folder, dataset.manifest, key):
        if (split or row.split) == row.split and (span or row.shard.span) == row.shard.span:
            yield _Part(row.split, row.shard, row.position - row.record, np.array([row.record]))


def _read(dataset: DatasetVersion, part: _Part, decoder: Decoder, class_id: int | None) -> Iterator[Record]:
    """Reads, filters and decodes a few records at a time."""
    stored = parts_to_parse(dataset.manifest, decoder.descriptions)
    if class_id is not None:  # a list of ids, since a record may have one or several
        described = {str(dataset.label): dataset.features[str(dataset.label)]}
        label = replace(read_descriptions(described)[str(dataset.label)].parts()[""], shape=None)
    with open_records(str(dataset.folder), part.shard, np.arange(0, part.shard.records, TOGETHER)) as records:
        for start in range(0, len(part.numbers), TOGETHER):
            numbers = part.numbers[start : start + TOGETHER]
            try:
                data = records.read(numbers)
                if class_id is not None:
                    ids: Any = parse(data, {"label": label})["label"]
                    of_row = np.repeat(np.arange(len(data)), ids.lengths())
                    of_class = np.unique(of_row[ids.values == class_id]).tolist()
                    numbers, data = numbers[of_class], [data[row] for row in of_class]
                columns = parse(data, stored)
                keys: Any = columns.get(KEY) or records.keys(numbers)
                for row, (number, record) in enumerate(zip(numbers.tolist(), data, strict=True)):
                    key = bytes(keys[row]).decode("utf-8", "surrogateescape")
                    place = part.split, part.first + number, part.shard.span, shown_paths(part.shard)[0]
                    yield Record(key, *place, len(record), decoder.decode(columns, row))
            except RowError as error:
                where = f"{shown_paths(part.shard)[0]}, record {numbers[error.row]:,}"
                raise DatasetError(f"{where}: {error.message}: run `recordmill verify`") from None


def lines_of(record: Record) -> Iterator[str]:
    """Describes a record for people: its place, then a line for each feature."""
    span = f", span {record.span}" if record.span else ""
    yield f"{record.key}  ({record.split}, position {record.position:,}{span})"
    names = [cut(name) for name in record.values]
    width = max(map(len, names), default=0)
    for name, value in zip(names, record.values.values(), strict=True):
        yield f"  {name:<{width}}  {shown(value)}"


def record_to_json(record: Record) -> dict[str, Any]:
    """Returns a record as JSON: its place, and its values by feature."""
    place = {name: getattr(record, name) for name in ("key", "split", "position", "span", "shard")}
    return {**place, "values": {name: to_json(value) for name, value in record.values.items()}}
