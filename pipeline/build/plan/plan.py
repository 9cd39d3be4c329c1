"""Plans a build: lists the sources, chooses the number of shards, and computes the build's key (`plan.keys`)."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.base.live_analysis import LiveAnalysis, Names
from recordmill.pipeline.build.inputs.input_table import Group
from recordmill.pipeline.build.inputs.span_sources import SpanSource, seen_by
from recordmill.pipeline.build.plan.inherited import inherit
from recordmill.pipeline.build.plan.keys import (
    digest_files,
    files_digest,
    key_parts,
    package_versions,
    recipe_of,
    user_code,
)
from recordmill.pipeline.build.plan.spans import SpanChoice, choose, sha256_of
from recordmill.pipeline.build.run_options import CHUNK_BYTES, RunOptions
from recordmill.pipeline.dataset.placement import Layout, shard_count
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import ODD, note
from recordmill.pipeline.sources.source_reader import Chunk, Plan
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import MOST_SHARDS, Spec
from recordmill.pipeline.versions.base import Base, Forgotten
from recordmill.transforms.contract.stored import IMAGES

BATCH_BYTES = 64 << 10  # 64 KiB: a smaller packed batch costs more than its rows
MAX_PACK_BYTES = 256 << 20
SHARD_BYTES = 128 << 20  # 128 MiB: tf.data reads that well, and a worker builds it in a minute
REFERENCE_BYTES = 100  # an image's row in scratch, packed
GUESSED_FRAMES = 8
TRIAL_BYTES = 256 << 20  # 256 MiB of rows: a trial version reads no more, in pieces from everywhere
TRIAL_CHUNKS = 32


@dataclass(frozen=True)
class BuildPlan:
    """The chunks, the layout and the estimates of a build."""

    spec: Spec
    spans: SpanChoice
    """The sources that are read, and the spans that are taken over."""
    chunks: list[Chunk]
    """Their `source` is a position in `sources`."""
    rows: int
    """The number of rows, or an estimate."""
    rows_are_exact: bool
    expected_bytes: int
    """The estimated size of the shards in bytes."""
    source_bytes: int
    """The bytes to read, including images."""
    scratch_bytes: int
    """The estimated size of the packed rows in bytes, with the images inside them."""
    layout: Layout
    notes: list[str]
    roots: tuple[str, ...]
    inputs_sha256: str
    inputs: tuple[Group, ...]
    """The files that are used, by source."""
    pack_bytes: int
    source_key: str = ""
    """The digest of the spec, the packages and the inputs."""
    user_code: UserCode | None = None
    """The user's modules that the spec names."""
    kept: Names = field(default_factory=dict)
    """The names of classes that keep the ids of the live version, by feature."""
    forgotten: Forgotten = Forgotten()
    """The keys of rows that are left out."""
    live: LiveAnalysis | None = None
    """The analysis of the live version, where it is frozen, or the rows of some spans are not read again."""
    limit: int | None = None
    """About how many rows a trial version holds; None for a build of all rows."""
    row_share: float = 1.0
    """The share of the rows of `chunks` that are kept, by the hash of their keys."""
    gaps: frozenset[int] = frozenset()
    """The chunks, by index, before which a trial leaves out a part of the same file: their lines are unknown."""
    feature_files: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file that features name, in hexadecimal, by feature and option."""

    @property
    def frozen(self) -> LiveAnalysis | None:
        """The analysis that is taken over from the live version; None where one is learned of the rows."""
        return self.live if self.live is not None and self.live.is_frozen else None

    @property
    def sources(self) -> tuple[SpanSource, ...]:
        """The sources that are read: those of the spec, or their parts by span."""
        return self.spans.sources

    @cached_property
    def pieces(self) -> list[tuple[int, str, int]]:
        """The source, file and bytes of each chunk, and what was seen: finished work on anything else is useless."""
        prefixes = [source.key_prefix for source in self.sources]  # of spans: two days' files may have one name
        listed = [(chunk.source, prefixes[chunk.source] + chunk.file, chunk.bytes) for chunk in self.chunks]
        if any(isinstance(source, UserRows) and not source.inputs for source in self.spec.source):
            listed.append((-1, uuid.uuid4().hex, 0))  # the inputs of its function are unknown: no earlier work fits
        listed.append((-1, files_digest((group.files for group in self.inputs), attrgetter("seen")), 0))
        return listed

    @property
    def rows_key(self) -> str:
        """The digest of the source key and the forgotten keys."""
        return self.forgotten.rows_key(self.source_key)

    @property
    def build_key(self) -> str:
        """The digest of everything that decides a byte: the rows' key, and what the live version gives."""
        spans = [list(self.spans.spans)] if self.spans.spans else []  # those put together have other shards
        if self.live is not None and not self.live.is_frozen:  # their shards are of its graph
            spans.append([self.live.digest, *self.live.spans])
        if not self.kept and self.frozen is None and not spans:
            return self.rows_key
        taken = [self.rows_key, dict(self.kept), *([self.frozen.digest] if self.frozen else []), *spans]
        return sha256_of(taken)


