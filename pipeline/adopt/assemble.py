"""Assembles the version of adopted files: the records of each split, rejects, counts, and the manifest."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.adopt.files import Adoption
from recordmill.pipeline.adopt.guess import Guessed
from recordmill.pipeline.adopt.scanned import DAMAGED, INPUTS_FILE, INTS, Layout, Scanned, key_of
from recordmill.pipeline.dataset.file_names import shard_file
from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard, Split
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.reader import wire
from recordmill.pipeline.versions.base import FORGOTTEN, Forgotten, now
from recordmill.pipeline.versions.files import inventory
from recordmill.pipeline.versions.publishing import version_name

REJECTS_FILE = "rejects/rejected-00000-of-00001.jsonl"
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Assembly:
    """A version of adopted files under way."""

    adoption: Adoption  # with shares, `Scanned.groups` has the numbers of `splits`
    scanned: Sequence[Scanned]
    guessed: Guessed
    forgotten: Forgotten
    left_out: Mapping[int, Mapping[int, wire.Lists | None]]  # by file, the forgotten records, with their lists
    folder: Path
    rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @cached_property
    def splits(self) -> list[str]:
        """The splits, in order."""
        return list(self.adoption.splits or dict.fromkeys(each.found.split for each in self.scanned))

    def assemble(self) -> Manifest:
        """Writes the version's files, and returns its manifest."""
        self.folder.mkdir(parents=True)
        rejects = self._write_rejects()
        splits = {split: self._split(number, split) for number, split in enumerate(self.splits)}
        words = {name: read.words for name, read in self.guessed.read.items()}
        for name, some in words.items():
            if some is not None:
                lines = "".join(f"{' '.join(word.split()) or '_'}\n" for word in some)
                path_within(self.folder, f"vocabularies/{name}.vocabulary.txt").write_text(lines, encoding="utf-8")
        for number, each in enumerate(self.scanned):
            for name, suffix in zip(self._names(number), (".index", ".scan"), strict=True):
                os.link(each.path.with_suffix(suffix), self.folder / name)
        inputs = {each.path.name: self._names(number) for number, each in enumerate(self.scanned)}
        (self.folder / INPUTS_FILE).write_text(json.dumps(inputs), encoding="ascii")
        features = {name: read.description.to_json() for name, read in self.guessed.read.items()}
        content = [[each.found.split, each.found.root, each.found.name, each.sha256] for each in self.scanned]
        decided = [self.adoption.options, content, features, words]
        source_key = hashlib.sha256(json.dumps(decided).encode()).hexdigest()
        key = self.forgotten.rows_key(source_key)
        forgotten = {FORGOTTEN: self.forgotten.entry(source_key)} if self.forgotten.keys else {}
        fates = ("read", "written", "rejected", *(("forgotten",) if self.rows["forgotten"] else ()))
        rows = {fate: self.rows[fate] for fate in fates}
        given = sorted({os.path.join(each.found.root, os.path.dirname(each.found.name)) for each in self.scanned})
        return Manifest(
            name=self.adoption.dataset,
            version=version_name(key),
            build_key=key,
            label=self.guessed.label,
            features=features,
            splits=splits,
            statistics={name: statistics for name in features if (statistics := self._statistics(name))},
            rows=rows,
            sources=({"format": "adopted", "path": ", ".join(given), **rows},),
            rejects=rejects,
            spec=self._spec(),
            provenance={"built_at": now(), "source_key": key, **forgotten},
            adopted={"files": given, **({"key": self._key()} if self.adoption.key is not None else {})},
            files=inventory(str(self.folder), ()),
        )

    def _spec(self) -> Json:
        features = dict[str, Any]()
        for name, read in self.guessed.read.items():
            column = {"columns": [*read.columns]} if len(read.columns) > 1 else {"column": read.columns[0]}
            column = {} if read.columns == (name,) else column
            default = (read.description.stored_as or {})[""].default
            more = {"default": list(default)} if default else {}
            features[name] = {"kind": read.spec["kind"], **column, **read.spec, **more}
        shares = dict(self.adoption.splits) or dict.fromkeys(self.splits, 1)
        return {"name": self.adoption.dataset, "splits": shares, "features": features, "label": self.guessed.label}

    def _fault(self, layout: Layout) -> tuple[str, str, str | None] | None:
        return self.guessed.reject(layout, self.adoption.key)

    def _key(self) -> Json:
        layouts = [layout for each in self.scanned for layout in each.layouts]
        kinds = {layout[self.adoption.key or ""] for layout in layouts if self._fault(layout) is None}
        return {"names": [self.adoption.key], "dtype": "int64" if kinds == {"int64"} else "bytes"}

    def _names(self, number: int) -> tuple[str, str]:
        """Names what the version holds of a file: its index, and what the pass found."""
        place = f"{number:05d}-of-{len(self.scanned):05d}"
        return f"{self.adoption.dataset}.index-{place}", f"{self.adoption.dataset}.scan-{place}"

    @cached_property
    def _read(self) -> list[Bools]:
        """By file, the records to read: neither damaged nor of a layout that is left out."""
        read = list[Bools]()
        for each in self.scanned:
            good = np.zeros(DAMAGED + 1, bool)
            good[: len(each.layouts)] = [self._fault(layout) is None for layout in each.layouts]
            read.append(good[each.groups[:, 1]])
        return read

    def _split(self, number: int, split: str) -> Split:
        shards, labels, by_share = list[Shard](), Counter[int](), bool(self.adoption.splits)
        own = [at for at, each in enumerate(self.scanned) if by_share or each.found.split == split]
        for place, at in enumerate(own):
            each, kept = self.scanned[at], self._read[at].copy()
            if by_share:
                kept &= each.groups[:, 0] == number
            gone = {record: lists for record, lists in self.left_out.get(at, {}).items() if kept[record]}
            kept[list(gone)] = False
            self.rows["forgotten"] += len(gone)
            found, records, index = each.found, int(kept.sum()), self._names(at)[0]
            adopted: Json = {"root": found.root, "frames": each.records, "seen": found.info.seen, "sample": each.sample}
            shard = Shard(found.name, found.info.bytes, records, each.sha256, index, **adopted)
            if records != each.records:
                name = shard_file(self.adoption.dataset, split, "kept", place, len(own))
                (self.folder / name).write_bytes(np.packbits(kept, bitorder="little").tobytes())
                held = int(np.diff(each.offsets.astype(np.int64))[kept].sum())
                shard = replace(shard, kept=name, kept_bytes=held)
            shards.append(shard)
            label = self.guessed.read.get(self.guessed.label or "")
            facts = each.facts.get(f"{INTS} {label.columns[0]}") if label else None
            counts = (facts.counts if facts else None) or {}
            for of_layout, layout in enumerate(each.layouts):
                if self._fault(layout) is None:
                    values = counts.get(f"{number if by_share else 0} {of_layout}", {})
                    labels.update({int(value): times for value, times in values.items()})
            forgotten = [key_of(lists, label.columns[0]) for lists in gone.values()] if label else []
            labels.subtract(int(value) for value in forgotten if value and value.isdigit())
        self.rows["written"] += sum(shard.records for shard in shards)
        words = self.guessed.read[self.guessed.label].words if self.guessed.label else None
        counted = words is not None and labels.total() == sum(shard.records for shard in shards)
        return Split(tuple(shards), tuple(labels[id_] for id_ in range(len(words or ()))) if counted else None)

    def _statistics(self, name: str) -> Json:
        read = self.guessed.read[name]
        column = f"{(read.description.stored_as or {})[''].dtype} {read.columns[0]}"
        facts = [each.facts[column] for each in self.scanned if column in each.facts]
        if not facts or len(read.columns) > 1:
            return {}
        total = type(facts[0])(counts=None)
        for each in facts:
            total.add(each)
        if total.formats:
            sides = {"height": total.sides[:2], "width": total.sides[2:]}
            images = {"images": sum(total.formats.values()), "formats": total.formats, "sides": sides}
            return images | ({"losses": total.losses} if total.losses else {})
        if total.low is None or read.words is not None or read.spec.get("type") == "bytes":
            return {}
        return {"count": total.values, "minimum": float(total.low), "maximum": float(total.high or 0)}

    def _write_rejects(self) -> Json:
        path = path_within(self.folder, REJECTS_FILE)
        with open(path, "w", encoding="ascii") as file:
            for each in self.scanned:
                self.rows["read"] += each.records + each.lost
                for reject in self._rejects(each):
                    self.reasons[reject["code"]] += 1
                    file.write(json.dumps(reject) + "\n")
        rejected = self.rows["rejected"] = self.reasons.total()
        if not rejected:
            os.unlink(path)
            os.rmdir(path.parent)
            return {"by_reason": {}, "in_statistics": 0, "files": []}
        data = path.read_bytes()
        entry = {"file": REJECTS_FILE, "bytes": len(data), "records": rejected}
        entry["sha256"] = hashlib.sha256(data).hexdigest()
        return {"by_reason": dict(sorted(self.reasons.items())), "in_statistics": 0, "files": [entry]}

    def _rejects(self, each: Scanned) -> Iterator[Json]:
        layouts = each.groups[:, 1]
        faults = {number: self._fault(layout) for number, layout in enumerate(each.layouts)}
        damaged = {damage.record: damage for damage in each.damaged}
        odd = np.flatnonzero(~np.isin(layouts, [number for number, fault in faults.items() if fault is None]))
        for record in [*odd.tolist(), *([each.records] if each.lost else [])]:
            fault = faults.get(int(layouts[record])) if record < each.records else None
            if fault is None:
                damage = damaged.get(record)
                rest = f"; {each.found.info.bytes - int(each.offsets[-1]):,} bytes of the file cannot be read"
                rest = rest if record == each.records else ""
                where = f" at byte {damage.byte:,}: {damage.message}" if damage else ""
                fault = "damaged_record", f"record {record:,}{where}{rest}", None
            reason, message, column = fault
            reject = {"id": f"{each.found.name}:{record}", "column": column, "code": reason, "message": message}
            yield {**reject, "file": os.path.join(each.found.root, each.found.name)}
