"""Puts a version together in the build's folder, describes it, and makes it visible and live."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import storage
from pipeline.errors import UserError
from pipeline.kinds.base import Description, Feature
from pipeline.manifest import Manifest, Shard, Split
from pipeline.names import index_name, shard_name
from pipeline.plan import package_versions
from pipeline.results import Results, published_path
from pipeline.spec import PATHS, Spec
from pipeline.tfds_files import write_tfds_files
from pipeline.tfrecord import ShardWriter
from pipeline.tokenizer_models import tokenizer
from pipeline.work import CLASSES, Work

REJECTS_FILE = "rejects/rejected-00000-of-00001.jsonl"


def publish(
    results: Results, output: str, features: Mapping[str, tuple[Feature, Description]], serving: str
) -> tuple[str, Manifest]:
    """Publishes a finished job.

    Args:
        results: what it reported.
        output: the dataset's folder.
        features: what is stored, with the descriptions for the manifest.
        serving: the folder of the exported serving model.

    Returns:
        The version's folder and its manifest.
    """
    assembled = Path(results.work.folder, "version")
    assembled.mkdir()
    described = {name: description for name, (_, description) in features.items()}
    vocabularies = _vocabularies(results, described)
    splits = _move_shards(results, assembled, len(vocabularies.get(results.work.rows.label or "", [])))
    for name in ("transform_fn", "transformed_metadata"):
        os.rename(os.path.join(results.export, name), assembled / name)
    os.rename(serving, assembled / "serving")
    _write_tokenizers(results.work, assembled)
    rejects = _write_rejects(results, assembled)
    spec = results.plan.spec
    write_tfds_files(str(assembled), spec.name, features, splits, vocabularies)
    manifest = _manifest(results, described, splits, rejects)
    return storage.publish(output, str(assembled), manifest), manifest


def _vocabularies(results: Results, described: dict[str, Description]) -> dict[str, list[str]]:
    return {
        name: Path(results.export, description["vocabulary"]).read_text(encoding="utf-8").split("\n")[:-1]
        for name, description in described.items()
        if description["kind"] in CLASSES and "vocabulary" in description
    }


def _write_tokenizers(work: Work, assembled: Path) -> None:
    for owner in sorted(set(work.models.values())):
        for file, data in tokenizer(work, owner).files(owner).items():
            (assembled / file).parent.mkdir(exist_ok=True)
            (assembled / file).write_bytes(data)


def _move_shards(results: Results, assembled: Path, classes: int) -> dict[str, Split]:
    layout = results.work.layout
    splits = {}
    for place, split in enumerate(layout.splits):
        labels: Counter[int] = Counter()
        shards, documents = [], 0
        for shard in range(layout.shards[split]):
            report = results.shards.get(int(layout.first_group[place]) + shard)
            shards.append(_move_shard(results.work, assembled, split, shard, report))
            documents += (report or {}).get("packed", {}).get("documents", 0)
            labels.update({int(label): count for label, count in (report or {}).get("label_counts", {}).items()})
        if classes and labels and not labels.keys() <= set(range(classes)):
            raise UserError(
                f"labels are ids from 0 to {classes - 1}, `preprocessing` made {min(labels)} to {max(labels)}"
            )
        counts = tuple(labels[label] for label in range(classes)) if classes else None
        splits[split] = Split(tuple(shards), counts, documents if results.work.packed() else None)
    return splits


def _move_shard(work: Work, assembled: Path, split: str, shard: int, report: dict[str, Any] | None) -> Shard:
    count = work.layout.shards[split]
    file, index = shard_name(work.name, split, shard, count), index_name(work.name, split, shard, count)
    if report is None:
        with ShardWriter(str(assembled / file), str(assembled / index)) as writer:
            writer.write([])
        report = writer.report()
    else:
        for name in (index, file):
            os.rename(os.path.join(work.path("data"), name), assembled / name)
    return Shard(file, report["bytes"], report["records"], report["sha256"], index)


def _write_rejects(results: Results, assembled: Path) -> dict[str, Any]:
    files = []
    if results.rejects:
        path = assembled / REJECTS_FILE
        path.parent.mkdir()
        lines = "".join(json.dumps(reject, ensure_ascii=False) + "\n" for reject in results.published_rejects())
        data = lines.encode("utf-8", "backslashreplace")
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        files.append({"file": REJECTS_FILE, "bytes": len(data), "records": len(results.rejects), "sha256": digest})
    return {"by_reason": results.reasons, "files": files}


def _published_spec(spec: Spec) -> dict[str, Any]:
    """The spec without the folders of the machine that built it."""
    published = spec.model_dump(mode="json")
    for source in published["source"]:
        source |= {name: published_path(source[name]) for name in PATHS if source.get(name)}
        if source["format"] == "python":  # what a function is called with may be secret
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
        features=described,
        splits=splits,
        statistics=results.statistics,
        rows={what: sum(source[what] for source in sources) for what in ("read", "written", "rejected")},
        sources=tuple(sources),
        rejects=rejects,
        spec=_published_spec(plan.spec),
        provenance={
            "built_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "packages": package_versions(),
            "inputs_sha256": plan.inputs_sha256,
            "shard_inputs_sha256": [results.shards[group]["inputs_sha256"] for group in sorted(results.shards)],
        },
    )
