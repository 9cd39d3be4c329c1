"""Plans a build: lists the sources, chooses the number of shards, and computes the build's key.

The key is a digest of everything that decides a byte of the result: the spec, our version and the versions of the
packages that do the work, the inputs' listing with sizes and times of change, and the classes whose ids are kept.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recordmill.pipeline import VERSION
from recordmill.pipeline.build.class_ids import Names
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowSchema
from recordmill.pipeline.build.context.workspace import LocalWorkspace, Workspace
from recordmill.pipeline.build.frozen import GraphInputs, LiveAnalysis
from recordmill.pipeline.build.inherited import inherit
from recordmill.pipeline.build.input_table import Group
from recordmill.pipeline.build.run_options import CHUNK_BYTES, RunOptions
from recordmill.pipeline.build.spans.added import seen_by
from recordmill.pipeline.build.spans.choose import SpanChoice, choose
from recordmill.pipeline.build.spans.sources import SpanSource, by_span, sources_of
from recordmill.pipeline.dataset.placement import Layout, shard_count
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.source_reader import Chunk, Plan
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.text import Tokenized
from recordmill.pipeline.spec.model import MOST_SHARDS, Spec
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.forgotten import Forgotten
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import IMAGES

BATCH_BYTES = 64 << 10  # 64 KiB: a smaller packed batch costs more than its rows
MAX_PACK_BYTES = 256 << 20
SHARD_BYTES = 128 << 20  # 128 MiB: tf.data reads that well, and a worker builds it in a minute
REFERENCE_BYTES = 100  # an image's row in scratch, packed
SAMPLE_IMAGES = 10_000
GUESSED_FRAMES = 8
TRIAL_BYTES = 256 << 20  # 256 MiB of rows: a trial version reads no more, in pieces from everywhere
TRIAL_CHUNKS = 32
PACKAGES = (
    "apache-beam",
    "numpy",
    "pillow",
    "pyarrow",
    "sentencepiece",
    "tensorflow",
    "tensorflow-text",
    "tensorflow-transform",
)

NO_PART_OF_THE_KEY = {"rejects", "gate", "analysis", "about"}
"""Options left out of the source key: a build that a limit stopped goes on when the limit is raised; a graph that is
taken over has its digest in the build key; words about the data are no reason to build it again."""


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
    """Whether `rows` is exact."""
    expected_bytes: int
    """The estimated size of the shards in bytes."""
    source_bytes: int
    """The bytes to read, including images."""
    scratch_bytes: int
    """The estimated size of the packed rows in bytes, with the images inside them."""
    layout: Layout
    source_key: str
    """The digest of the spec, the packages and the inputs."""
    notes: list[str]
    roots: tuple[str, ...]
    inputs_sha256: str
    inputs: tuple[Group, ...]
    """The files that are used, by source."""
    pack_bytes: int
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
        return hashlib.sha256(json.dumps(taken).encode()).hexdigest()


def make_plan(
    spec: Spec,
    files: Files,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    base: Base | None = None,
    inputs: pa.Table | None = None,
    *,
    keeps_spans: bool = True,
) -> BuildPlan:
    """Lists the sources and lays out the build.

    Args:
        spec: the spec.
        files: lists and opens the sources.
        options: those of the build.
        base: what the output holds; None for a build that follows no version.
        inputs: the inputs of the live version, where files without placeholders may have been added.
        keeps_spans: whether shards of the live version's spans may stay.

    Raises:
        SourceError: a source is not there, is empty, or lacks a column.
        SpanError: as `choose`, or other spans than those to be built cannot stay.
        OutputError: the live version is damaged, and something of it must be taken over.
    """
    code = user_code(spec)
    if code is not None:
        code.install()
    feature_files = _feature_files(spec, files)
    graph = GraphInputs(spec, package_versions(), feature_files)
    taken = inherit(spec, base, graph, options, keeps_spans=keeps_spans)
    parts = _key_parts(spec, code, feature_files) | ({} if options.limit is None else {"limit": options.limit})
    spans = choose(spec, files, _sha256(_recipe(parts)), taken.spans_of, options, inputs)
    pack_bytes, plans = _packed_plans(spec, spans, files, options.chunk_bytes)
    sha256 = spans.inputs_sha256 if spec.has_spans else _inputs_digest(plan.inputs for plan in plans)
    chunks = ((source, chunk) for source, plan in enumerate(plans) for chunk in plan.chunks)
    live = taken.frozen or (taken.spans if spans.kept else None)
    plan = BuildPlan(
        spec=spec,
        spans=spans,
        chunks=[replace(chunk, index=index, source=source) for index, (source, chunk) in enumerate(chunks)],
        rows=sum(plan.rows for plan in plans),
        rows_are_exact=all(plan.is_exact for plan in plans),
        expected_bytes=_expected_bytes(spec, plans),
        source_bytes=sum(plan.bytes for plan in plans),
        scratch_bytes=sum(_scratch_bytes(spec, plan) for plan in plans),
        layout=_layout(spec, spans, plans),
        source_key=_sha256(parts | {"inputs": sha256}),
        notes=[*spans.notes(), *dict.fromkeys(note for plan in plans for note in plan.notes), *taken.notes],
        roots=tuple(each.reader.image_root(files) for each in spans.sources),
        inputs_sha256=sha256,
        inputs=tuple(Group(each, plan.inputs) for each, plan in zip(spans.sources, plans, strict=True)),
        pack_bytes=pack_bytes,
        user_code=code,
        kept=taken.names,
        forgotten=taken.forgotten,
        live=live and replace(live, spans=tuple(spans.kept)),
        feature_files=feature_files,
    )
    return plan if options.limit is None else _trial(plan, options.limit)


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
    """Gives the plan of a trial version: some rows of all chunks, or of chunks from everywhere, one shard a split."""
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
    """Gives the positions in `chosen` of chunks whose file has a part just before them that was not chosen."""
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
    """Gives the `BuildPlan.inputs_sha256` of the inputs as they are now; kept spans are not looked at.

    Raises:
        SourceError: as `make_plan`.
    """
    if plan.spec.has_spans:
        return plan.spans.listed_again(plan.spec, files).inputs_sha256
    return _inputs_digest(each.inputs for each in _plan_sources(plan.spec, plan.sources, files, CHUNK_BYTES))


def list_groups(spec: Spec, files: Files, only: Sequence[str] = ()) -> list[Group]:
    """Lists all files that a plan may use, without opening any; of some spans only theirs.

    Raises:
        SourceError: a source is not there. OSError: it cannot be listed.
    """
    sources = (each for span in only for each in sources_of(spec, span, files)) if only else by_span(spec, files)
    return [Group(each, each.reader.list_inputs(files, spec.columns())) for each in sources]


def listing_digest(groups: Iterable[Group]) -> str:
    """The `inputs_sha256` of a plan without spans that uses all listed files."""
    return _inputs_digest(group.files for group in groups)


def listing_key(spec: Spec, groups: Iterable[Group], files: Files) -> str:
    """The `source_key` of a plan that uses all listed files.

    Raises:
        UserError: the user's code, or a file that the spec names, is not there.
    """
    parts = _key_parts(spec, user_code(spec), _feature_files(spec, files))
    spans = choose(spec, files, _sha256(_recipe(parts))) if spec.has_spans else None
    return _sha256(parts | {"inputs": spans.inputs_sha256 if spans else listing_digest(groups)})


def user_code(spec: Spec) -> UserCode | None:
    """The user's modules beside the spec that it names; None if it names no function."""
    references = [name for source in spec.source if isinstance(source, UserRows) for name in source.references()]
    references += [spec.preprocessing] if spec.preprocessing else []
    return UserCode.of(references, spec.folder) if references else None


