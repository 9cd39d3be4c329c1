"""`dataset.json` and `LATEST`: what is written, what is read back, what is refused."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill import open_dataset
from recordmill.pipeline.dataset.file_names import shard_file
from recordmill.pipeline.dataset.manifest import (
    MOST_MANIFEST_BYTES,
    DatasetError,
    Latest,
    Manifest,
    Shard,
    Split,
    read_latest,
    read_manifest,
    version_folder,
)
from recordmill.pipeline.dataset.paths import NAME, is_folder_name, is_name
from tests import published
from tests.messages import raises

SHARD = Shard("d-train.tfrecord-00000-of-00001", 120, 3, "ab12" * 16, "d-train.index-00000-of-00001")
MANIFEST = Manifest(
    name="d",
    version="v1",
    build_key="00ff" * 16,
    label="kind",
    features={"zebra": {"kind": "number"}, "kind": {"kind": "category", "vocabulary": "k.txt", "vocabulary_size": 2}},
    splits={"train": Split((SHARD,), (1, 2)), "empty": Split(())},
)
OBJECT = {
    "format": 1, "name": "d", "version": "v1", "build_key": "00ff" * 16, "label": "kind",
    "features": {
        "zebra": {"kind": "number"}, "kind": {"kind": "category", "vocabulary": "k.txt", "vocabulary_size": 2}},
    "splits": {
        "train": {"records": 3, "bytes": 120, "shards": [
            {"file": "d-train.tfrecord-00000-of-00001", "bytes": 120, "records": 3, "sha256": "ab12" * 16,
             "index": "d-train.index-00000-of-00001"}], "label_counts": [1, 2]},
        "empty": {"records": 0, "bytes": 0, "shards": [], "label_counts": None}},
    "statistics": {}, "rows": {}, "sources": [], "rejects": {}, "spec": {}, "provenance": {}, "sequence": 0,
    "files": {}, "duplicates": {},
}  # fmt: skip
TEXT = json.dumps(OBJECT, indent=2) + "\n"

names = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\:~"), min_size=1).filter(
    lambda text: text not in (".", "..")
)
counts = st.integers(0, 2**40)
plain = st.from_regex(NAME, fullmatch=True).filter(is_name)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
folders = names.filter(is_folder_name)
shards = st.builds(
    lambda records, more, **rest: Shard(records=records, bytes=16 * records + more, **rest),
    st.integers(0, 1 << 28), st.integers(0, 1 << 50), file=names, sha256=digests, index=names,
)  # fmt: skip
several = st.lists(shards, unique_by=(lambda shard: shard.file.casefold(),)).map(
    lambda each: tuple(replace(shard, file=f"{shard.file[:80]}.a", index=f"{shard.file[:80]}.b") for shard in each)
)
splits = st.builds(Split, several, st.none() | st.lists(st.integers(0, 2**63 - 1)).map(tuple))
objects = st.dictionaries(
    st.text().map("more ".__add__), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
)
manifests = st.builds(
    Manifest,
    name=plain,
    version=folders,
    build_key=digests,
    label=st.none(),
    features=st.dictionaries(plain, st.fixed_dictionaries({"kind": names})),
    splits=st.dictionaries(plain, splits, max_size=1),
    statistics=st.dictionaries(names, objects),
    rows=objects,
    sources=st.lists(objects).map(tuple),
    rejects=objects,
    spec=objects,
    provenance=objects,
)


def test_the_text_is_what_format_1_is() -> None:
    assert MANIFEST.to_text() == TEXT
    deep = replace(MANIFEST, features={**MANIFEST.features, "depth": {"kind": "image", "pixel": "uint16"}})
    assert json.loads(deep.to_text())["format"] == 2, "readers of format 1 refuse deep images"


@given(manifests)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert Manifest.from_json(json.loads(manifest.to_text())) == manifest


@pytest.mark.nightly
def test_a_manifest_of_100_000_shards_opens(tmp_path: Path) -> None:
    count = 100_000
    files, indexes = ([shard_file("photos", "train", of, shard, count) for shard in range(count)] for of in ("a", "b"))
    both = enumerate(zip(files, indexes, strict=True))
    shards = tuple(Shard(file, 1 << 27, 1000, f"{row:064x}", index) for row, (file, index) in both)
    manifest = Manifest("photos", "v", "00ff" * 16, None, {}, {"train": Split(shards)})
    (tmp_path / "dataset.json").write_text(manifest.to_text())
    assert (tmp_path / "dataset.json").stat().st_size < MOST_MANIFEST_BYTES / 2
    dataset = open_dataset(tmp_path)
    assert (dataset.splits, dataset.manifest.splits["train"].shards) == ({"train": 100_000_000}, shards)


def test_keys_of_later_versions_are_left_out() -> None:
    read = Manifest.from_json({**json.loads(TEXT), "augmented": True})
    assert (read, list(read.features)) == (MANIFEST, ["zebra", "kind"])


def test_half_a_surrogate_pair_can_be_written_and_what_json_cannot_hold_is_refused() -> None:
    text = Manifest("d", "v1", "00", None, {}, {}, spec={"path": "bad\udcff.png"}).to_text()
    assert json.loads(text.encode("utf-8"))["spec"] == {"path": "bad\udcff.png"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        Manifest("d", "v1", "00", None, {}, {}, statistics={"x": {"mean": float("nan")}}).to_text()


def change(**changes: Any) -> Callable[[Any], Any]:
    return lambda manifest: {**manifest, **changes}


@pytest.mark.parametrize(
    ("broken", "facts"),
    [
        (change(format=3), ("format 3", "knows 2", "upgrade Recordmill")),
        (change(format="1"), ("format", "'1'")),
        (change(name=None), ("name", "None")),
        (change(splits=[]), ("splits", "a list")),
        (change(splits={"train": 3}), ("splits.train", "3")),
        (change(splits={"train": {"shards": [], "records": 2}}), ("'train'", "0 records", "2")),
        (change(label="none"), ("label 'none'", "zebra, kind")),
        (change(features={"kind": {}}), ("features.kind", "`kind`")),
        (lambda manifest: [manifest], ("a list", "restore it")),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_path(
    broken: Callable[[Any], Any], facts: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "dataset.json").write_text(json.dumps(broken(json.loads(TEXT))))
    with raises(DatasetError, *facts) as raised:
        read_manifest(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'dataset.json'} ")
    assert "\n" not in str(raised.value)


TIME, DIGEST = "2026-11-20T12:00:00Z", "ab12" * 16
SPAN = {"key": DIGEST, "rows": {}, "files": 0, "bytes": 0, "inputs_sha256": DIGEST, "members": {"d1": DIGEST}}
RECORDS = [[{"split": "train", "key": "row"}] * 2]
FORMS = json.loads(TEXT) | {
    "files": {"a.txt": {"bytes": 1, "sha256": DIGEST}},
    "rejects": {"files": [{"file": "r.jsonl", "sha256": DIGEST}]},
    "spans": {"d1": SPAN},
    "provenance": {
        "built_at": TIME,
        "source_key": DIGEST,
        "inputs_sha256": DIGEST,
        "shard_inputs_sha256": [DIGEST],
        "analysis": {"version": "v0", "graph_sha256": DIGEST, "label_counts": []},
        "forgotten": {"keys_sha256": DIGEST, "source_key": DIGEST, "learned_of": "v0"},
        "user_code": {"sha256": DIGEST, "files": {"code.py": DIGEST}},
        "feature_files": {"text.model": DIGEST},
    },
    "duplicates": {"exact": {"groups": 1, "rows": 1, "within": {}, "across": {}, "examples": RECORDS}},
    "drift": {"against": "v0", "features": {}},
    "gate": {"live": "v0"},
}
FREE = {"label", "kind"}


def texts(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the way to each text of a document that has a form."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from texts(inner, (*way, key))
        elif isinstance(inner, str) and key not in FREE and inner != "row":
            yield (*way, key)


NOWHERE = ["../x", "/x", "a\0b", "", "x" * 5000, "https://h/x"]


@pytest.mark.parametrize("hostile", [*NOWHERE, "AB12" * 16, "ab12" * 15, "2026-02-30T00:00:00Z"])
def test_each_text_of_a_manifest_has_a_form(hostile: str) -> None:
    assert Manifest.from_json(FORMS).gate == FORMS["gate"]
    for way in texts(FORMS):
        changed = parent = json.loads(json.dumps(FORMS))
        for key in way[:-1]:
            parent = parent[key]
        is_digest, is_time = parent[way[-1]] == DIGEST, parent[way[-1]] == TIME
        parent[way[-1]] = hostile
        if hostile in NOWHERE or is_digest or is_time:
            with pytest.raises(DatasetError, match=f"^{way[0]}"):
                Manifest.from_json(changed)


def test_each_name_of_a_manifest_has_a_form() -> None:
    for way in (("features", "zebra"), ("splits", "empty"), ("spans", "d1"), ("files", "a.txt")):
        changed = json.loads(json.dumps(FORMS))
        changed[way[0]]["../x"] = changed[way[0]].pop(way[1])
        with raises(DatasetError, f"{way[0]}: ", "'../x'"):
            Manifest.from_json(changed)


@pytest.mark.parametrize("path", ["dataset.json", "a.txt", "d-train.tfrecord-00000-of-00001", "D-Train.index-0"])
def test_a_file_of_a_shard_is_no_other_file(path: str) -> None:
    changes = {"file": path} if path == "a.txt" else {"file": "other", "index": path}
    shard, other = replace(SHARD, index="d-train.index-0"), replace(SHARD, **changes)
    files = {"a.txt": {"bytes": 1, "sha256": DIGEST}}
    manifest = json.loads(replace(MANIFEST, splits={"train": Split((shard, other))}, files=files).to_text())
    with raises(DatasetError, repr(path), "another file"):
        Manifest.from_json(manifest)


@pytest.mark.parametrize("field", ["version", "pinned", "removing", "same", "retired"])
def test_each_text_of_the_pointer_has_a_form(field: str) -> None:
    value: Any = {"version": "../x", "retired": {"../x": TIME}}.get(field, ["../x"])
    with raises(DatasetError, f"{field}: '../x'"):
        Latest.from_json({"version": "v1", "sequence": 1, field: value})
    with raises(DatasetError, "retired.v0: 'soon'"):
        Latest.from_json({"version": "v1", "sequence": 1, "retired": {"v0": "soon"}})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "cut", "no UTF-8", "deep"])
def test_what_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    with raises(DatasetError, tmp_path, "dataset.json"):  # a folder without a manifest
        read_manifest(tmp_path)
    (tmp_path / "dataset.json").write_bytes(content)
    with raises(DatasetError, tmp_path / "dataset.json", "JSON" if content[:2] != b"[[" else "nested", "build again"):
        read_manifest(tmp_path)


def test_a_pointer_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    assert version_folder("out", "v1") == Path("out/versions/v1")
    with raises(DatasetError, f"folder '{tmp_path}/nowhere'", "`--output`"):
        read_latest(tmp_path / "nowhere")
    with raises(DatasetError, tmp_path, "`recordmill build dataset.yaml --output "):
        read_latest(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b")
    with raises(DatasetError, tmp_path, "no dataset") as error:
        read_latest(tmp_path)
    assert "recordmill build" not in str(error.value)
    (tmp_path / "history.jsonl").write_text("")  # a first build failed
    with raises(DatasetError, "`recordmill build dataset.yaml --output "):
        read_latest(tmp_path)
    for content, fact in (("", "JSON"), ('{"version": 3}', "(version ")):
        (tmp_path / "LATEST").write_text(content)
        with raises(DatasetError, tmp_path, "/LATEST ", fact):
            read_latest(tmp_path)


def test_the_pointer_tells_only_what_there_is() -> None:
    found = {"version": "v2", "sequence": 3, "retired": {"v1": TIME}, "pinned": ["v1"], "removing": ["v0"]}
    some = {"version": "v1", "sequence": 1}
    for latest, told in ((Latest("v1", 1), some), (Latest("v2", 3, {"v1": TIME}, ("v1",), ("v0",)), found)):
        assert json.loads(latest.to_text()) == told
        assert Latest.from_json(told) == latest


@pytest.mark.parametrize(
    "stated",
    [
        {"max_length": 1 << 40},
        {"packed": 10**10},
        {"max_texts": 1 << 20, "max_length": 1 << 20},
        {"max_length": 1 << 16, "shape": [512, 512, 3], "dtype": "uint8"},
        {"shape": [1 << 62] * 1000, "max_length": None},
    ],
)
def test_a_row_is_no_larger_than_a_row_may_be(stated: dict[str, Any]) -> None:
    changed = json.loads(MANIFEST.to_text())
    changed["features"] = {"x": {"kind": "raw", **stated}}
    with raises(DatasetError, "features.x", "bytes", "limit of 17,179,869,184"):
        Manifest.from_json(changed | {"label": None, "packs": []})


def test_a_shard_has_no_more_records_than_its_bytes_hold() -> None:
    split = Split((replace(SHARD, bytes=160, records=11, frames=11, root="."),))
    with raises(DatasetError, SHARD.file, "11 records in 160 bytes"):
        Manifest.from_json(json.loads(replace(MANIFEST, splits={"train": split}).to_text()))


def test_a_digest_is_of_what_readers_get_alone(tmp_path: Path) -> None:
    manifest = read_manifest(published.write_version(tmp_path))
    others = {"version": "v9", "sequence": 9, "provenance": {"built_at": "later"}, "build_key": "0" * 64, "spec": {}}
    assert replace(manifest, **others).digest == manifest.digest
    train = manifest.splits["train"]
    shards = {"splits": {**manifest.splits, "train": replace(train, shards=train.shards[::-1])}}
    words = {"files": {**manifest.files, "transform_fn/assets/text.vocabulary.txt": {"bytes": 1, "sha256": "0" * 64}}}
    label: dict[str, Any] = {"label": None}
    changed = [replace(manifest, **each).digest for each in (shards, words, label)]
    assert len({manifest.digest, *changed}) == 4
