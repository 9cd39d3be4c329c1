r"""Looks again at the rows that the live version rejected: which of them are good now, so that a build is worth it?

    found = look_again(spec, "out/emoji", files, threads=2)
    print("\n".join(found.lines()))
    found.is_worth_a_build

A row is read where it was, by its source, file and line, and is checked as a build checks it. The published rejects are
only trusted as data: a file is read where the spec's plan has it, whatever name stands there.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.read import PixelMeter, kept, pictures_of
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.publish import REJECTS_FILE
from recordmill.pipeline.build.reject_places import Place, one_line
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.dataset.manifest import DatasetError, Manifest, read_manifest, version_folder
from recordmill.pipeline.dataset.safe_paths import read_inner
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel_map import in_order
from recordmill.pipeline.sources.base import Block, Chunk, Files
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.publishing import live_version
from recordmill.pipeline.versions.stores.open_store import location, open_store
from recordmill.transforms.contract.image_header import ImageError

GOOD, BAD, GONE = "good", "bad", "gone"


class NothingMendedError(UserError):
    """No rejected row is good now, or gone; the message says how many were looked at."""


class Old(NamedTuple):
    """A reject of the live version."""

    code: str
    key: str | None
    place: Place


class Now(NamedTuple):
    """What a row is now."""

    code: str | None
    """Why it is rejected; None where it is good."""
    key: str | None


@dataclass(frozen=True)
class Retried:
    """What became of a version's rejects."""

    version: str
    by_code: Mapping[str, Counter[str]]
    """Of each code how many are good, bad or gone, the most frequent code first."""

    @property
    def rejects(self) -> int:
        """How many there were."""
        return sum(counts.total() for counts in self.by_code.values())

    @property
    def is_worth_a_build(self) -> bool:
        """Whether one of them is good now, or gone from its source."""
        return any(counts[GOOD] + counts[GONE] for counts in self.by_code.values())

    def lines(self) -> Iterator[str]:
        """In words, one line a code."""
        good = sum(counts[GOOD] for counts in self.by_code.values())
        yield f"{good:,} of the {self.rejects:,} rows that {self.version} rejected are good now"
        for code, counts in self.by_code.items():
            gone = f", {counts[GONE]:,} gone" if counts[GONE] else ""
            yield f"  {one_line(code)}: {counts[GOOD]:,} of {counts.total():,}{gone}"


def look_again(spec: Spec, output: str, files: Files, threads: int, isolated: bool = False) -> Retried:
    """Reads the files that hold the live version's rejects again, and checks these rows as a build does.

    Args:
        spec: the spec of the build.
        output: the dataset's folder, or its URL.
        files: what opens the sources.
        threads: how many decode pictures.
        isolated: whether each picture is decoded first in a process that may crash.

    Raises:
        DatasetError: there is no live version, it is another dataset's, or its rejects cannot be read.
        SourceError: a source is not there.
    """
    manifest, rejects = _live(spec, output)
    if not rejects:
        return Retried(manifest.version, {})
    plan = make_plan(spec, files)
    work = replace(planned_build(plan, "", files, inline=True, threads=threads), isolated=isolated)
    now = _Rows(plan, work).look({old.place for old in rejects})
    by_code: dict[str, Counter[str]] = {}
    for old in rejects:
        by_code.setdefault(old.code, Counter())[_outcome(old, now.get(old.place))] += 1
    return Retried(manifest.version, dict(sorted(by_code.items(), key=lambda pair: (-pair[1].total(), pair[0]))))