def _plan_sources(spec: Spec, sources: Sequence[SpanSource], files: Files, chunk_bytes: int) -> list[Plan]:
    return [each.reader.plan(seen_by(each, files), spec.columns(), chunk_bytes) for each in sources]


def pieces(plan: BuildPlan) -> list[tuple[int, str, int]]:
    """Gives the source, file and bytes of each chunk: finished work on other chunks is useless."""
    listed = [(chunk.source, _in_span(plan, chunk), chunk.bytes) for chunk in plan.chunks]
    if any(isinstance(source, UserRows) and not source.inputs for source in plan.spec.source):
        listed.append((-1, uuid.uuid4().hex, 0))  # the inputs of its function are unknown: no earlier work fits
    return listed


def _in_span(plan: BuildPlan, chunk: Chunk) -> str:
    """Gives a chunk's file, with its span before it if there is one: two days' files may have one name."""
    return plan.sources[chunk.source].key_prefix + chunk.file


def planned_build(
    plan: BuildPlan,
    folder: str,
    files: Files,
    *,
    inline: bool,
    threads: int,
    isolated: bool = False,
    workspace: Workspace | None = None,
    shards: Workspace | None = None,
) -> PlannedBuild:
    """Gives what the workers know of a plan.

    `folder` is the attempt's on the driver's disk, by default also the workspace, with the shards in `version`.
    """
    workspace = workspace or LocalWorkspace(os.path.abspath(folder))
    spec = plan.spec
    texts = {name: feature for name, feature in spec.features.items() if isinstance(feature, Tokenized)}
    train = (plan.rows + plan.spans.kept_rows) * spec.splits["train"] / sum(spec.splits.values())
    return PlannedBuild(
        name=spec.name,
        workspace=workspace,
        shards=shards or workspace.folder("version"),
        scratch=os.path.join(os.path.abspath(folder), "scratch"),
        features=_keep(spec.options(), plan.kept),
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
        sample_share=_sample_share(train, spec.has_spans),
        models={name: vocabulary_owner(name, text.options()) for name, text in texts.items() if text.needs_model},
        preprocessing=spec.preprocessing,
        user_code=plan.user_code,
        duplicates=spec.duplicates,
        forgotten=plan.forgotten,
        isolated=isolated,
        row_share=plan.row_share,
    )


