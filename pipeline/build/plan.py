"""Plans a build: lists the sources, chooses the number of shards, and computes the build's key.

The key is a digest of everything that decides a byte of the result: the spec, our version and the versions of the
packages that do the work, the inputs' listing with sizes and times of change, and the classes whose ids are kept.
"""

import hashlib
import importlib.metadata
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recordmill.pipeline.build.class_ids import Names
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.row_schema import RowSchema
from recordmill.pipeline.build.run_options import CHUNK_BYTES
from recordmill.pipeline.dataset.key_hash import shard_count
from recordmill.pipeline.dataset.layout import Layout
from recordmill.pipeline.sources.base import Chunk, Files, Plan
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.python.source import UserRows
from recordmill.pipeline.sources.python.user_code import UserCode
from recordmill.pipeline.spec.features.text import Tokenized
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.version import VERSION
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import IMAGES

BATCH_BYTES = 64 << 10  # 64 KiB: a smaller packed batch costs more than its rows
MAX_PACK_BYTES = 256 << 20
SHARD_BYTES = 128 << 20  # 128 MiB: tf.data reads that well, and a worker builds it in a minute
SAMPLE_IMAGES = 10_000
GUESSED_FRAMES = 8
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

NO_PART_OF_THE_KEY = {"rejects"}
"""Options left out of the build key: a build that a limit stopped goes on when the limit is raised."""


@dataclass(frozen=True)
class BuildPlan:
    """The chunks, the layout and the estimates of a build."""

    spec: Spec
    chunks: list[Chunk]
    rows: int
    """The number of rows, or an estimate."""
    rows_are_exact: bool
    """Whether `rows` is exact."""
    expected_bytes: int
    """The estimated size of the shards in bytes."""
    source_bytes: int
    """The bytes to read, including images."""
    layout: Layout
    source_key: str
    """The digest of the spec, the packages and the inputs."""
    notes: list[str]
    roots: tuple[str, ...]
    inputs_sha256: str
    pack_bytes: int
    user_code: UserCode | None = None
    """The user's modules that the spec names."""
    kept: Names = field(default_factory=dict)
    """The names of classes that keep the ids of an earlier version, by feature."""

    @property
    def build_key(self) -> str:
        """The digest of everything that decides a byte: the source key, and the names that are kept."""
        if not self.kept:
            return self.source_key
        return hashlib.sha256(json.dumps([self.source_key, dict(self.kept)]).encode()).hexdigest()


def make_plan(spec: Spec, files: Files, chunk_bytes: int = CHUNK_BYTES) -> BuildPlan:
    """Lists the sources and lays out the build.

    Raises:
        SourceError: a source is not there, is empty, or lacks a column.
    """
    code = user_code(spec)
    if code is not None:
        code.install()
    plans = _plan_sources(spec, files, chunk_bytes)
    layout = _layout(spec, plans)
    pack_bytes = min(MAX_PACK_BYTES, max(CHUNK_BYTES, layout.groups * BATCH_BYTES))
    if pack_bytes > CHUNK_BYTES:  # many shards need larger chunks: each chunk's part of a shard has a cost
        plans = _plan_sources(spec, files, max(pack_bytes, chunk_bytes))
    inputs = _inputs_digest(plans)
    chunks = (replace(chunk, source=source) for source, plan in enumerate(plans) for chunk in plan.chunks)
    return BuildPlan(
        spec=spec,
        chunks=[replace(chunk, index=index) for index, chunk in enumerate(chunks)],
        rows=sum(plan.rows for plan in plans),
        rows_are_exact=all(plan.is_exact for plan in plans),
        expected_bytes=_expected_bytes(spec, plans),
        source_bytes=sum(plan.bytes for plan in plans),
        layout=layout,
        source_key=_source_key(spec, inputs, code, files),
        notes=[note for plan in plans for note in plan.notes],
        roots=tuple(source.image_root(files) for source in spec.source),
        inputs_sha256=inputs,
        pack_bytes=pack_bytes,
        user_code=code,
    )


def inputs_digest(spec: Spec, files: Files, chunk_bytes: int = CHUNK_BYTES) -> str:
    """The `BuildPlan.inputs_sha256` of the inputs as they are now.

    Raises:
        SourceError: as `make_plan`.
    """
    return _inputs_digest(_plan_sources(spec, files, chunk_bytes))


def user_code(spec: Spec) -> UserCode | None:
    """The user's modules beside the spec that it names; None if it names no function."""
    references = [name for source in spec.source if isinstance(source, UserRows) for name in source.references()]
    references += [spec.preprocessing] if spec.preprocessing else []
    return UserCode.of(references, spec.folder) if references else None


