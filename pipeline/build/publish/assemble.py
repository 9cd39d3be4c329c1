"""Assembles a version in the build's folder, with the files of kept spans, and describes it."""

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.analysis.tokenizers import tokenizer
from recordmill.pipeline.build.base import live_analysis
from recordmill.pipeline.build.base.live_analysis import kept_shards
from recordmill.pipeline.build.context.graph import GRAPH_FOLDERS
from recordmill.pipeline.build.publish.described import Described, id_counts, tfds_files, tft_files
from recordmill.pipeline.build.results.results import Results
from recordmill.pipeline.build.summaries.look import full_buckets
from recordmill.pipeline.build.worker.build_shard import write_shard
from recordmill.pipeline.dataset import profile
from recordmill.pipeline.dataset.counts import Counts
from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, renamed, span_file, span_of_file
from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard, Split, index_bytes
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.dataset.version import read_words
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import with_sidecars
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import FORGOTTEN
from recordmill.pipeline.versions.build_folders import entries
from recordmill.pipeline.versions.files import KeptFiles, inventory

REJECTS_FILE = "rejects/rejected-00000-of-00001.jsonl"
SERVING_FOLDER = "serving"
Words = Mapping[str, list[str]]  # of classes, by feature


def assemble(
    results: Results,
    output: str,
    described: Described,
    version: str,
    more: Mapping[str, bytes],
    on_note: Callable[[str], None],
) -> Manifest:
    """Assembles a version from a finished job's shards and serving model; returns its manifest, to be written last.

    It gets a name if `version` is empty, and the files of `more`. Raises: UserError: the user's function made ids that
    a feature lacks. DatasetError, OSError, OutputError: a file of a kept span is missing, or cannot be linked or
    copied.
    """
    assembled, layout = Path(results.context.assembled), results.context.layout
    version = version or publishing.version_name(results.plan.build_key)
    reports = results.built
    clear(assembled, {SERVING_FOLDER, *(path for each in reports.values() for path in each.files.paths)})
    for group in range(layout.groups):
        if group not in reports and layout.span_of_group(group) not in results.kept:
            reports[group] = write_shard(results.context, group)
    shards = {group: replace(each.files, span=layout.span_of_group(group)) for group, each in reports.items()}
    known: dict[str, Json] = {}  # files that need not be read: they may be in a bucket
    for group, shard in shards.items():
        known[shard.index] = {"bytes": index_bytes(shard.records), "sha256": reports[group].index_sha256}
        known |= {pack.file: {"bytes": pack.bytes, "sha256": pack.sha256} for pack in shard.packs}
    kept, entries_of_kept = _take_over(results, output, version, on_note)
    shards, known = shards | kept, known | entries_of_kept
    tables = {name: ids for name, description in described.items() if (ids := description.ids) and ids.are_classes}
    export, with_files = Path(results.export), {name: ids for name, ids in tables.items() if ids.file}
    words = {name: list(ids.words or read_words(export, str(ids.file))) for name, ids in with_files.items()}
    for name in GRAPH_FOLDERS:
        shutil.copytree(os.path.join(results.export, name), assembled / name)
    for path, data in _files(results, described, words, more):
        path_within(assembled, path).write_bytes(data)
    files = inventory(str(assembled), [shard.file for shard in shards.values()], known)
    _check_ids(results, described)
    splits = dict(_splits(results, shards, len(words.get(results.context.schema.label or "", []))))
    return with_sidecars(_manifest(results, described, splits, version, files), assembled, output)


def clear(folder: Path, but: Collection[str] = ()) -> None:
    """Removes the entries of a folder, except these names: a killed worker may have left others."""
    for entry in [entry for entry in entries(folder) if entry.name not in but]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _take_over(
    results: Results, output: str, version: str, on_note: Callable[[str], None]
) -> tuple[dict[int, Shard], dict[str, Json]]:
    """Links or copies the files of kept spans; returns the shards by group, and the inventory of their small files."""
    base, spans, layout = results.plan.spans.base, results.plan.spans.kept, results.context.layout
    shards = dict[int, Shard]()
    if base is None or not spans:
        return shards, {}
    files = KeptFiles(output, base, results.context.assembled, version)
    for group, shard in kept_shards(base, spans, layout).items():
        split, number = layout.shard_of_group(group)
        shards[group] = files.shard(shard, renamed(shard, results.context.name, split, number, layout.shards[split]))
    files.files([path for path in base.files if span_of_file(path) in spans])
    if files.note:
        on_note(files.note)
    return shards, files.entries