def _live(spec: Spec, output: str) -> tuple[Manifest, list[Old]]:
    version = live_version(output)
    if version is None:
        raise DatasetError(f"{output} has no live version: `recordmill build` makes one")
    folder = version_folder(location(open_store(output)), version)
    manifest = read_manifest(folder)
    if manifest.name != spec.name:
        raise DatasetError(f"{output} holds the dataset '{manifest.name}', and the spec's name is '{spec.name}'")
    if not manifest.rejects.get("files"):
        return manifest, []
    try:
        return manifest, [_old(json.loads(line)) for line in read_inner(folder, REJECTS_FILE).splitlines()]
    except OSError as error:
        raise DatasetError(f"{folder}/{REJECTS_FILE} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DatasetError(f"{folder}/{REJECTS_FILE} is damaged: build again") from None


def _old(row: Mapping[str, Any]) -> Old:
    code = row["code"] if "code" in row else row["reason"]  # as it was called once
    line = None if row["line"] is None else int(row["line"])
    return Old(str(code), row["id"], Place(int(row["source"]), str(row["file"]), line))


def _outcome(old: Old, now: Now | None) -> str:
    if now is None:
        return GONE
    is_still_double = old.code == "duplicate_key" and now.key == old.key
    return BAD if now.code is not None or is_still_double else GOOD


class _Rows:
    """Some rows of a plan's sources, read again."""

    def __init__(self, plan: BuildPlan, work: PlannedBuild) -> None:
        self._plan, self._work = plan, work
        self._pictures = pictures_of(work)
        self._meters = {name: PixelMeter(self._pictures, options, 1) for name, options in work.images().items()}

    def look(self, wanted: set[Place]) -> dict[Place, Now]:
        """Says of each place that holds a row what it is now."""
        files = {(place.source, place.file) for place in wanted}
        listings = {place.source for place in wanted if place.line is None}
        found, before = dict[Place, Now](), Counter[tuple[int, str]]()
        for chunk in self._plan.chunks:
            where = (chunk.source, chunk.file)
            if where in files or (not chunk.file and chunk.source in listings):
                covered = 0
                for block in self._blocks(chunk):
                    places = self._places(chunk, block, before[where])
                    found |= self._check(chunk, block, {at: place for at, place in places if place in wanted})
                    covered += block.positions
                before[where] += covered
        return found

    def _blocks(self, chunk: Chunk) -> Iterator[Block]:
        form, source = self._work.schema, self._plan.spec.source[chunk.source]
        return source.read(chunk, self._work.files, form.columns, form.source_key)

    def _places(self, chunk: Chunk, block: Block, base: int) -> Iterator[tuple[int, Place]]:
        """The positions of a block's rows, with their places; `base` lines of the file stand before the chunk."""
        source = self._plan.spec.source[chunk.source]
        for position in [*block.table["@position"].to_pylist(), *(reject.position for reject in block.rejects)]:
            file, line = source.locate(chunk, position)
            yield position, Place(chunk.source, file, None if line is None else base + line)

    def _check(self, chunk: Chunk, block: Block, places: Mapping[int, Place]) -> dict[Place, Now]:
        """What the rows at some positions of a block are."""
        if not places:
            return {}
        chosen = block.table.filter(pc.is_in(block.table["@position"], pa.array(list(places), pa.int64())))
        rejects = [reject for reject in block.rejects if reject.position in places]
        part = Block(chosen, rejects, block.positions)
        rows, bad = key_rows(part, chunk, self._work.schema, self._work.layout, self._pictures.read)
        found = {places[reject.position]: Now(reject.reason, reject.key) for reject in bad}
        good = rows.select(["@position", "@key", "@source", *self._meters]).to_pylist()
        for row, code in zip(good, in_order(self._picture_fault, good, self._work.threads), strict=True):
            found[places[row["@position"]]] = Now(code, row["@key"].decode("utf-8", "replace"))
        return found

    def _picture_fault(self, row: Mapping[str, Any]) -> str | None:
        """Why a row's pictures are no good."""
        for name, meter in self._meters.items():
            options = self._work.features[name]
            try:
                loaded = [self._pictures.load(row["@source"], one, options) for one in kept(row[name], options)]
            except ImageError as error:
                return error.reason
            if not all(meter.is_decodable(one.data) for one in loaded):
                return "undecodable_image"
        return None
