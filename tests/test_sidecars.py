"""Files for people and other tools: written before the manifest, which lists them."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.facts.sidecars import SIDECARS, with_sidecars
from recordmill.pipeline.forget import forget
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.published import write_version
from tests.sharing import NAMES, publish
from tests.test_publishing import STORES


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
def test_a_version_without_some_rows_shows_none_of_them(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        publish(url, tmp_path, NAMES[0])
        publish(url, tmp_path, NAMES[1], keep=("test",))
        done = forget(url, [b"row/3", b"bad/1"])
        report = open_store(url).read(f"versions/{done.manifest.version}/report.html")
        assert report is not None
        assert (b"row/3<" in report, b"bad/1" in report, b"row/" in report) == (False, False, True)
        assert verify(url).findings.problems == []
