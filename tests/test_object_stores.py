"""Sources and outputs on object stores: real clients against an S3 and a GCS emulator, started and stopped here."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import boto3
import pytest
from gcp_storage_emulator.server import create_server
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from moto.server import ThreadedMotoServer

from pipeline.build import RunOptions, build
from pipeline.output.stores import open_store
from pipeline.reader import open_dataset
from pipeline.spec import Spec, parse_spec
from tests import emulators
from tests.every_kind import write_pictures
from tests.test_reader_input import assert_equal

pytestmark = pytest.mark.slow
SPEC = """
name: stored
source: {{format: image_folder, path: "{path}"}}
features:
  image: {{kind: image, size: [8, 8], normalize: dataset}}
  text: {{kind: text}}
"""
ROWS = 12


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    write_pictures(tmp_path / "pictures")
    pictures = {path.name: path.read_bytes() for path in sorted((tmp_path / "pictures").iterdir())[:ROWS]}
    rows = [json.dumps({"file_name": name, "text": f"picture {name}"}) + "\n" for name in pictures]
    return pictures | {"metadata.jsonl": "".join(rows).encode()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def s3(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer("127.0.0.1", port=_free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket="pictures")
    for name, data in files.items():
        client.put_object(Bucket="pictures", Key=f"set/{name}", Body=data)
    yield endpoint
    server.stop()


@pytest.fixture
def gcs(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = _free_port()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    server = create_server("127.0.0.1", port, in_memory=True)
    server.start()
    client = storage.Client(project="test", credentials=AnonymousCredentials())
    bucket = client.create_bucket("pictures")
    for name, data in files.items():
        bucket.blob(f"set/{name}").upload_from_string(data)
    yield os.environ["STORAGE_EMULATOR_HOST"]
    server.stop()


def _local(files: dict[str, bytes], folder: Path) -> Spec:
    (folder / "set").mkdir()
    for name, data in files.items():
        (folder / "set" / name).write_bytes(data)
    return parse_spec(SPEC.format(path=folder / "set"))


def _sums(spec: Spec, output: Path, *beam_options: str) -> list[str]:
    manifest = build(spec, str(output), RunOptions(beam_options=beam_options)).manifest
    assert manifest.rows == {"read": ROWS, "written": ROWS, "rejected": 0, "duplicates": 0}
    return [shard.sha256 for split in manifest.splits.values() for shard in split.shards]


def test_s3(s3: str, files: dict[str, bytes], tmp_path: Path) -> None:
    stored = _sums(parse_spec(SPEC.format(path="s3://pictures/set")), tmp_path / "a", f"--s3_endpoint_url={s3}")
    assert stored == _sums(_local(files, tmp_path), tmp_path / "b")


def test_gcs(gcs: str, files: dict[str, bytes], tmp_path: Path) -> None:
    stored = _sums(parse_spec(SPEC.format(path="gs://pictures/set")), tmp_path / "a", "--no_auth")
    assert stored == _sums(_local(files, tmp_path), tmp_path / "b")


@pytest.mark.parametrize("start", [emulators.s3, lambda: emulators.gcs(conditions=True)], ids=["s3", "gcs"])
def test_an_output(start: Callable[[], AbstractContextManager[str]], files: dict[str, bytes], tmp_path: Path) -> None:
    spec, options = _local(files, tmp_path), RunOptions(work=str(tmp_path / "work"))
    here = build(spec, str(tmp_path / "out"))
    with start() as output:
        there, again = build(spec, output, options), build(spec, output, options)
        assert (there.is_new, again.is_new, again.folder) == (True, False, there.folder)
        assert there.manifest.splits == here.manifest.splits
        assert there.folder == f"{output}/versions/{there.manifest.version}"
        assert open_store(output).children("") == ["LATEST", "versions"]
        mine, other = (open_dataset(one).evaluation_input("train", batch_size=4) for one in (tmp_path / "out", output))
        assert_equal(tuple(other), tuple(mine))
        assert not list((tmp_path / "work").rglob("run-*"))