def make_plan(
    spec: Spec,
    files: Files,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    base: Base | None = None,
    inputs: pa.Table | None = None,
    *,
    keeps_spans: bool = True,
) -> BuildPlan:
    """Lists the sources and lays out the build, which follows no version without a base.

    `inputs` are those of the live version, where files without placeholders may have been added.

    Raises:
        SourceError: a source is not there, is empty, or lacks a column.
        SpanError: as `choose`, or other spans than those to be built cannot stay.
        OutputError: the live version is damaged, and something of it must be taken over.
    """
    code = user_code(spec)
    if code is not None:
        code.install()
    feature_files = digest_files(spec, files)
    taken = inherit(spec, base, options, package_versions(), feature_files, keeps_spans=keeps_spans)
    parts = key_parts(spec, code, feature_files) | ({} if options.limit is None else {"limit": options.limit})
    live = taken.spans.manifest if taken.spans else None
    damaged = sorted({span for span in base.missing.values() if span}) if base and live else []
    spans = choose(spec, files, sha256_of(recipe_of(parts)), live, options, inputs, damaged)
    plan = _lay_out(spec, spans, files, options.chunk_bytes)
    analysis = taken.frozen or (taken.spans if spans.kept else None)
    plan = replace(
        plan,
        source_key=sha256_of(parts | {"inputs": plan.inputs_sha256}),
        notes=[*plan.notes, *taken.notes, *note("spans read again, since the live version lacks files", damaged)],
        user_code=code,
        kept=taken.names,
        forgotten=taken.forgotten,
        live=analysis and replace(analysis, spans=tuple(spans.kept)),
        feature_files=feature_files,
    )
    return plan if options.limit is None else _trial(plan, options.limit)


def _lay_out(spec: Spec, spans: SpanChoice, files: Files, chunk_bytes: int) -> BuildPlan:
    """Plans the sources: their chunks, and the layout and sizes that follow from them."""
    pack_bytes, plans = _packed_plans(spec, spans, files, chunk_bytes)
    chunks = ((source, chunk) for source, plan in enumerate(plans) for chunk in plan.chunks)
    left_out = note(ODD, sorted(files.left_out()))
    return BuildPlan(
        spec=spec,
        spans=spans,
        chunks=[replace(chunk, index=index, source=source) for index, (source, chunk) in enumerate(chunks)],
        rows=sum(plan.rows for plan in plans),
        rows_are_exact=all(plan.is_exact for plan in plans),
        expected_bytes=_expected_bytes(spec, plans),
        source_bytes=sum(plan.bytes for plan in plans),
        scratch_bytes=sum(_scratch_bytes(spec, plan) for plan in plans),
        layout=_layout(spec, spans, plans),
        notes=[*spans.notes(), *left_out, *dict.fromkeys(note for plan in plans for note in plan.notes)],
        roots=tuple(each.reader.image_root(files) for each in spans.sources),
        inputs_sha256=spans.inputs_sha256 if spec.has_spans else files_digest(plan.inputs for plan in plans),
        inputs=tuple(Group(each, plan.inputs) for each, plan in zip(spans.sources, plans, strict=True)),
        pack_bytes=pack_bytes,
    )


def _packed_plans(spec: Spec, spans: SpanChoice, files: Files, chunk_bytes: int) -> tuple[int, list[Plan]]:
    """Plans the sources; many shards need larger chunks, since each chunk's part of a shard has a cost."""
    plans = _plan_sources(spec, spans.sources, files, chunk_bytes)
    groups = _layout(spec, spans, plans).groups - sum(spans.kept_shards(split).total() for split in spec.splits)
    pack_bytes = min(MAX_PACK_BYTES, max(CHUNK_BYTES, groups * BATCH_BYTES))
    if pack_bytes > CHUNK_BYTES:
        del plans  # they are large
        plans = _plan_sources(spec, spans.sources, files, max(pack_bytes, chunk_bytes))
    return pack_bytes, plans