def _row_schema(plan: BuildPlan) -> RowSchema:
    spec = plan.spec
    label = spec.features.get(spec.label or "")
    return RowSchema(
        columns=spec.columns(),
        features={name: f.column or name for name, f in spec.features.items() if f.raw_column() is not None},
        key=spec.key_columns,
        label=spec.label,
        classes=_label_classes(plan),
        frozen_classes=plan.frozen is not None and getattr(label, "analyzed", False),
        fills={name: feature.fill for name, feature in spec.features.items() if feature.optional},
        content_key=spec.content_key,
        split_by=spec.split_by,
        together=spec.together,
        source_splits=tuple(each.source.split for each in plan.sources),
        key_prefixes=tuple(each.key_prefix.encode() for each in plan.sources),
    )


def _label_classes(plan: BuildPlan) -> tuple[str, ...] | None:
    """Gives the label's classes where they are known before the look: the spec gives them, or a frozen analysis."""
    label, name = plan.spec.features.get(plan.spec.label or ""), plan.spec.label
    if not isinstance(label, NamedClasses) or name is None:
        return None
    return plan.frozen.words(name) if plan.frozen is not None and label.analyzed else label.given_classes


def _sample_share(rows: float, has_spans: bool) -> float:
    """Gives the share of the rows whose images are measured; that of spans is a power of two, so that sums add up."""
    share = min(1.0, SAMPLE_IMAGES / rows) if rows else 1.0
    return 2.0 ** math.floor(math.log2(share)) if has_spans else share


def _keep(features: Mapping[str, FeatureOptions], kept: Names) -> dict[str, FeatureOptions]:
    """Adds the names that are kept to the options of their features."""
    return {
        name: replace(options, kept=kept[name]) if name in kept and isinstance(options, NameOptions) else options
        for name, options in features.items()
    }


def package_versions() -> dict[str, str]:
    """The versions of Recordmill and of the packages that the bytes depend on."""
    return {"recordmill": VERSION} | {name: importlib.metadata.version(name) for name in PACKAGES}


def _layout(spec: Spec, spans: SpanChoice, plans: Sequence[Plan]) -> Layout:
    """Gives the layout; where there are spans with the shards of each, of kept ones as they are."""
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
    """Gives the number of shards of each split, for the rows of some plans."""
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


def _inputs_digest(inputs: Iterable[Iterable[FileInfo]]) -> str:
    digest = hashlib.sha256()
    for index, files in enumerate(inputs):
        for path, size, modified, tag in files:
            digest.update(f"{index}\0{path}\0{size}\0{tag or repr(modified)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _feature_files(spec: Spec, files: Files) -> dict[str, str]:
    return {name: _file_digest(path, files) for name, path in spec.files().items()}


def _file_digest(path: str, files: Files) -> str:
    with planning(path), files.open(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _key_parts(spec: Spec, code: UserCode | None, files: Mapping[str, str]) -> dict[str, Any]:
    """Gives all that decides a byte of the result, with a place for the digest of the inputs."""
    parts: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude=NO_PART_OF_THE_KEY)}
    parts |= {"packages": package_versions(), "inputs": None}
    parts |= {"code": code.sha256} if code else {}
    return parts | ({"files": list(files.values())} if files else {})


def _recipe(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the parts that decide the records of each span alike; its sources' options belong to its key."""
    return {**parts, "spec": {name: option for name, option in parts["spec"].items() if name != "source"}}


def _sha256(parts: Mapping[str, Any]) -> str:
    # The order of the spec's keys counts: it decides the ranges of hashes of the splits.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
