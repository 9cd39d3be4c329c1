"""Assembles a version in the build's folder, with the files of kept spans, and describes it."""

import hashlib
import json
import os
import posixpath
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata.schema_utils import schema_from_feature_spec

from recordmill.pipeline.build.analysis.tokenizers import tokenizer
from recordmill.pipeline.build.base import live_analysis
from recordmill.pipeline.build.base.inherited import files_of, kept_shards
from recordmill.pipeline.build.context.graph import GRAPH_FOLDERS, input_specs
from recordmill.pipeline.build.context.reports import asked_of_stores
from recordmill.pipeline.build.results.results import Results
from recordmill.pipeline.build.summaries.look import full_buckets
from recordmill.pipeline.build.worker.build_shard import write_shard
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, renamed, span_file, vocabulary_name
from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard, Split, index_bytes
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.dataset.profile import FILE, to_text
from recordmill.pipeline.dataset.version import read_words
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import with_sidecars
from recordmill.pipeline.spec.features.token_labels import TokenLabels
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.build_folders import entries
from recordmill.pipeline.versions.files import KeptFiles, inventory
from recordmill.pipeline.versions.forgotten import FORGOTTEN
from recordmill.pipeline.versions.stores.traffic import ASKED
from recordmill.transforms.contract.kinds.base import UNKNOWN, Description, Stored, tfds_stored
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import part_name, stored_features
from recordmill.transforms.tensorflow.features import parse_spec, part_spec
from recordmill.transforms.tensorflow.kind import DTYPES

ASSETS = "transform_fn/assets"
STORED = {dtype: name for name, dtype in DTYPES.items()}
Described = dict[str, Description]  # by feature
REJECTS_FILE = "rejects/rejected-00000-of-00001.jsonl"
SERVING_FOLDER = "serving"


def describe_features(results: Results) -> Described:
    """Describes the features that a finished job stored."""
    spec = results.plan.spec
    described: Described = {}
    for name, feature in spec.features.items():
        owner = vocabulary_owner(name, feature.options())
        statistics = {"vocabulary": f"{ASSETS}/{vocabulary_name(owner)}", "is_label": name == spec.label}
        statistics |= results.statistics.get(owner, {})
        if isinstance(feature, TokenLabels):
            statistics["max_length"] = getattr(spec.features[feature.text], "most_ids", None)
        if name in results.context.models:
            statistics |= tokenizer(results.context, owner).statistics(owner)
        described[name] = feature.describe(statistics)
    return with_own_features(results.export, described) if spec.preprocessing else described


def with_own_features(export: str, built_in: Described) -> Described:
    """Describes the features that a graph stores: the spec's, if stored in its types, and all others."""
    stored = tft.TFTransformOutput(export).transformed_feature_spec()
    kept = {name: each for name, each in built_in.items() if _is_stored(name, each, stored)}
    known = stored_features(kept)
    return kept | {name: _own(spec) for name, spec in stored.items() if name not in known}


def _is_stored(name: str, description: Description, stored: Mapping[str, Any]) -> bool:
    return all(_form(stored.get(part)) == _form(spec) for part, spec in parse_spec({name: description}).items())


def _form(spec: Any) -> tuple[Any, ...]:
    """Returns a spec's type and shape, without TensorFlow's names for the parts of ragged values."""
    return (type(spec), getattr(spec, "dtype", None), list(getattr(spec, "shape", None) or []))


def _own(spec: Any) -> OwnDescription:
    fixed = isinstance(spec, tf.io.FixedLenFeature)
    return OwnDescription(stored=STORED[spec.dtype], shape=tuple(spec.shape) if fixed else None)


