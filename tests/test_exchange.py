"""The card and the Croissant description of a version: for the hub, for catalogues, and safe to show."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.dataset.catalogues import croissant
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split, read_manifest
from recordmill.pipeline.facts.sidecars import card, tasks
from tests.published import CLASSES, FEATURES, write_version

ABOUT = {
    "title": "Small <b>birds</b> | [x](y)",
    "description": "Two kinds.",
    "license": "CC-BY-4.0",
    "citation": "@misc{small}",
    "homepage": "https://example.org/small",
    "creators": ["Ana\u202e Diaz"],
    "languages": ["en"],
    "tags": ["yes", "wild life"],
}


def header_of(text: bytes) -> dict[str, Any]:
    return dict(yaml.safe_load(text.decode().split("---\n")[1]))


@pytest.fixture
def version(tmp_path: Path) -> tuple[Path, Manifest]:
    folder = write_version(tmp_path)
    return folder, replace(read_manifest(folder), spec={"about": ABOUT})


def test_the_header_of_a_card_is_what_the_hub_filters_by(version: tuple[Path, Manifest]) -> None:
    folder, manifest = version
    header = header_of(card(folder, manifest))
    train = manifest.splits["train"]
    assert header["license"] == "cc-by-4.0"
    assert (header["language"], header["size_categories"]) == (["en"], ["n<1K"])
    assert header["tags"] == ["recordmill", "tfrecord", "yes", "wild life"]
    assert header["dataset_info"]["splits"][0] == {
        "name": "train", "num_bytes": train.bytes, "num_examples": train.records,
    }  # fmt: skip
    assert [feature["name"] for feature in header["dataset_info"]["features"]][0] == "key"


def test_a_category_with_several_ids_of_unknown_names_has_no_class_label(tmp_path: Path) -> None:
    label = {**FEATURES["label"], "oov_buckets": 2, "unknown_id": 1, "first_id": 3, "vocabulary_size": 3 + len(CLASSES)}
    folder, dtypes = write_version(tmp_path), []
    for changes in ({}, {"features": {**FEATURES, "label": label}}):
        header = header_of(card(folder, replace(read_manifest(folder), **changes)))
        features = {feature["name"]: feature.get("dtype") for feature in header["dataset_info"]["features"]}
        dtypes.append(features["label"])
    assert dtypes == [{"class_label": {"names": {str(id_): name for id_, name in enumerate(CLASSES)}}}, "int64"]


def test_a_license_is_unknown_or_one_of_its_own(version: tuple[Path, Manifest]) -> None:
    folder, manifest = version
    text = card(folder, replace(manifest, spec={}))
    assert header_of(text)["license"] == "unknown"
    assert b"\nLicense: unknown.\n" in text
    url = "https://example.org/terms"
    header = header_of(card(folder, replace(manifest, spec={"about": {"license": url}})))
    assert (header["license"], header["license_name"]) == ("other", url)


def test_a_line_that_a_person_wrote_is_shown_as_it_is(version: tuple[Path, Manifest]) -> None:
    body = card(*version).decode().split("---\n", 2)[2]
    assert "# Small &lt;b&gt;birds&lt;/b&gt; \\| \\[x](y)\n" in body
    assert "Made by Ana\\u202e Diaz." in body


@pytest.mark.parametrize(
    ("features", "label", "task"),
    [
        ({"image": "image", "kind": "category"}, "kind", "image-classification"),
        ({"image": "image", "tags": "categories"}, "tags", "image-classification"),
        ({"image": "image", "boxes": "boxes", "names": "categories"}, None, "object-detection"),
        ({"image": "image", "boxes": "boxes", "names": "categories"}, "names", "object-detection"),
        ({"image": "image", "boxes": "boxes", "kind": "category"}, "kind", "image-classification"),
        ({"image": "image", "caption": "text"}, "caption", "image-to-text"),
        ({"text": "text", "kind": "category"}, "kind", "text-classification"),
        ({"text": "text"}, None, "text-generation"),
        ({"age": "number", "kind": "category"}, "kind", "tabular-classification"),
        ({"age": "number", "price": "number"}, "price", "tabular-regression"),
        ({"image": "image"}, None, None),
    ],
)
def test_the_task_follows_from_the_kinds(features: dict[str, str], label: str | None, task: str | None) -> None:
    manifest = Manifest("x", "", "", label, {name: {"kind": kind} for name, kind in features.items()}, {})
    assert list(tasks(manifest)) == ([task] if task else [])


SIZES = {999: "n<1K", 1000: "1K<n<10K", 10**10 - 1: "1B<n<10B"}
SIZES |= {10**10: "10B<n<100B", 10**11: "100B<n<1T", 10**12: "n>1T"}


@pytest.mark.parametrize(("records", "size"), SIZES.items())
def test_the_size_is_one_of_the_hubs(version: tuple[Path, Manifest], records: int, size: str) -> None:
    folder, manifest = version
    own = replace(manifest.splits["train"].shards[0], records=records)
    header = header_of(card(folder, replace(manifest, splits={"train": Split((own,))})))
    assert header["size_categories"] == [size]


@pytest.mark.parametrize("text", ["no", "~", "1.0", "a: b", "- a", "'", '"', "#", "é\n\u2028🦆", "\x1b[2J", "", "@x"])
def test_any_string_is_the_same_after_yaml(version: tuple[Path, Manifest], text: str) -> None:
    folder, manifest = version
    header = card(folder, replace(manifest, spec={"about": {"tags": [text]}})).decode().split("---\n", 2)[1]
    assert yaml.safe_load(header)["tags"][2:] == [text]
    assert not {"\x1b", "\u2028"} & {*header}


def test_croissant_lists_each_shard_with_its_digest(version: tuple[Path, Manifest]) -> None:
    folder, manifest = version
    described = json.loads(croissant(manifest))
    files = {file["@id"]: file["sha256"] for file in described["distribution"] if "sha256" in file}
    assert files == {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards}
    assert described["license"] == "CC-BY-4.0"
    assert described["creator"] == [{"@type": "Organization", "name": "Ana\u202e Diaz"}]
    (splits, records) = described["recordSet"]
    assert splits["data"][0] == {"splits/name": "train", "splits/records": manifest.splits["train"].records}
    assert [field["name"] for field in records["field"]][:2] == ["split", "key"]


def test_a_shard_of_another_version_is_named_by_its_path() -> None:
    own, other = Shard("d-train.tfrecord-0", 1, 1, "00", "i"), Shard("d-test.tfrecord-0", 1, 1, "11", "j", version="v1")
    manifest = Manifest("d", "", "", None, {}, {"train": Split((own,)), "test": Split((other,))})
    described = json.loads(croissant(manifest))["distribution"]
    assert [file["@id"] for file in described] == ["d-train.tfrecord-0", "../v1/d-test.tfrecord-0", "shards"]
    assert described[-1]["includes"] == ["d-*.tfrecord-*", "../v1/d-test.tfrecord-0"]
