"""Objects of a store as inputs: listed once, with tags in place of times, and read by ranges, by its own client."""

import uuid
from collections.abc import Iterator

import boto3
import pytest

from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.sources.files import FileInfo, LocalFiles, StoreFiles
from recordmill.pipeline.sources.paths import inside
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.stores import open_store
from recordmill.pipeline.versions.stores.base import OutputError, TooLargeError
from recordmill.pipeline.versions.stores.bucket import Listed
from recordmill.pipeline.versions.stores.parts import Part
from tests import emulators
from tests.constants import constants
from tests.messages import assert_names, raises

DATA = bytes(range(256)) * 40


class FakeBucket:
    url = "s3://b"

    def __init__(self) -> None:
        self.asked = list[str]()
        self.objects = {name: Listed(3, f"tag of {name}") for name in ("in/", "in/b.csv", "in/a.csv", "in/x/c.csv")}

    def listed(self, prefix: str) -> dict[str, Listed]:
        self.asked.append(prefix)
        if prefix.startswith("secret"):
            raise OutputError("no credentials")
        return {name: entry for name, entry in self.objects.items() if name.startswith(prefix)}

    def range(self, name: str, start: int = 0, end: int | None = None, most: int | None = None) -> Part:
        self.asked.append(f"{name} {start}-{end}")
        if most is not None and len(DATA) > most:
            raise TooLargeError(len(DATA))
        return Part(DATA[start:end], len(DATA))

    def size(self, name: str) -> int:
        return self.range(name, 0, 1).size


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    bucket = FakeBucket()
    with constants(open_store, _shared_bucket={"s3://b": bucket}.__getitem__):
        yield bucket


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("s3://b/in/*.csv", ["in/a.csv", "in/b.csv"]),
        ("s3://b/in/**", ["in/a.csv", "in/b.csv", "in/x/c.csv"]),
        ("s3://b/in/a.csv", ["in/a.csv"]),
        ("s3://b/in/a", []),
    ],
)
def test_a_glob_means_what_it_means_elsewhere(bucket: FakeBucket, pattern: str, names: list[str]) -> None:
    found = list(StoreFiles(LocalFiles()).match(pattern))
    assert found == [FileInfo(f"s3://b/{name}", 3, 0.0, f"tag of {name}") for name in names]


def test_a_prefix_is_listed_once_and_again_when_changes_are_looked_for(bucket: FakeBucket) -> None:
    files = Listings(StoreFiles(LocalFiles()))
    assert files.is_folder("s3://b/in")
    assert not StoreFiles(LocalFiles()).is_folder("s3://b/in/a.csv")
    bucket.asked.clear()
    assert [len(files.match(f"s3://b/in/{pattern}")) for pattern in ("*.csv", "*.tsv")] == [2, 0]
    assert bucket.asked == []
    bucket.objects["in/a.csv"] = Listed(3, "another")
    assert list(files.changes()) == [("s3://b/in/a.csv", "is another")]
    with raises(OutputError, "no credentials"):
        files.match("s3://b/secret/*")


ODD = dict.fromkeys(["in//b.csv", "in/x//c.csv", "in/./b.csv", "in/../b.csv", "in/x/..", "inner//b.csv"], 3)
ODD |= {"in/b.csv/": 3, "in//": 0}  # one with content: no folder of a store's console


@pytest.mark.parametrize(
    ("pattern", "names", "left_out"),
    [
        (
            "s3://b/in/**",
            ["in/a.csv", "in/b.csv", "in/x/c.csv"],
            ["in/../b.csv", "in/./b.csv", "in//b.csv", "in/b.csv/", "in/x/..", "in/x//c.csv"],
        ),
        ("s3://b/in/*.csv", ["in/a.csv", "in/b.csv"], ["in/../b.csv", "in/./b.csv", "in//b.csv", "in/b.csv/"]),
        ("s3://b/in/a.csv", ["in/a.csv"], []),
        ("s3://b/in//b.csv", ["in//b.csv"], []),
        ("s3://b/in//**", ["in//b.csv"], []),
        ("s3://b/in/x//*.csv", ["in/x//c.csv"], []),
        ("s3://b/in/./b.csv", ["in/./b.csv"], []),
        ("s3://b/in/../b.csv", ["in/../b.csv"], []),
        ("s3://b/*/b.csv", ["in/b.csv"], ["in/../b.csv", "in/./b.csv", "in//b.csv", "in/b.csv/", "inner//b.csv"]),
    ],
)
def test_a_key_with_odd_parts_means_itself_or_is_named(
    bucket: FakeBucket, pattern: str, names: list[str], left_out: list[str]
) -> None:
    bucket.objects |= {name: Listed(size, "odd") for name, size in ODD.items()}
    files = Listings(StoreFiles(LocalFiles()))
    assert [file.path for file in files.match(pattern)] == [f"s3://b/{name}" for name in names]
    assert sorted(files.left_out()) == [f"s3://b/{name}" for name in left_out]


