"""Assembles a version in the build's folder, describes it, and makes it visible and live."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.analysis.tokenizer_models import tokenizer
from recordmill.pipeline.build.attempts import clear
from recordmill.pipeline.build.class_ids import KEPT_NAMES
from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.plan import package_versions
from recordmill.pipeline.build.results import COUNTED, Results, published_path
from recordmill.pipeline.build.tfds_files import write_tfds_files
from recordmill.pipeline.dataset.file_names import index_name, shard_name
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.dataset.vocabulary import read_words
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.features.base import Feature
from recordmill.pipeline.spec.model import PATHS, Spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.inventory import inventory
from recordmill.pipeline.versions.leases import Lease
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription

REJECTS_FILE = "rejects/rejected-00000-of-00001.jsonl"


SERVING_FOLDER = "serving"


def publish(
    results: Results,
    output: str,
    features: Mapping[str, tuple[Feature, Description]],
    lease: Lease | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[str, Manifest]:
    """Publishes a finished job, whose shards and serving model lie in the run's folder `version`.

    Args:
        results: the job's reports.
        output: the dataset's folder, or its URL.
        features: the stored features, with their descriptions for the manifest.
        lease: the build's.
        check: raises where the version may not follow the one that is live.

    Returns:
        The version's folder and its manifest.
    """
    assembled = Path(results.context.folder, "version")
    described = {name: description for name, (_, description) in features.items()}
    vocabularies = _vocabularies(results, described)
    splits = _list_shards(results, assembled, len(vocabularies.get(results.context.schema.label or "", [])))
    for name in ("transform_fn", "transformed_metadata"):
        shutil.copytree(os.path.join(results.export, name), assembled / name)
    for owner in sorted(set(results.context.models.values())):
        for file, data in tokenizer(results.context, owner).files(owner).items():
            (assembled / file).parent.mkdir(exist_ok=True)
            (assembled / file).write_bytes(data)
    rejects = _write_rejects(results, assembled)
    spec = results.plan.spec
    write_tfds_files(str(assembled), spec.name, features, splits, vocabularies)
    shards = [shard.file for split in splits.values() for shard in split.shards]
    files = inventory(str(assembled), shards)
    manifest = replace(_manifest(results, described, splits, rejects), files=files)
    return publishing.publish(output, str(assembled), manifest, lease, check)


def _vocabularies(results: Results, described: dict[str, Description]) -> dict[str, list[str]]:
    return {
        name: list(description.shown or read_words(Path(results.export), description.vocabulary))
        for name, description in described.items()
        if isinstance(description, CategoryDescription | CategoriesDescription) and description.vocabulary
    }


def _list_shards(results: Results, assembled: Path, classes: int) -> dict[str, Split]:
    layout, reports = results.context.layout, results.shards
    shard_files = [report[what] for report in reports.values() for what in ("file", "index")]
    clear(assembled, {SERVING_FOLDER, *shard_files})  # a runner may have killed a worker while it wrote
    splits = {}
    for number, split in enumerate(layout.splits):
        labels: Counter[int] = Counter()
        shards, documents = [], 0
        for shard in range(layout.shards[split]):
            report = reports.get(int(layout.first_group[number]) + shard)
            report = report or _empty_shard(results.context, assembled, split, shard)
            shards.append(Shard(*(report[what] for what in ("file", "bytes", "records", "sha256", "index"))))
            documents += report.get("packed", {}).get("documents", 0)
            labels.update({int(label): count for label, count in report.get("label_counts", {}).items()})
        if classes and labels and not labels.keys() <= set(range(classes)):
            raise UserError(
                f"labels are ids from 0 to {classes - 1}, `preprocessing` made {min(labels)} to {max(labels)}"
            )
        counts = tuple(labels[label] for label in range(classes)) if classes else None
        splits[split] = Split(tuple(shards), counts, documents if results.context.packed() else None)
    return splits


def _empty_shard(context: BuildContext, assembled: Path, split: str, shard: int) -> dict[str, Any]:
    """Writes a shard without rows; returns its report."""
    file, index = (name(context.name, split, shard, context.layout.shards[split]) for name in (shard_name, index_name))
    with ShardWriter(str(assembled / file), str(assembled / index)) as writer:
        writer.write([])
    return {"file": file, "index": index, **writer.report()}


def _write_rejects(results: Results, assembled: Path) -> dict[str, Any]:
    files = []
    if results.rejects:
        path = assembled / REJECTS_FILE
        path.parent.mkdir()
        data = results.rejects_jsonl
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        files.append({"file": REJECTS_FILE, "bytes": len(data), "records": len(results.rejects), "sha256": digest})
    return {"by_reason": results.reasons, "in_statistics": results.rejected_in_statistics, "files": files}


def _published_spec(spec: Spec) -> dict[str, Any]:
    """The spec without the folders of the machine that built it."""
    published = spec.model_dump(mode="json")
    for source in published["source"]:
        source |= {name: published_path(source[name]) for name in PATHS if source.get(name)}
        if source["format"] == "python":  # a function's options may be secret
            source |= {"options": dict.fromkeys(source["options"]), "inputs": [*map(published_path, source["inputs"])]}
    for name, feature in spec.features.items():
        published["features"][name] |= {option: published_path(path) for option, path in feature.files().items()}
    return published


def _manifest(
    results: Results, described: dict[str, Description], splits: dict[str, Split], rejects: dict[str, Any]
) -> Manifest:
    plan, now = results.plan, datetime.now(UTC)
    sources = results.by_source()
    return Manifest(
        name=plan.spec.name,
        version=f"{now:%Y%m%dT%H%M%SZ}-{plan.build_key[:8]}",
        build_key=plan.build_key,
        label=plan.spec.label,
        features={name: description.to_json() for name, description in described.items()},
        splits=splits,
        statistics=results.statistics,
        rows={what: sum(source[what] for source in sources) for what in COUNTED},
        sources=tuple(sources),
        rejects=rejects,
        duplicates=results.duplicates,
        spec=_published_spec(plan.spec),
        provenance={
            "built_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "packages": package_versions(),
            "source_key": plan.source_key,
            KEPT_NAMES: {name: len(words) for name, words in plan.kept.items()},
            "inputs_sha256": plan.inputs_sha256,
            "shard_inputs_sha256": [results.shards[group]["inputs_sha256"] for group in sorted(results.shards)],
            **({"user_code": plan.user_code.to_json()} if plan.user_code else {}),
        },
    )
