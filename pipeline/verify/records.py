"""What the records of a shard hold: the manifest's features and no others, keys in their places, ids that there are.

>>> contents = Contents(manifest, "train", 0, tell)  # doctest: +SKIP
>>> for batch in walk.batches():                     # doctest: +SKIP
...     contents.check(batch)
>>> contents.label_counts                            # doctest: +SKIP
array([4012, 3988])
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.key_hash import hash_keys, shard_of
from recordmill.pipeline.dataset.layout import Layout
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.reader.parsing.batched import walk
from recordmill.pipeline.reader.parsing.examples import SMALL, parse
from recordmill.pipeline.reader.parsing.scan import names_of
from recordmill.pipeline.reader.parsing.varints import Malformed
from recordmill.pipeline.verify.findings import shown
from recordmill.pipeline.verify.frames import Records, Tell
from recordmill.transforms.contract.ragged import Column, Ragged, RowError
from recordmill.transforms.contract.stored import KEY, stored_features

TOGETHER = 2048  # records that are parsed at once
COUNTED = ("category", "categories", "text")
"""The kinds whose int64 are ids from 0 to `vocabulary_size - 1`."""


class Contents:
    """Checks the records of one shard, batch by batch, in their order."""

    def __init__(self, manifest: Manifest, split: str, shard: int, tell: Tell) -> None:
        """Takes what the records should be: of this shard, from 0, of this split; and who is told what they are not."""
        self._split, self._shard, self._tell = split, shard, tell
        self._shards = len(manifest.splits[split].shards)
        self._features = stored_features(manifest.features, with_key=True)
        self._names = sorted(name.encode() for name in self._features)
        self._ids = {
            name: one["vocabulary_size"]
            for name, one in manifest.features.items()
            if one["kind"] in COUNTED and "vocabulary_size" in one and self._features[name].dtype == "int64"
        }
        self._packed = any("packed" in one for one in manifest.features.values())
        self._layout = split_layout(manifest)
        self._last: tuple[int, bytes] | None = None
        counts = manifest.splits[split].label_counts
        self._label = None if counts is None or manifest.label not in self._ids else manifest.label
        self.label_counts: npt.NDArray[np.int64] = np.zeros(len(counts or ()), np.int64)

    def check(self, batch: Records) -> None:
        """Tells of each record that is no Example of the features, lies elsewhere, or holds an id that is none."""
        for start in range(0, len(batch.numbers), TOGETHER):
            some = batch.keep(range(start, min(start + TOGETHER, len(batch.numbers))))
            some, columns = self._parsed(self._named(some))
            if some.numbers:
                self._check_keys(some, [bytes(key) for key in columns.pop(KEY)])
                for name, size in self._ids.items():
                    self._check_ids(some, name, columns[name], size)
                if self._label in columns:
                    values = _values(columns[self._label])
                    inside = values[(values >= 0) & (values < len(self.label_counts))]
                    self.label_counts += np.bincount(inside, minlength=len(self.label_counts))

    def _named(self, batch: Records) -> Records:
        """The records that hold the features' names and no others; small ones of one layout are looked at together."""
        if sum(map(len, batch.records)) <= SMALL * len(batch.records) and batch.records:
            if walk(batch.records, {}) is not None and self._has_names(batch.records[0]) is None:
                return batch
        faults = [self._has_names(record) for record in batch.records]
        return self._without(batch, faults)

    def _has_names(self, record: bytes | memoryview) -> str | None:
        try:
            names = names_of(memoryview(record))
        except Malformed as error:
            return str(error)
        if sorted(names) == self._names:
            return None
        odd = set(names) ^ set(self._names) or {name for name in names if names.count(name) > 1}
        words = ", ".join(shown(name) for name in sorted(odd)[:5])
        return f"its features are not those of the manifest, by {words}"

    def _parsed(self, batch: Records) -> tuple[Records, dict[str, Any]]:
        """The records that are Examples of the features, and what they hold."""
        try:
            return batch, parse(batch.records, self._features)
        except RowError:
            good = self._without(batch, [self._parse_fault(record) for record in batch.records])
            return good, parse(good.records, self._features)

    def _parse_fault(self, record: bytes | memoryview) -> str | None:
        try:
            parse([record], self._features)
        except RowError as error:
            return error.message
        return None

    def _without(self, batch: Records, faults: list[str | None]) -> Records:
        """The records without a fault; the others are told."""
        for number, offset, fault in zip(batch.numbers, batch.offsets, faults, strict=True):
            if fault is not None:
                self._tell(number, offset, fault)
        return batch.keep([place for place, fault in enumerate(faults) if fault is None])

    def _check_keys(self, batch: Records, keys: list[bytes]) -> None:
        splits, positions, _ = hash_keys(keys)
        if not self._packed:
            self._check_order(batch, keys, positions)
        shards = shard_of(positions, self._shards)
        for place in np.flatnonzero(shards != self._shard).tolist():
            message = f"its key {shown(keys[place])} belongs in shard {shards[place]} of the split '{self._split}'"
            self._tell(batch.numbers[place], batch.offsets[place], message)
        if self._layout is not None:
            of = self._layout.splits.index(self._split)
            found = self._layout.split_of(splits)
            for place in np.flatnonzero(found != of).tolist():
                message = f"its key {shown(keys[place])} belongs in the split '{self._layout.splits[found[place]]}'"
                self._tell(batch.numbers[place], batch.offsets[place], message)

    def _check_order(self, batch: Records, keys: list[bytes], positions: npt.NDArray[np.uint64]) -> None:
        """The records of a shard rise by (hash, key), so a key that comes twice stands beside itself."""
        last, key = self._last or (-1, b"")
        if int(positions[0]) > last and (positions[1:] > positions[:-1]).all():
            self._last = int(positions[-1]), keys[-1]
            return
        for place, this in enumerate(zip(positions.tolist(), keys, strict=True)):
            if this <= (last, key):
                again = "stands there a second time" if this == (last, key) else "belongs before the record before it"
                self._tell(batch.numbers[place], batch.offsets[place], f"its key {shown(keys[place])} {again}")
            last, key = this
        self._last = last, key

    def _check_ids(self, batch: Records, name: str, column: Column, size: int) -> None:
        values = _values(column)
        wrong = np.flatnonzero((values < 0) | (values >= size))
        if not len(wrong):
            return
        rows = np.searchsorted(column.splits, wrong, side="right") - 1 if isinstance(column, Ragged) else wrong
        for place, row in zip(wrong.tolist(), rows.tolist(), strict=True):
            message = f"feature '{name}' holds the id {values[place]}; ids are 0 to {size - 1}"
            self._tell(batch.numbers[row], batch.offsets[row], message)


def split_layout(manifest: Manifest) -> Layout | None:
    """The layout by which a key's hash decides its split; None where something else does, or the manifest is old."""
    spec: Mapping[str, Any] = manifest.spec
    by_key = not spec.get("split_by") and not any(source.get("split") for source in spec.get("source", ()))
    together = (spec.get("duplicates") or {}).get("action") == "same_split"
    if not by_key or together or spec.get("splits", {}).keys() != manifest.splits.keys():
        return None
    return Layout(spec["splits"], {name: len(split.shards) for name, split in manifest.splits.items()})


def _values(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.values if isinstance(column, Ragged) else column)
