"""Files for people and other tools, written just before the manifest.

Recordmill's readers ignore them. The manifest lists them with digests, like any other file, for `verify`. `forget`
rewrites them, as they may show forgotten rows. `README.md`, the dataset card, starts with a header for the Hugging Face
hub, JSON as YAML: task, size, licence, languages, features and splits.
"""

import hashlib
import html
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.catalogues import CROISSANT, DATASET_INFO, croissant, dataset_info
from recordmill.pipeline.dataset.manifest import Json, Manifest, version_folder
from recordmill.pipeline.dataset.paths import Location, Remote
from recordmill.pipeline.dataset.version import DatasetVersion, read_vocabulary
from recordmill.pipeline.facts.version import VersionFacts, learned_from_rejects, loss_warnings, shown_split
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.base.stored import part_name

CARD = "README.md"
MOST_WORD_BYTES = 64 << 20  # larger vocabularies are left to `recordmill report`, to spare the driver's memory
Sidecar = Callable[[Location, Manifest], bytes]
"""Makes a version's file from its folder and manifest alone, without `version`, `sequence` and `gate`."""


def _report(folder: Location, manifest: Manifest) -> bytes:
    """Makes the page for people. Never raises: a page must not end a build of hours."""
    try:
        from recordmill.pipeline.facts.page import report_of  # loads Jinja and Arrow

        return report_of(DatasetVersion(folder, replace(manifest, gate={})), most_word_bytes=MOST_WORD_BYTES)
    except Exception as error:
        advice = "`recordmill report` makes it, where the extra `report` is installed"
        return f"<!doctype html><title>No report</title><p>No report: {type(error).__name__}. {advice}.</p>\n".encode()


SIDECARS: Mapping[str, Sidecar] = {  # files by name, in the order of writing
    DATASET_INFO: lambda _, manifest: dataset_info(manifest),
    "report.html": _report,
    CROISSANT: lambda _, manifest: croissant(manifest),
    CARD: lambda folder, manifest: card(folder, manifest),
}


