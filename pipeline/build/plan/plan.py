"""Plans a build in three reads (what it is given and called, where its rows go), and extracts what workers need."""

import math
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowSchema
from recordmill.pipeline.build.inputs.span_sources import Group, SpanSource, digest_of, left_out
from recordmill.pipeline.build.plan.keys import Given, Keys, SpanChoice, choose, sha256_of, spans_digest
from recordmill.pipeline.build.plan.processes import choose_processes, seconds_of
from recordmill.pipeline.build.run_options import CHUNK_BYTES, RunOptions
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.placement import Layout, shard_count
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.images import file_path
from recordmill.pipeline.sources.options import RowsOptions, UserRows
from recordmill.pipeline.sources.paths import ODD, join, may_be_image, note
from recordmill.pipeline.sources.source_reader import Chunk, Plan
from recordmill.pipeline.spec.model import MOST_SHARDS, Spec
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.base.columns import ColumnType
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.stored import IMAGES
from recordmill.transforms.images.mask_spec import OfImage
from recordmill.transforms.texts.text_spec import Tokenized
from recordmill.transforms.values.category_spec import NamedClasses

BATCH_BYTES = 64 << 10  # 64 KiB: a smaller packed batch costs more than its rows
MAX_PACK_BYTES = 256 << 20
SHARD_BYTES = 128 << 20  # 128 MiB: tf.data reads that well, and a worker builds it in a minute
ROW_BYTES = 512  # of a shard that a row counts for at least: a worker takes some 700 of memory for it, however short
REFERENCE_BYTES = 100  # an image's row in scratch, packed
GUESSED_FRAMES = 8
SAMPLE_IMAGES = 10_000
TRIAL_BYTES = 256 << 20  # 256 MiB of rows: a trial version reads no more, in pieces from everywhere
TRIAL_CHUNKS = 32
SERVED_IDS = "features that the serving model takes as ids, which `Dataset.tokenizer` makes"
UNNAMED = "images that no row names"
NAMING_BYTES = 64 << 20  # 64 MiB of tables: one column of them is read in some seconds
SURELY = 0.25  # of the estimate is certain to be written: ids and numbers may take a quarter of their text


@dataclass(frozen=True)
class BuildPlan:
    """A build as planned: what it is given, what it is called, and where its rows go."""

    spec: Spec
    given: Given
    keys: Keys
    spans: SpanChoice
    chunks: list[Chunk]  # `source` is a position in `sources`
    rows: int  # exact or estimated
    rows_are_exact: bool
    expected_bytes: int  # of the shards, estimated
    source_bytes: int  # to read, images included
    scratch_bytes: int  # of the packed rows and the images inside them, estimated
    layout: Layout
    notes: list[str]
    roots: tuple[str, ...]
    folders: tuple[str, ...]  # of each source's files, below the folder of all its spans
    inputs: tuple[Group, ...]  # the used files, by source
    pack_bytes: int
    processes: int = 1  # of the local runner
    limit: int | None = None  # about how many rows a trial version holds; None for a build of all rows
    row_share: float = 1.0  # share of the rows of `chunks` to keep, by key hash
    gaps: frozenset[int] = frozenset()  # indexes of a trial's chunks without line numbers: it skips the part before

    @property
    def sources(self) -> tuple[SpanSource, ...]:
        """The sources to read: those of the spec, or their parts by span."""
        return self.spans.sources

    @cached_property
    def live(self) -> LiveAnalysis | None:
        """The analysis of the live version, if it is frozen or spans are kept."""
        analysis, kept = self.given.inherited.analysis, tuple(self.spans.kept)
        return replace(analysis, spans=kept) if analysis and (analysis.is_frozen or kept) else None

    @property
    def frozen(self) -> LiveAnalysis | None:
        """The live version's analysis if the build reuses it; None if it learns one from the rows."""
        return self.live if self.live is not None and self.live.is_frozen else None

    @cached_property
    def pieces(self) -> list[tuple[int, str, int]]:
        """The source, file and bytes of each chunk, and a digest of the listing: earlier work must match all of it."""
        prefixes = [source.key_prefix for source in self.sources]  # of spans: two days' files may have one name
        listed = [(chunk.source, prefixes[chunk.source] + chunk.file, chunk.bytes) for chunk in self.chunks]
        if any(isinstance(source, UserRows) and not source.inputs for source in self.spec.source):
            listed.append((-1, uuid.uuid4().hex, 0))  # with unknown inputs no earlier work fits
        return [*listed, (-1, digest_of(enumerate(group.files for group in self.inputs), "seen"), 0)]

    @cached_property
    def inputs_sha256(self) -> str:
        """The digest of all inputs; kept spans' are those of their build."""
        if self.spec.has_spans:
            return spans_digest(self.spans.spans)
        return digest_of(enumerate(group.files for group in self.inputs))

    @property
    def source_key(self) -> str:
        """The digest of the spec, the packages and the inputs."""
        return self.keys.source_key(self.inputs_sha256)

    @property
    def rows_key(self) -> str:
        """The digest of the source key and the forgotten keys."""
        return self.given.inherited.forgotten.rows_key(self.source_key)

    @cached_property
    def build_key(self) -> str:
        """The digest of everything that decides a byte: the rows' key, and what the live version gives."""
        names, spans = dict(self.given.inherited.names), list[list[str]]()
        if self.spans.spans:
            spans.append(list(self.spans.spans))  # merged spans have other shards
        if self.live is not None and not self.live.is_frozen:
            spans.append([self.live.digest, *self.live.spans])  # kept shards need its graph
        if not names and self.frozen is None and not spans:
            return self.rows_key
        return sha256_of([self.rows_key, names, *([self.frozen.digest] if self.frozen else []), *spans])