def write_tfds_files(folder: str, features: Mapping[str, Description], vocabularies: Mapping[str, list[str]]) -> None:
    """Writes the files of TensorFlow Datasets: `features.json` and labels."""
    into, stored = Path(folder), stored_features(features, with_key=True)
    parts = {name: tfds_stored(each) for name, each in stored.items()}
    parts |= {name: description.tfds() for name, description in features.items()}
    described = {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": parts},
    }
    (into / "features.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    for feature, description in features.items():
        if "classLabel" in description.tfds() and isinstance(description, CategoryDescription):
            names = [UNKNOWN] * (description.first_id or 0) + vocabularies[feature]
            path_within(into, f"{feature}.labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def write_tft_files(results: Results, folder: str, features: Mapping[str, Description]) -> None:
    """Writes the schemas and assets that `tft.TFTransformOutput` reads; the graph's schema splits ragged tensors."""
    made, into = tft.TFTransformOutput(results.export), Path(folder)
    stored = schema_from_feature_spec(parse_spec(features), made.transformed_domains() | dict(_domains(features)))
    stored.annotation.CopyFrom(made.transformed_metadata.schema.annotation)
    inputs = input_specs(results.context).items()
    raw = {name: part_spec(Stored(STORED[each.dtype], None if len(each.shape) > 1 else ())) for name, each in inputs}
    for place, schema in {"transformed_metadata": stored, "metadata": schema_from_feature_spec(raw)}.items():
        path_within(into, f"{place}/schema.pbtxt").write_text(text_format.MessageToString(schema), encoding="ascii")
    files = {name: file for name, each in features.items() if (file := getattr(each, "vocabulary", None))}
    files |= {posixpath.basename(file): file for file in files.values()}
    assets = json.dumps({name: posixpath.relpath(file, ASSETS) for name, file in files.items()})
    path_within(into, "transformed_metadata/asset_map").write_text(assets, encoding="ascii")


def _domains(features: Mapping[str, Description]) -> Iterator[tuple[str, schema_pb2.IntDomain]]:
    for name, description in features.items():
        ids = getattr(description, "buckets", None) or getattr(description, "vocabulary_size", None)
        for part, stored in description.parts().items():
            if stored.dtype == "int64" and (count := {"": ids, "missing": 2}.get(part)):
                yield part_name(name, part), schema_pb2.IntDomain(min=0, max=count - 1, is_categorical=True)


@dataclass(frozen=True)
class TakenOver:
    """The files of kept spans."""

    shards: Mapping[int, Shard] = field(default_factory=dict)  # by group
    entries: Mapping[str, Json] = field(default_factory=dict)
    """`bytes` and `sha256` of the shards' indexes and the spans' small files, by path."""


def take_over(results: Results, output: str, assembled: str, version: str, on_note: Callable[[str], None]) -> TakenOver:
    """Links or copies the files of kept spans into an assembled version. Raises: DatasetError, OSError, OutputError."""
    base, spans, layout = results.plan.spans.base, results.plan.spans.kept, results.context.layout
    if base is None or not spans:
        return TakenOver()
    files, shards = KeptFiles(output, base, assembled, version), dict[int, Shard]()
    for group, shard in kept_shards(base, spans, layout).items():
        split, number = layout.shard_of_group(group)
        own = renamed(shard, results.context.name, split, number, layout.shards[split])
        shards[group] = files.shard(shard, own)
    files.files(files_of(base, spans))
    if files.note:
        on_note(files.note)
    return TakenOver(shards, files.entries)


def write_span_files(results: Results, assembled: Path) -> None:
    """Writes the reports and the rejected rows of new spans."""
    for span in results.plan.spans.built:
        files = {REPORT: results.spans[span].report.to_bytes(), REJECTED: results.spans[span].rejected}
        for name, data in files.items():
            if data:
                path_within(assembled, span_file(span, name)).write_bytes(data)


def assemble(
    results: Results,
    output: str,
    described: dict[str, Description],
    version: str = "",
    more: Mapping[str, bytes] = MappingProxyType({}),
    on_note: Callable[[str], None] = lambda note: None,
) -> Manifest:
    """Assembles a version from a finished job's shards and serving model; returns its manifest, to be written last.

    It gets a name, unless its shards already lie in its folder, and the files of `more` by name.
    """
    assembled = Path(results.context.assembled)
    vocabularies = _vocabularies(results, described)
    version = version or publishing.version_name(results.plan.build_key)
    reports = _shard_reports(results, assembled)
    taken = take_over(results, output, str(assembled), version, on_note)
    splits = _list_shards(results, reports, taken, len(vocabularies.get(results.context.schema.label or "", [])))
    for name in GRAPH_FOLDERS:
        shutil.copytree(os.path.join(results.export, name), assembled / name)
    for owner in sorted(set(results.context.models.values())):
        for file, data in tokenizer(results.context, owner).files(owner).items():
            path_within(assembled, file).write_bytes(data)
    spec = results.plan.spec
    if spec.summaries:
        for file, data in full_buckets(results.context.workspace):
            path_within(assembled, file).write_bytes(data)
    _write_profile(results, assembled)
    rejects = _write_rejects(results, assembled)
    write_span_files(results, assembled)
    write_tfds_files(str(assembled), described, vocabularies)
    write_tft_files(results, str(assembled), described)
    manifest = _manifest(results, described, splits, rejects, version)
    for name, data in more.items():
        path_within(assembled, name).write_bytes(data)
    manifest = replace(manifest, files=_inventory(assembled, reports.values(), taken))
    return with_sidecars(manifest, assembled, output)


def _vocabularies(results: Results, described: dict[str, Description]) -> dict[str, list[str]]:
    return {
        name: list(description.shown or read_words(Path(results.export), description.vocabulary))
        for name, description in described.items()
        if isinstance(description, CategoryDescription | CategoriesDescription) and description.vocabulary
    }


def _shard_reports(results: Results, assembled: Path) -> dict[int, ShardReport]:
    """Writes the empty shards; returns the reports of all new shards, by group."""
    layout, reports = results.context.layout, results.built
    shard_files = [path for report in reports.values() for path in report.files.paths]
    clear(assembled, {SERVING_FOLDER, *shard_files})  # a killed worker may have left others
    for group in range(layout.groups):
        if group not in reports and layout.span_of_group(group) not in results.kept:
            reports[group] = write_shard(results.context, group)
    return reports


def _inventory(assembled: Path, reports: Collection[ShardReport], taken: TakenOver) -> dict[str, dict[str, Any]]:
    """Lists the version's files; indexes by their shards' reports, because they may be in a bucket."""
    indexes = {
        report.files.index: {"bytes": index_bytes(report.files.records), "sha256": report.index_sha256}
        for report in reports
    }
    packs = (pack for report in reports for pack in report.files.packs)
    indexes |= {pack.file: {"bytes": pack.bytes, "sha256": pack.sha256} for pack in packs}
    shards = [shard.file for shard in (*(report.files for report in reports), *taken.shards.values())]
    return inventory(str(assembled), shards, {**indexes, **taken.entries})


def clear(folder: Path, but: Collection[str] = ()) -> None:
    """Removes the entries of a folder, except these names."""
    for entry in [entry for entry in entries(folder) if entry.name not in but]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _list_shards(
    results: Results, reports: Mapping[int, ShardReport], taken: TakenOver, classes: int
) -> dict[str, Split]:
    layout, splits = results.context.layout, {}
    for split in layout.splits:
        counts = results.counts.get(split, Counts())
        labels = counts.label_counts
        shards = []
        for shard in range(layout.shards[split]):
            group = layout.group(split, shard)
            shards.append(taken.shards.get(group) or replace(reports[group].files, span=layout.span_of_group(group)))
        if classes and labels and not labels.keys() <= set(range(classes)):
            raise UserError(
                f"labels are ids from 0 to {classes - 1}, `preprocessing` made {min(labels)} to {max(labels)}"
            )
        by_class = tuple(labels.get(label, 0) for label in range(classes)) if classes else None
        rows = None if results.context.windowed is None else sum(counts.written_by_source.values())
        splits[split] = Split(tuple(shards), by_class, source_rows=rows)
    return splits


def _write_profile(results: Results, assembled: Path) -> None:
    path_within(assembled, FILE).write_text(
        to_text({split: counts.profile for split, counts in results.counts.items()}), encoding="ascii"
    )
    learned = results.plan.frozen.learned_profile if results.plan.frozen else None
    if learned is not None:
        path_within(assembled, live_analysis.LEARNED_PROFILE).write_bytes(learned)


def _write_rejects(results: Results, assembled: Path) -> dict[str, Any]:
    files = []
    if rejected := sum(results.reasons.values()):
        data = results.rejects_jsonl
        path_within(assembled, REJECTS_FILE).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        files.append({"file": REJECTS_FILE, "bytes": len(data), "records": rejected, "sha256": digest})
    return {"by_reason": results.reasons, "files": files, **results.in_statistics}


def _manifest(
    results: Results, described: dict[str, Description], splits: dict[str, Split], rejects: dict[str, Any], version: str
) -> Manifest:
    plan, now, asked = results.plan, datetime.now(UTC), asked_of_stores(results.context.progress)
    sources, gone = results.by_source(), plan.given.inherited.forgotten
    of_kept = plan.live.sample_share if plan.live and plan.live.spans else 1.0
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
        rejects=rejects,
        packs=results.context.packs,
        trial=plan.limit or 0,
        duplicates=results.duplicates,
        drift=results.drift,
        spans=results.span_entries,
        spec=live_analysis.published_spec(plan.spec),
        provenance={
            "built_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "packages": live_analysis.package_versions(),
            **({ASKED: asked} if asked else {}),
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
        },
    )