def _plan_sources(spec: Spec, files: Files, chunk_bytes: int) -> list[Plan]:
    return [source.plan(files, spec.columns(), chunk_bytes) for source in spec.source]


def pieces(plan: BuildPlan) -> list[tuple[int, str, int]]:
    """Gives the source, file and bytes of each chunk: finished work on other chunks is useless."""
    listed = [(chunk.source, chunk.file, chunk.bytes) for chunk in plan.chunks]
    if any(isinstance(source, UserRows) and not source.inputs for source in plan.spec.source):
        listed.append((-1, uuid.uuid4().hex, 0))  # the inputs of its function are unknown: no earlier work fits
    return listed


def planned_build(
    plan: BuildPlan, folder: str, files: Files, *, inline: bool, threads: int, isolated: bool = False
) -> PlannedBuild:
    """Gives what the workers know of a plan."""
    spec = plan.spec
    label = spec.features.get(spec.label) if spec.label else None
    texts = {name: feature for name, feature in spec.features.items() if isinstance(feature, Tokenized)}
    train = plan.rows * spec.splits["train"] / sum(spec.splits.values())
    return PlannedBuild(
        name=spec.name,
        folder=os.path.abspath(folder),
        features=_keep(spec.options(), plan.kept),
        analyzed=frozenset(name for name, feature in spec.features.items() if feature.analyzed),
        schema=RowSchema(
            columns=spec.columns(),
            features={name: f.column or name for name, f in spec.features.items() if f.raw_column() is not None},
            key=spec.key_columns,
            label=spec.label,
            classes=getattr(label, "given_classes", None),
            fills={name: feature.fill for name, feature in spec.features.items() if feature.optional},
            content_key=spec.content_key,
            split_by=spec.split_by,
            together=spec.together,
            source_splits=tuple(source.split for source in spec.source),
        ),
        layout=plan.layout,
        sources=spec.source,
        roots=plan.roots,
        files=files,
        inline=inline,
        pack_bytes=plan.pack_bytes,
        threads=threads,
        sample_share=min(1.0, SAMPLE_IMAGES / train) if train else 1.0,
        models={name: vocabulary_owner(name, text.options()) for name, text in texts.items() if text.needs_model},
        preprocessing=spec.preprocessing,
        user_code=plan.user_code,
        duplicates=spec.duplicates,
        isolated=isolated,
    )


def _keep(features: Mapping[str, FeatureOptions], kept: Names) -> dict[str, FeatureOptions]:
    """Adds the names that are kept to the options of their features."""
    return {
        name: replace(options, kept=kept[name]) if name in kept and isinstance(options, NameOptions) else options
        for name, options in features.items()
    }


def package_versions() -> dict[str, str]:
    """The versions of Recordmill and of the packages that the bytes depend on."""
    return {"recordmill": VERSION} | {name: importlib.metadata.version(name) for name in PACKAGES}


def _layout(spec: Spec, plans: list[Plan]) -> Layout:
    total = sum(spec.splits.values())
    expected = _expected_bytes(spec, plans)
    given = dict.fromkeys(spec.splits, spec.shards) if isinstance(spec.shards, int) else spec.shards or {}
    shards = {
        split: given.get(split) or shard_count(int(expected * share / total), SHARD_BYTES)
        for split, share in spec.splits.items()
    }
    return Layout(dict(spec.splits), shards)


def _expected_bytes(spec: Spec, plans: list[Plan]) -> int:
    """The estimated size of the records in bytes, by the inputs and the spec alone."""
    images: list[Any] = [feature for feature in spec.features.values() if feature.kind in IMAGES]
    if not images:
        return sum(plan.bytes for plan in plans)
    frames = [1 if image.kind == "image" else image.length or image.max_length or GUESSED_FRAMES for image in images]
    a_row = sum(image.expected_bytes * count for image, count in zip(images, frames, strict=True))
    return int(a_row * sum(plan.rows for plan in plans))


def _inputs_digest(plans: Iterable[Plan]) -> str:
    digest = hashlib.sha256()
    for index, plan in enumerate(plans):
        for file in plan.inputs:
            digest.update(f"{index}\0{file.path}\0{file.bytes}\0{file.modified!r}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _file_digest(path: str, files: Files) -> str:
    with planning(path), files.open(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _source_key(spec: Spec, inputs: str, code: UserCode | None, files: Files) -> str:
    described = spec.model_dump(mode="json", exclude=NO_PART_OF_THE_KEY)
    parts = {"spec": described, "packages": package_versions(), "inputs": inputs}
    parts |= {"code": code.sha256} if code else {}
    parts |= {"files": [_file_digest(path, files) for path in given]} if (given := spec.files()) else {}
    # The order of the spec's keys counts: it decides the ranges of hashes of the splits.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
