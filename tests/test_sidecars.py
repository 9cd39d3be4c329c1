"""Files for people and other tools: written before the manifest, which lists them."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.dataset import Dataset
from recordmill.pipeline.dataset.manifest import Location, Manifest, read_manifest
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.facts import sidecars
from recordmill.pipeline.facts.sidecars import SIDECARS, with_sidecars
from recordmill.pipeline.forget import forget
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.constants import constants
from tests.published import write_version
from tests.sharing import NAMES, publish
from tests.test_publishing import STORES


def records_and_rejects(folder: Location, manifest: Manifest) -> bytes:
    """Reads records of every shard, and a file beside them."""
    dataset = Dataset(folder, manifest)
    keys = []
    for split in manifest.splits:
        for batch in dataset.evaluation_input(split, batch_size=64, with_key=True).as_numpy():
            features = batch[0] if isinstance(batch, tuple) else batch
            keys += [bytes(key).decode() for key in features["key"]]
    rejects = read_inner(folder, manifest.rejects["files"][0]["file"]).decode()
    return json.dumps({"keys": sorted(keys), "rejects": rejects.count("\n")}).encode()


@pytest.fixture
def _reading() -> Iterator[None]:
    with constants(sidecars, SIDECARS={**SIDECARS, "seen.json": records_and_rejects}):
        yield


def test_each_file_is_written_and_listed_with_its_digest(tmp_path: Path) -> None:
    folder = write_version(tmp_path)
    manifest = with_sidecars(replace(read_manifest(folder), files={}), folder, str(tmp_path))
    assert list(manifest.files) == sorted(SIDECARS)
    for name, entry in manifest.files.items():
        data = (folder / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_same_manifest_gives_the_same_bytes_whatever_publishing_decides(tmp_path: Path) -> None:
    folder = write_version(tmp_path)
    manifest = read_manifest(folder)
    published = replace(manifest, version=NAMES[0], sequence=7, gate={"live": NAMES[1]})
    for sidecar in SIDECARS.values():
        assert sidecar(folder, manifest) == sidecar(folder, published)


@pytest.mark.parametrize("store", ["local", pytest.param("s3", marks=pytest.mark.nightly)])
@pytest.mark.usefixtures("_reading")
def test_a_version_without_some_rows_shows_none_of_them(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        publish(url, tmp_path, NAMES[0])
        publish(url, tmp_path, NAMES[1], keep=("test",))
        done = forget(url, [b"row/3", b"bad/1"])
        content = open_store(url).read(f"versions/{done.manifest.version}/seen.json")
        assert content is not None
        report = open_store(url).read(f"versions/{done.manifest.version}/report.html")
        assert report is not None
        assert b"row/3<" not in report
        assert b"row/" in report
        seen = json.loads(content)
        assert (len(seen["keys"]), "row/3" in seen["keys"], seen["rejects"]) == (199, False, 1)
        assert verify(url).findings.problems == []
