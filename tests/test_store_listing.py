"""Objects of a store as inputs: listed once by its own client, with tags in place of times."""

import pytest

from recordmill.pipeline.build.inputs.listings import Listings
from recordmill.pipeline.sources import files as source_files
from recordmill.pipeline.sources.files import FileInfo, ListedByStore, LocalFiles
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.bucket import Listed


class FakeBucket:
    def __init__(self) -> None:
        self.asked = list[str]()
        self.objects = {name: Listed(3, f"tag of {name}") for name in ("in/", "in/b.csv", "in/a.csv", "in/x/c.csv")}

    def listed(self, prefix: str) -> dict[str, Listed]:
        self.asked.append(prefix)
        if prefix.startswith("secret"):
            raise OutputError("no credentials")
        return {name: entry for name, entry in self.objects.items() if name.startswith(prefix)}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> FakeBucket:
    bucket = FakeBucket()
    monkeypatch.setattr(source_files, "open_bucket", {"s3://b": bucket}.__getitem__)
    return bucket


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
    found = list(ListedByStore(LocalFiles()).match(pattern))
    assert found == [FileInfo(f"s3://b/{name}", 3, 0.0, f"tag of {name}") for name in names]


def test_a_prefix_is_listed_once_and_again_when_changes_are_looked_for(bucket: FakeBucket) -> None:
    files = Listings(ListedByStore(LocalFiles()))
    assert files.is_folder("s3://b/in")
    assert not ListedByStore(LocalFiles()).is_folder("s3://b/in/a.csv")
    bucket.asked.clear()
    assert [len(files.match(f"s3://b/in/{pattern}")) for pattern in ("*.csv", "*.tsv")] == [2, 0]
    assert bucket.asked == []
    bucket.objects["in/a.csv"] = Listed(3, "another")
    assert list(files.changes()) == ["s3://b/in/a.csv is another"]


def test_where_the_client_is_refused_the_other_files_list(bucket: FakeBucket) -> None:
    assert list(ListedByStore(LocalFiles()).match("s3://b/secret/*")) == []
    assert bucket.asked == ["secret/"]
