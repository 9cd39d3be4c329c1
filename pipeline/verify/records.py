"""Checks what the records of a shard hold: exactly the manifest's features, keys in their place, known ids.

>>> checks = RecordChecks(manifest, "train", 0, report)  # doctest: +SKIP
>>> for batch in walk.batches():                         # doctest: +SKIP
...     checks.check(batch)
>>> checks.label_counts                                  # doctest: +SKIP
array([4012, 3988])
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.placement import Layout, hash_keys, shard_of
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.pipeline.reader.parsing import SMALL, parse, walk
from recordmill.pipeline.reader.wire import Malformed, names_of
from recordmill.pipeline.verify.frames import Records, ReportDamage
from recordmill.pipeline.verify.report import shown
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.text import TextDescription
from recordmill.transforms.contract.ragged import Column, Ragged, RowError
from recordmill.transforms.contract.stored import KEY, stored_features

TOGETHER = 2048  # records that are parsed at once


class RecordChecks:
    """Checks the records of one shard, batch by batch, in their order.

    Args:
        manifest: the version's.
        split: the shard's split.
        shard: its number there, from 0.
        report: called with each record that is not as it should be.
    """

    def __init__(self, manifest: Manifest, split: str, shard: int, report: ReportDamage) -> None:
        self._split, self._report = split, report
        shards = manifest.splits[split].shards
        self._of_span = [number for number, each in enumerate(shards) if each.span == shards[shard].span]
        self._shard = self._of_span.index(shard)
        described = read_descriptions(manifest.features)
        self._features = stored_features(described, with_key=True)
        self._names = sorted(name.encode() for name in self._features)
        self._ids = {
            name: description.vocabulary_size
            for name, description in described.items()
            if isinstance(description, Ids) and self._features[name].dtype == "int64"
        }
        self._packed = any(isinstance(text, TextDescription) and text.packed for text in described.values())
        self._layout = split_layout(manifest)
        self._last = (-1, b"")
        counts = manifest.splits[split].label_counts
        self._label = None if counts is None or manifest.label not in self._ids else manifest.label
        self.label_counts: npt.NDArray[np.int64] = np.zeros(len(counts or ()), np.int64)

    def check(self, batch: Records) -> None:
        """Reports each record that is no Example of the features, belongs elsewhere, or holds an unknown id."""
        for start in range(0, len(batch.numbers), TOGETHER):
            part = batch.keep(range(start, min(start + TOGETHER, len(batch.numbers))))
            part, columns = self._parsed(self._named(part))
            if part.numbers:
                self._check_keys(part, [bytes(key) for key in columns.pop(KEY)])
                for name, size in self._ids.items():
                    self._check_ids(part, name, columns[name], size)
                if self._label in columns:
                    labels = _values(columns[self._label])
                    known = labels[(labels >= 0) & (labels < len(self.label_counts))]
                    self.label_counts += np.bincount(known, minlength=len(self.label_counts))

    def _named(self, batch: Records) -> Records:
        """Keeps the records with exactly the features' names; of small records of one layout it looks at the first."""
        if batch.records and sum(map(len, batch.records)) <= SMALL * len(batch.records):
            if walk(batch.records, {}) is not None and self._name_fault(batch.records[0]) is None:
                return batch
        return self._without_faults(batch, self._name_fault)

    def _name_fault(self, record: bytes | memoryview) -> str | None:
        try:
            names = names_of(record)
        except Malformed as error:
            return str(error)
        if sorted(names) == self._names:
            return None
        odd = set(names) ^ set(self._names) or {name for name in names if names.count(name) > 1}
        return f"its features are not those of the manifest: {', '.join(shown(name) for name in sorted(odd)[:5])}"

    def _parsed(self, batch: Records) -> tuple[Records, dict[str, Any]]:
        """Keeps the records with values of the features' types and shapes; also gives these."""
        try:
            return batch, parse(batch.records, self._features)
        except RowError:
            batch = self._without_faults(batch, self._parse_fault)
            return batch, parse(batch.records, self._features)

    def _parse_fault(self, record: bytes | memoryview) -> str | None:
        try:
            parse([record], self._features)
        except RowError as error:
            return error.message
        return None

    def _without_faults(self, batch: Records, fault_of: Callable[[bytes | memoryview], str | None]) -> Records:
        """Reports the records with a fault and keeps the others."""
        good = []
        for row, record in enumerate(batch.records):
            fault = fault_of(record)
            if fault is None:
                good.append(row)
            else:
                self._report_row(batch, row, fault)
        return batch.keep(good)

    def _check_keys(self, batch: Records, keys: list[bytes]) -> None:
        splits, positions, _ = hash_keys(keys)
        if not self._packed:
            self._check_order(batch, keys, positions)
        shards = shard_of(positions, len(self._of_span))
        for row in np.flatnonzero(shards != self._shard).tolist():
            place = f"shard {self._of_span[shards[row]]} of the split '{self._split}'"
            self._report_row(batch, row, f"its key {shown(keys[row])} belongs in {place}")
        if self._layout is not None:
            numbers, names = self._layout.split_of(splits), self._layout.splits
            for row in np.flatnonzero(numbers != names.index(self._split)).tolist():
                self._report_row(batch, row, f"its key {shown(keys[row])} belongs in the split '{names[numbers[row]]}'")

    def _check_order(self, batch: Records, keys: list[bytes], positions: npt.NDArray[np.uint64]) -> None:
        """Checks that the records rise by (hash, key), which puts equal keys next to each other."""
        last = self._last
        if int(positions[0]) > last[0] and (positions[1:] > positions[:-1]).all():
            self._last = int(positions[-1]), keys[-1]
            return
        for row, this in enumerate(zip(positions.tolist(), keys, strict=True)):
            if this <= last:
                fault = "occurs twice in the shard" if this == last else "belongs before the previous record"
                self._report_row(batch, row, f"its key {shown(keys[row])} {fault}")
            last = this
        self._last = last

    def _check_ids(self, batch: Records, name: str, column: Column, size: int) -> None:
        values = _values(column)
        wrong = np.flatnonzero((values < 0) | (values >= size))
        if not len(wrong):
            return
        rows = np.searchsorted(column.splits, wrong, side="right") - 1 if isinstance(column, Ragged) else wrong
        for id_, row in zip(values[wrong].tolist(), rows.tolist(), strict=True):
            self._report_row(batch, row, f"feature '{name}' holds the id {id_}; ids are 0 to {size - 1}")

    def _report_row(self, batch: Records, row: int, message: str) -> None:
        self._report(batch.numbers[row], batch.offsets[row], message)


def split_layout(manifest: Manifest) -> Layout | None:
    """The layout by which a key's hash decides its split; None if something else decides, or the manifest is old."""
    spec: Mapping[str, Any] = manifest.spec
    by_key = not spec.get("split_by") and not any(source.get("split") for source in spec.get("source", ()))
    together = (spec.get("duplicates") or {}).get("action") == "same_split"
    if not by_key or together or spec.get("splits", {}).keys() != manifest.splits.keys():
        return None
    return Layout(spec["splits"], {name: len(split.shards) for name, split in manifest.splits.items()})


def _values(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(column.values if isinstance(column, Ragged) else column)