def _files(
    results: Results, described: Described, words: Words, more: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yields the version's small files by path, except those of kept spans, the sidecars and the graphs."""
    plan, context = results.plan, results.context
    for owner in sorted(set(context.models.values())):
        yield from tokenizer(context, owner).files(owner).items()
    if plan.spec.summaries:
        yield from full_buckets(context.workspace)
    profiles = {split: counts.profile for split, counts in results.counts.items()}
    yield profile.FILE, profile.to_text(profiles).encode("ascii")
    if plan.frozen is not None and (learned := plan.frozen.learned_profile) is not None:
        yield live_analysis.LEARNED_PROFILE, learned
    if results.rejects_jsonl:
        yield REJECTS_FILE, results.rejects_jsonl
    for span in plan.spans.built:
        yield span_file(span, REPORT), results.spans[span].report.to_bytes()
        if rejected := results.spans[span].rejected:
            yield span_file(span, REJECTED), rejected
    yield from tfds_files(described, words)
    yield from tft_files(results, described)
    yield from more.items()


def _check_ids(results: Results, described: Described) -> None:
    """Checks that the user's function stores only ids that their features have. Raises: UserError."""
    bounds = Counts.sum(results.counts.values()).bounds or {}
    for name, count in id_counts(described):
        least, greatest = bounds.get(name, (0, 0))
        if least < 0 or greatest >= count:
            made = f"'{name}' has ids from 0 to {count - 1}, `preprocessing` made {least} to {greatest}"
            raise UserError(f"{made}: keep its ids, or return other numbers by a new name")


def _splits(results: Results, shards: Mapping[int, Shard], classes: int) -> Iterator[tuple[str, Split]]:
    """Yields the splits with shards, and records by label, if it has classes."""
    layout = results.context.layout
    for split in layout.splits:
        of_all = results.counts.get(split, Counts())
        labels = of_all.label_counts
        rows = None if results.context.windowed is None else sum(of_all.written_by_source.values())
        of_split = tuple(shards[layout.group(split, shard)] for shard in range(layout.shards[split]))
        counts = tuple(labels.get(label, 0) for label in range(classes)) if classes else None
        yield split, Split(of_split, counts, source_rows=rows)


def _manifest(
    results: Results, described: Described, splits: dict[str, Split], version: str, files: dict[str, Json]
) -> Manifest:
    plan, sources, gone = results.plan, results.by_source(), results.plan.given.inherited.forgotten
    of_kept = plan.live.sample_share if plan.live and plan.live.spans else 1.0
    rejects: list[Json] = []
    if data := results.rejects_jsonl:
        rejected = {"bytes": len(data), "records": sum(results.reasons.values())}
        rejects.append({"file": REJECTS_FILE, **rejected, "sha256": hashlib.sha256(data).hexdigest()})
    provenance: dict[str, Any] = {
        "built_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "packages": live_analysis.package_versions(),
        "source_key": plan.rows_key,
        live_analysis.KEPT_NAMES: {name: len(words) for name, words in plan.given.inherited.names.items()},
        "inputs_sha256": plan.inputs_sha256,
        "shard_inputs_sha256": [results.shards[group].inputs_sha256 for group in sorted(results.shards)],
        **(plan.keys.provenance if plan.spans.spans else {}),
        **({"user_code": plan.given.code.to_json()} if plan.given.code else {}),
        **({live_analysis.FEATURE_FILES: dict(plan.given.feature_files)} if plan.given.feature_files else {}),
        **({live_analysis.ANALYSIS: plan.frozen.to_json()} if plan.frozen else {}),
        **({live_analysis.SAMPLE_SHARE: min(results.context.sample_share, of_kept)} if plan.spec.has_spans else {}),
        **({FORGOTTEN: gone.entry(plan.source_key)} if gone.keys else {}),
    }
    return Manifest(
        name=plan.spec.name,
        version=version,
        build_key=plan.build_key,
        label=plan.spec.label,
        features={name: description.to_json() for name, description in described.items()},
        splits=splits,
        statistics=results.statistics,
        rows={what: sum(source.get(what, 0) for source in sources) for what in results.counted},
        sources=tuple(sources),
        rejects={"by_reason": results.reasons, "files": rejects, **results.in_statistics},
        packs=results.context.packs,
        trial=plan.limit or 0,
        duplicates=results.duplicates,
        drift=results.drift,
        spans=results.span_entries,
        spec=live_analysis.published_spec(plan.spec),
        files=files,
        provenance=provenance,
    )