def with_sidecars(manifest: Manifest, assembled: Path, output: str) -> Manifest:
    """Writes the sidecars into `assembled`, and adds them to the manifest. Raises: DatasetError, OSError."""
    if manifest.adopted:  # `recordmill report` makes them
        return manifest
    stored = version_folder(open_location(output), manifest.version)
    folder = assembled if isinstance(stored, Path) else _Uploading(assembled, stored)
    entries = {}
    for name, sidecar in SIDECARS.items():
        data = sidecar(folder, manifest)
        (assembled / name).write_bytes(data)
        entries[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return replace(manifest, files=dict(sorted({**manifest.files, **entries}.items())))


@dataclass(frozen=True)
class _Uploading:
    """A version's folder or file in a bucket, as `paths.Remote`; some files are still local."""

    local: Path
    stored: Remote

    def __str__(self) -> str:
        return str(self.stored)

    def __truediv__(self, inner: str) -> "_Uploading":
        return _Uploading(self.local / inner, self.stored / inner)

    def is_file(self) -> bool:
        return self.local.is_file() or self.stored.is_file()

    def is_dir(self) -> bool:
        return self.local.is_dir() or self.stored.is_dir()

    def read_bytes(self, most: int | None = None) -> bytes:
        if self.local.is_file():
            with open(self.local, "rb") as file:
                return file.read(-1 if most is None else most)
        return self.stored.read_bytes(most)


MOST_NAMES = 1000  # classes named on a card; beyond, it gives the number
_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B 1B<n<10B 10B<n<100B 100B<n<1T".split()
_DTYPES = {"bytes": "binary", "int64": "int64", "float32": "float32"}
_TASKS: tuple[tuple[str, set[str], set[str] | None], ...] = (
    ("keypoint-detection", {"keypoints"}, None),
    ("object-detection", {"boxes"}, None),
    ("object-detection", {"boxes"}, {"categories"}),  # the classes of the boxes
    ("image-classification", {"image"}, {"category", "categories"}),
    ("image-classification", {"image_sequence"}, {"category", "categories"}),
    ("image-to-text", {"image", "text"}, None),
    ("text-classification", {"text"}, {"category", "categories"}),
    ("text-classification", {"texts"}, {"category", "categories"}),
    ("text-classification", {"pair"}, {"category", "categories"}),
    ("token-classification", {"token_labels"}, None),
    ("text-generation", {"text"}, None),
    ("text-generation", {"chat"}, None),
    ("tabular-classification", set(), {"category", "categories"}),
    ("tabular-regression", set(), {"number", "numbers"}),
)
"""The hub's tasks, each with the required kinds of features and of the label; None: any but a category."""


def card(folder: Location, manifest: Manifest) -> bytes:
    """Makes the card. Raises: DatasetError: a file of class names is missing or damaged."""
    facts, about = VersionFacts(folder, manifest), manifest.spec.get("about") or {}
    size = next((each for power, each in enumerate(_SIZES, 3) if manifest.records < 10**power), "n>1T")
    sizes = ((name, split.bytes, split.records) for name, split in manifest.splits.items())
    splits = [{"name": name, "num_bytes": bytes_, "num_examples": records} for name, bytes_, records in sizes]
    features = [{"name": "key", "dtype": "string"}, *_features(facts)]
    license_ = about.get("license") or "unknown"  # the hub spells identifiers in lowercase, and names others
    is_other = "/" in license_ or " " in license_
    licenses = {"license": "other", "license_name": license_} if is_other else {"license": license_.lower()}
    header = {
        "pretty_name": about.get("title") or manifest.name,
        **licenses,
        "language": list(about.get("languages") or ()),
        "task_categories": list(tasks(manifest)),
        "size_categories": [size],
        "tags": ["recordmill", "tfrecord", *(about.get("tags") or ())],
        "dataset_info": {"features": features, "splits": splits, "dataset_size": manifest.bytes},
    }
    filled, body = {name: value for name, value in header.items() if value}, "\n".join(_body(facts, about))
    # JSON is YAML, and so are the escapes of `printable`.
    return f"---\n{printable(json.dumps(filled, indent=1, ensure_ascii=False))}\n---\n\n{body}\n".encode()


def tasks(manifest: Manifest) -> Iterator[str]:
    """Yields the first task that fits the features' kinds, if any."""
    kinds = {name: feature["kind"] for name, feature in manifest.features.items()}
    label = kinds.get(manifest.label or "")
    inputs = {kind for name, kind in kinds.items() if name != manifest.label or kind not in {"category", "categories"}}
    for task, needed, labels in _TASKS:
        if needed <= inputs and (label in labels if labels else label not in {"category", "categories"}):
            yield task
            return


def _features(facts: VersionFacts) -> Iterator[Json]:
    """Yields a record's stored parts in the hub's types."""
    for name, feature in facts.features.items():
        for part, stored in feature.parts.items():
            dtype: Any = _DTYPES[stored.dtype]
            described = None if part else feature.description
            if described and described.is_image_file:
                dtype = "image"
            ids = described.ids if described else None
            if described and ids and ids.file and described.class_count and ids.size <= MOST_NAMES:
                names = read_vocabulary(facts.folder, described, name)
                if len(set(names)) == len(names):  # else several ids are unknown names; the hub wants each name once
                    dtype = {"class_label": {"names": {str(id_): name for id_, name in enumerate(names)}}}
            many = {"sequence": dtype} if stored.shape != () else {"dtype": dtype}
            yield {"name": part_name(name, part), **many}


def _body(facts: VersionFacts, about: Json) -> Iterator[str]:
    manifest = facts.manifest
    yield f"# {_text(about.get('title') or manifest.name)}\n"
    if about.get("description"):
        yield f"{about['description'].strip()}\n"
    if about.get("homepage"):
        yield f"Homepage: <{about['homepage']}>\n"
    if about.get("creators"):
        yield f"Made by {', '.join(map(_text, about['creators']))}.\n"
    yield f"License: {_text(about.get('license') or 'unknown')}.\n"
    yield "## Splits\n\n| split | records | bytes |\n|---|---:|---:|"
    for name, split in manifest.splits.items():
        yield f"| {name} | {split.records:,} | {split.bytes:,} |"
    yield "\n## Features\n\n| feature | kind | stored as |\n|---|---|---|"
    for name, feature in facts.features.items():
        parts = [f"`{part_name(name, part)}` {stored.dtype}" for part, stored in feature.parts.items()]
        yield f"| {name}{' (label)' if feature.is_label else ''} | {feature.kind} | {', '.join(parts)} |"
    fates = (f"{count:,} {what}" for what, count in manifest.rows.items() if what != "read" and count)
    yield f"\nOf {manifest.rows.get('read', 0):,} rows read: {', '.join(fates)}.\n" if manifest.rows else ""
    lines = [*(line for _, line in loss_warnings(manifest)), *learned_from_rejects(manifest)]
    yield from (f"- {_text(line)}\n" for line in lines)
    yield _USE.format(split=shown_split(manifest) or next(iter(manifest.splits)))
    if about.get("citation"):
        yield f"\n## Citation\n\n```bibtex\n{about['citation'].strip().replace('```', '')}\n```"


def _text(text: str) -> str:
    """Escapes a line of text for Markdown and HTML."""
    return html.escape(printable(text), quote=False).replace("|", "\\|").replace("`", "\\`").replace("[", "\\[")


_USE = """## Use

The shards hold `tf.train.Example` records; `dataset.json` describes them, and `croissant.json` for catalogues.
`report.html` shows them in a browser.

```python
from recordmill import open_dataset

dataset = open_dataset("PATH/OF/THIS/FOLDER")
for batch in dataset.training_input("{split}", batch_size=32, seed=1).as_numpy():
    ...
```

TensorFlow Datasets opens the folder, too: `tfds.builder_from_directory("PATH/OF/THIS/FOLDER")`."""