def make_plan(
    spec: Spec,
    files: Files,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    base: Base | None = None,
    inputs: pa.Table | None = None,
    *,
    keeps_spans: bool = True,
) -> BuildPlan:
    """Plans a build, which inherits nothing without a base; `inputs` are those of the live version.

    Raises: SourceError: a source is missing, empty, or lacks a column. SpanError: only some spans are to be built, and
        the others cannot stay. OutputError: the live version is damaged, and some of it must be inherited.
    """
    given = Given.of(spec, files, base, inputs, options, keeps_spans=keeps_spans)
    keys = Keys.of(spec, given, options.limit)
    spans = choose(given, keys, options)
    if given.code is not None:
        given.code.install()
    plan = _lay_out(spec, given, keys, spans, files, options)
    plan = plan if options.limit is None else _trial(plan, options.limit)
    number, notes = choose_processes(seconds_of(spec, plan.rows, plan.source_bytes), plan.layout.groups, options)
    return replace(plan, processes=number, notes=plan.notes + notes)


def _lay_out(spec: Spec, given: Given, keys: Keys, spans: SpanChoice, files: Files, options: RunOptions) -> BuildPlan:
    """Cuts the sources into chunks, and estimates sizes and numbers of shards."""
    sizes, sources = _Sizes.of(spec), spans.sources
    plans = [each.planned(files, options.chunk_bytes) for each in sources]
    new_groups = sum(sum(sizes.shards_of(of_span).values()) for of_span in _by_span(sources, plans).values())
    pack_bytes = min(MAX_PACK_BYTES, max(CHUNK_BYTES, new_groups * BATCH_BYTES))
    if pack_bytes > CHUNK_BYTES:  # each chunk's part of a shard has a cost: many shards need larger chunks
        del plans  # they are large
        plans = [each.planned(files, max(pack_bytes, options.chunk_bytes)) for each in sources]
    chunks = ((source, chunk) for source, plan in enumerate(plans) for chunk in plan.chunks)
    of_sources, texts = [line for plan in plans for line in plan.notes], spec.features.items()
    of_spans = _by_span(sources, plans)
    empty = [span for span in spans.built if not any(plan.rows for plan in of_spans[span])]
    empty = [f"{span}: {count(spans.built[span].files, 'file')} of {spans.built[span].bytes:,} bytes" for span in empty]
    return BuildPlan(
        spec=spec,
        given=given,
        keys=keys,
        spans=spans,
        chunks=[replace(chunk, index=index, source=source) for index, (source, chunk) in enumerate(chunks)],
        rows=sum(plan.rows for plan in plans),
        rows_are_exact=all(plan.is_exact for plan in plans),
        expected_bytes=sizes.of_records(plans),
        source_bytes=sum(plan.bytes for plan in plans),
        scratch_bytes=sum(map(sizes.of_packed, plans)),
        layout=sizes.layout(spans, of_spans),
        notes=[
            *spans.notes(),
            *note("spans without rows", empty),
            *note(ODD, sorted(files.left_out())),
            *dict.fromkeys(of_sources + ([] if options.spans else left_out(spec, files))),
            *([] if spans.kept else _unnamed(files, sources, plans)),
            *given.inherited.notes,
            *note(SERVED_IDS, [name for name, each in texts if each.in_library]),
            *_never_met(spec),
        ],
        roots=tuple(each.reader.image_root(files) for each in sources),
        folders=tuple(each.folder(files) for each in sources),
        inputs=tuple(Group(each, plan.inputs) for each, plan in zip(sources, plans, strict=True)),
        pack_bytes=pack_bytes,
    )