@pytest.mark.parametrize(
    ("path", "is_there"),
    [("s3://b/in", True), ("s3://b/in/", True), ("s3://b/in//", True), ("s3://b/in/x//", True), ("s3://b/no//", False)],
)
def test_a_folder_is_its_very_prefix(bucket: FakeBucket, path: str, is_there: bool) -> None:
    bucket.objects |= {name: Listed(size, "odd") for name, size in ODD.items()}
    assert StoreFiles(LocalFiles()).is_folder(path) == is_there


@pytest.mark.first(3)
@pytest.mark.slow
@pytest.mark.parametrize("key", ["j//rows.jsonl", "/rows", "a/./rows", "a/../rows", "rows/", "../rows"])
def test_an_object_is_read_by_its_very_key(key: str) -> None:
    with emulators.s3():
        client, bucket = boto3.client("s3"), uuid.uuid4().hex
        client.create_bucket(Bucket=bucket)
        for name in (key, "j/rows.jsonl", "rows", "a/rows"):
            client.put_object(Bucket=bucket, Key=name, Body=name.encode())
        files = StoreFiles(LocalFiles())
        assert files.read(f"s3://{bucket}/{key}") == key.encode()
        with files.open(f"s3://{bucket}/{key}") as file:
            assert file.read() == key.encode()


def test_a_plan_names_what_it_leaves_out_and_takes_a_prefix_as_it_is(bucket: FakeBucket) -> None:
    names = ("dbl/a/1.png", "dbl/b/2.png", "dbl//a/zz.png", "dbl/a//yy.png")
    bucket.objects = {name: Listed(3, "t") for name in names}

    def plan(path: str) -> BuildPlan:
        spec = parse_spec(
            f"name: d\nsource: {{format: image_folder, path: '{path}'}}\nsplits: {{train: 1}}\n"
            "features: {image: {kind: image, size: [8, 8]}}\n"
        )
        return make_plan(spec, Listings(StoreFiles(LocalFiles())))

    whole, inner = plan("s3://b/dbl/"), plan("s3://b/dbl//")
    (note,) = whole.notes
    assert_names(note, "2 (s3://b/dbl//a/zz.png, s3://b/dbl/a//yy.png)")
    assert (whole.rows, inner.rows, inner.notes) == (2, 1, [])


@pytest.mark.parametrize(
    ("folder", "path", "on_disk", "in_store"),
    [
        ("", "a//b.png", "a/b.png", "a//b.png"),
        ("x", "a//b.png", "x/a/b.png", "x/a//b.png"),
        ("x", "..//b.png", "b.png", "/b.png"),
        ("x", "../a///b.png", "a/b.png", "a///b.png"),
        ("x", "./a/b.png", "x/a/b.png", "x/a/b.png"),
        ("x", "../../b.png", None, None),
        ("x", "/b.png", None, None),
    ],
)
def test_a_rows_path_in_a_store_keeps_its_slashes(
    folder: str, path: str, on_disk: str | None, in_store: str | None
) -> None:
    assert (inside(folder, path), inside(folder, path, in_store=True)) == (on_disk, in_store)


def test_an_object_is_read_by_one_request(bucket: FakeBucket) -> None:
    files = StoreFiles(LocalFiles())
    assert files.read("s3://b/in/a.png", most=len(DATA)) == DATA
    assert files.read("s3://b/in/a.tar", 512, 100) == DATA[512:612]
    assert bucket.asked == ["in/a.png 0-None", "in/a.tar 512-612"]
    with raises(TooLargeError, "10,240 bytes"):
        files.read("s3://b/in/a.png", most=10)


def test_a_table_is_read_by_ranges(bucket: FakeBucket) -> None:
    with constants(open_store, READ_BYTES=1000), StoreFiles(LocalFiles()).open("s3://b/in/a.csv") as file:
        assert file.read(10) == DATA[:10]
        assert file.seek(5000) == 5000
        assert file.read(1500) == DATA[5000:6500]
        assert file.seek(-8, 2) == len(DATA) - 8
        assert file.read() == DATA[-8:]
    assert bucket.asked[0] == "in/a.csv 0-1000"
    assert len(bucket.asked) <= 6
    bucket.asked.clear()
    with StoreFiles(LocalFiles()).open("s3://b/in/a.json") as file:
        assert file.read() == DATA
    assert bucket.asked == ["in/a.json 0-None"], "the rest of an object is one request"