def _trial(plan: BuildPlan, limit: int) -> BuildPlan:
    """Returns the plan of a trial version: some rows of all chunks, or of chunks from everywhere, one shard a split."""
    chunks, all_bytes = plan.chunks, sum(chunk.bytes for chunk in plan.chunks)
    if all_bytes > TRIAL_BYTES:
        chunks = spread(chunks, TRIAL_CHUNKS)
    rows = plan.rows * sum(chunk.bytes for chunk in chunks) / max(1, all_bytes)
    share, each = min(1.0, limit / max(1.0, rows)), dict.fromkeys(plan.spec.splits, 1)
    part = rows * share / max(1, plan.rows)
    weights, spans = plan.layout.weights, plan.layout.spans
    return replace(
        plan,
        chunks=[replace(chunk, index=index) for index, chunk in enumerate(chunks)],
        gaps=_gaps(plan.chunks, chunks),
        rows=round(rows * share),
        rows_are_exact=False,
        expected_bytes=round(plan.expected_bytes * part),
        source_bytes=round(plan.source_bytes * part),
        scratch_bytes=round(plan.scratch_bytes * part),
        layout=Layout.of_spans(weights, dict.fromkeys(spans, each)) if spans else Layout(weights, each),
        limit=limit,
        row_share=share,
    )


def _gaps(chunks: Sequence[Chunk], chosen: Sequence[Chunk]) -> frozenset[int]:
    """Returns the positions in `chosen` of chunks whose file has a part just before them that was not chosen."""
    numbers = {chunk.index for chunk in chosen}
    befores = [chunks[chunk.index - 1] if chunk.index else None for chunk in chosen]
    return frozenset(
        position
        for position, (chunk, before) in enumerate(zip(chosen, befores, strict=True))
        if before is not None
        and (before.source, before.file) == (chunk.source, chunk.file)
        and before.index not in numbers
    )


def inputs_digest(plan: BuildPlan, files: Files) -> str:
    """Returns the `BuildPlan.inputs_sha256` of the inputs as they are now; kept spans are not looked at.

    Raises:
        SourceError: as `make_plan`.
    """
    if plan.spec.has_spans:
        return plan.spans.listed_again(plan.spec, files).inputs_sha256
    return files_digest(each.inputs for each in _plan_sources(plan.spec, plan.sources, files, CHUNK_BYTES))


def _plan_sources(spec: Spec, sources: Sequence[SpanSource], files: Files, chunk_bytes: int) -> list[Plan]:
    return [each.reader.plan(seen_by(each, files), spec.columns(), chunk_bytes) for each in sources]


def _layout(spec: Spec, spans: SpanChoice, plans: Sequence[Plan]) -> Layout:
    """Returns the layout; where there are spans with the shards of each, of kept ones as they are."""
    if not spec.has_spans:
        return Layout(dict(spec.splits), _shards(spec, plans))
    of_span = dict[str, list[Plan]]()
    for each, plan in zip(spans.sources, plans, strict=True):
        of_span.setdefault(each.span or "", []).append(plan)
    kept = {split: spans.kept_shards(split) for split in spec.splits}
    shards = {name: {split: kept[split][name] for split in spec.splits} for name in spans.kept}
    shards |= {name: _shards(spec, each) for name, each in of_span.items()}
    return Layout.of_spans(dict(spec.splits), {name: shards[name] for name in spans.spans})


def _shards(spec: Spec, plans: Sequence[Plan]) -> dict[str, int]:
    """Returns the number of shards of each split, for the rows of some plans."""
    total = sum(spec.splits.values())
    expected = _expected_bytes(spec, plans)
    given = dict.fromkeys(spec.splits, spec.shards) if isinstance(spec.shards, int) else spec.shards or {}
    return {
        split: given.get(split) or min(MOST_SHARDS, shard_count(int(expected * share / total), SHARD_BYTES))
        for split, share in spec.splits.items()
    }


def _expected_bytes(spec: Spec, plans: Sequence[Plan]) -> int:
    """The estimated size of the records in bytes, by the inputs and the spec alone."""
    images: list[Any] = [feature for feature in spec.features.values() if feature.kind in IMAGES]
    if not images:
        return sum(plan.bytes for plan in plans)
    frames = [1 if image.kind == "image" else image.length or image.max_length or GUESSED_FRAMES for image in images]
    a_row = sum(image.expected_bytes * count for image, count in zip(images, frames, strict=True))
    return int(a_row * sum(plan.rows for plan in plans))


def _scratch_bytes(spec: Spec, plan: Plan) -> int:
    """The estimated bytes of a source's packed rows: all that it reads but images that rows only refer to."""
    refers = plan.referred_bytes > 0 or any(feature.kind in IMAGES for feature in spec.features.values())
    return plan.bytes - plan.referred_bytes + (plan.rows * REFERENCE_BYTES if refers else 0)