def _never_met(spec: Spec) -> Iterator[str]:
    """Notes the words of given vocabularies in another case than their texts. Raises: UserError: a file is wrong."""
    for name, each in spec.resolved_features().items():
        if isinstance(each, Tokenized):
            yield from note(f"words that no text of {name} has, by its `case: {each.case}`", each.never_met())


def _unnamed(files: Files, sources: Sequence[SpanSource], plans: Sequence[Plan]) -> list[str]:
    """Notes the images in the folders of tables that no row names; does not count them beside large tables."""
    images, named, size = set[str](), set[str](), 0
    for each, plan in zip(sources, plans, strict=True):
        columns = {name: column for name, column in each.columns.items() if column.type is ColumnType.IMAGE}
        is_table = isinstance(each.source, RowsOptions) or each.source.format in ("coco", "open_images", "via")
        if not is_table or not columns or getattr(each.source, "image_list", None):
            continue
        size += sum(chunk.bytes for chunk in plan.chunks)
        if size > NAMING_BYTES:
            return [f"{UNNAMED} are not counted: the tables have more than {NAMING_BYTES >> 20} MiB"]
        full = partial(join, each.reader.image_root(files))
        images.update(full(file.path) for file in plan.inputs if may_be_image(file.path))
        for chunk in plan.chunks:
            for block in each.reader.read(chunk, files, columns, ()):
                cells = chain.from_iterable(block.table[name].to_pylist() for name in columns)
                every = chain.from_iterable(cell if isinstance(cell, list) else [cell] for cell in cells)
                named.update(map(full, filter(None, map(file_path, filter(None, every)))))
    return note(UNNAMED, sorted(images - named))


def _by_span(sources: Sequence[SpanSource], plans: Sequence[Plan]) -> dict[str, list[Plan]]:
    """Groups the sources' plans by span; "" where the spec has none."""
    of_span = dict[str, list[Plan]]()
    for each, plan in zip(sources, plans, strict=True):
        of_span.setdefault(each.span or "", []).append(plan)
    return of_span


class _Sizes(NamedTuple):
    """The figures of a spec that sizes and numbers of shards follow from."""

    splits: dict[str, float]
    shards: Mapping[str, int]  # as the spec gives them
    image_bytes: int | None  # expected of a row; None without images

    @classmethod
    def of(cls, spec: Spec) -> "_Sizes":
        images: list[Any] = [feature for feature in spec.features.values() if feature.kind in IMAGES]
        frames = (1 if each.kind == "image" else each.length or each.max_length or GUESSED_FRAMES for each in images)
        image_bytes = sum(image.expected_bytes * count for image, count in zip(images, frames, strict=True))
        given = dict.fromkeys(spec.splits, spec.shards) if isinstance(spec.shards, int) else spec.shards or {}
        return cls(dict(spec.splits), given, image_bytes if images else None)

    def layout(self, spans: SpanChoice, plans: Mapping[str, Sequence[Plan]]) -> Layout:
        """Returns the layout; kept spans keep their numbers of shards."""
        if not spans.spans:
            return Layout(self.splits, self.shards_of(plans[""]))
        kept = {split: spans.kept_shards(split) for split in self.splits}
        shards = {name: {split: kept[split][name] for split in self.splits} for name in spans.kept}
        shards |= {name: self.shards_of(each) for name, each in plans.items()}
        return Layout.of_spans(self.splits, {name: shards[name] for name in spans.spans})

    def shards_of(self, plans: Sequence[Plan]) -> dict[str, int]:
        """Returns the number of shards of each split, for the rows of some plans."""
        total, rows = sum(self.splits.values()), sum(plan.rows for plan in plans)
        expected = max(self.of_records(plans), rows * ROW_BYTES)
        return {
            split: self.shards.get(split) or min(MOST_SHARDS, shard_count(int(expected * share / total), SHARD_BYTES))
            for split, share in self.splits.items()
        }

    def of_records(self, plans: Sequence[Plan]) -> int:
        """Estimates the size of the records in bytes, from the inputs and the spec alone."""
        if self.image_bytes is None:
            return sum(plan.bytes for plan in plans)
        return int(self.image_bytes * sum(plan.rows for plan in plans))

    def of_packed(self, plan: Plan) -> int:
        """Estimates the bytes of a source's packed rows: all except images that rows only refer to."""
        refers = plan.referred_bytes > 0 or self.image_bytes is not None
        return plan.bytes - plan.referred_bytes + (plan.rows * REFERENCE_BYTES if refers else 0)


def _trial(plan: BuildPlan, limit: int) -> BuildPlan:
    """Thins a plan to about `limit` rows, spread over all sources, with one shard a split."""
    chunks, all_bytes = plan.chunks, sum(chunk.bytes for chunk in plan.chunks)
    if all_bytes > TRIAL_BYTES:
        chunks = spread(chunks, TRIAL_CHUNKS)
    rows = plan.rows * sum(chunk.bytes for chunk in chunks) / max(1, all_bytes)
    share, each = min(1.0, limit / max(1.0, rows)), dict.fromkeys(plan.spec.splits, 1)
    part = rows * share / max(1, plan.rows)
    weights, spans = plan.layout.weights, plan.layout.spans
    gaps, chosen = set[int](), {chunk.index for chunk in chunks}
    for position, chunk in enumerate(chunks):
        before = plan.chunks[chunk.index - 1] if chunk.index else None
        if before and (before.source, before.file) == (chunk.source, chunk.file) and before.index not in chosen:
            gaps.add(position)
    return replace(
        plan,
        chunks=[replace(chunk, index=index) for index, chunk in enumerate(chunks)],
        gaps=frozenset(gaps),
        rows=round(rows * share),
        rows_are_exact=False,
        expected_bytes=round(plan.expected_bytes * part),
        source_bytes=round(plan.source_bytes * part),
        scratch_bytes=round(plan.scratch_bytes * part),
        layout=Layout.of_spans(weights, dict.fromkeys(spans, each)) if spans else Layout(weights, each),
        limit=limit,
        row_share=share,
    )


def planned_build(
    plan: BuildPlan,
    folder: str,
    files: Files,
    *,
    inline: bool,
    threads: int,
    isolated: bool = False,
    workspace: Store | None = None,
    shards: Store | None = None,
) -> PlannedBuild:
    """Returns the workers' part of a plan; `folder` is by default the workspace, with the shards in `version`."""
    spec, workspace = plan.spec, workspace or LocalStore(os.path.abspath(folder))
    features, names = spec.resolved_features(), plan.given.inherited.names
    kept_rows = sum(span.rows.get("read", 0) for span in plan.spans.kept.values())
    train = (plan.rows + kept_rows) * spec.splits["train"] / sum(spec.splits.values())
    share = min(1.0, SAMPLE_IMAGES / train) if train else 1.0
    return PlannedBuild(
        name=spec.name,
        workspace=workspace,
        shards=shards or workspace.at("version"),
        scratch=os.path.join(os.path.abspath(folder), "scratch"),
        features=features,
        learned={name: Learned(is_label=name == spec.label, kept=names.get(name, ())) for name in features},
        analyzed=frozenset(name for name, feature in spec.features.items() if feature.analyzed),
        schema=_row_schema(plan),
        layout=plan.layout,
        readers=tuple(each.reader for each in plan.sources),
        spans=tuple(each.span for each in plan.sources),
        roots=plan.roots,
        files=files,
        inline=inline,
        pack_bytes=plan.pack_bytes,
        set_threads=threads,
        rows=plan.rows,
        sample_share=2.0 ** math.floor(math.log2(share)) if spec.has_spans else share,  # spans' sums must add up
        models={name: each.owner(name) for name, each in features.items() if each.needs_model},
        packs=tuple(Pack(**dict(pack)) for pack in spec.packs),
        preprocessing=spec.preprocessing,
        filter=spec.filter,
        user_code=plan.given.code,
        duplicates=spec.duplicates,
        forgotten=plan.given.inherited.forgotten,
        isolated=isolated,
        row_share=plan.row_share,
    )


def _row_schema(plan: BuildPlan) -> RowSchema:
    spec, label = plan.spec, plan.spec.features.get(plan.spec.label or "")
    several = {name: joined for name, feature in spec.features.items() if (joined := feature.joined_columns(name))}
    classes = None  # given by the spec or by a frozen analysis
    if isinstance(label, NamedClasses) and spec.label is not None:
        classes = plan.frozen.words(spec.label) if plan.frozen and label.analyzed else label.given_classes
    return RowSchema(
        columns=spec.columns(),
        features={name: f.first_column(name) for name, f in spec.features.items() if f.raw_column() is not None},
        key=spec.key_columns,
        label=spec.label,
        classes=classes,
        frozen_classes=plan.frozen is not None and getattr(label, "analyzed", False),
        fields={name: {field: column for field, (column, _) in joined.items()} for name, joined in several.items()},
        fills={name: feature.fill for name, feature in spec.features.items() if feature.optional},
        drawn={name: f.kind == "masks" for name, f in spec.features.items() if isinstance(f, OfImage) and f.draw},
        content_key=spec.content_key,
        split_by=spec.split_by,
        together=spec.together,
        source_splits=tuple(each.source.split for each in plan.sources),
        key_prefixes=tuple(each.key_prefix.encode() for each in plan.sources),
    )


class NoSpaceError(UserError):
    """The disk cannot hold the build."""


def check_free_space(plan: BuildPlan, run: str, *, holds_shards: bool, holds_rows: bool, kept: int = 0) -> str | None:
    """Returns a note for the user if a run's folder may be too small for the estimate, less `kept` bytes of shards.

    Raises: NoSpaceError: less than `SURELY` fits.
    """
    folder = Path(run).absolute()
    shards = max(0, plan.expected_bytes - kept) if holds_shards else 0
    scratch = plan.scratch_bytes if holds_rows else 0
    free = shutil.disk_usage(next(at for at in (folder, *folder.parents) if at.exists())).free
    needs = (
        f"about {size(shards + scratch)} in {folder.parents[2]} ({size(shards)} of shards, "
        f"{size(scratch)} of scratch), and {size(free)} are free"
    )
    if free < SURELY * (shards + scratch):
        raise NoSpaceError(f"the build needs {needs}: free some space, or use an output on another disk")
    return f"the build may need {needs}" if free < shards + scratch else None


def size(count: int) -> str:
    """Formats a number of bytes in kB, MiB or GiB."""
    if count < 1 << 20:
        return f"{count / 1000:,.1f} kB"
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.1f} MiB"
