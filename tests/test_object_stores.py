"""Sources and outputs on object stores: real clients against an S3 and a GCS emulator, started and stopped here."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import boto3
import pytest
from apache_beam.internal.gcp import auth
from gcp_storage_emulator.server import create_server
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from moto.server import ThreadedMotoServer

from recordmill import open_dataset
from recordmill.pipeline.build.driver import Published, RunOptions, build
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.versions.stores.open_store import open_store
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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder)
    pictures = {path.name: path.read_bytes() for path in sorted(folder.iterdir())[:ROWS]}
    rows = [json.dumps({"file_name": name, "text": f"picture {name}"}) + "\n" for name in pictures]
    return pictures | {"metadata.jsonl": "".join(rows).encode()}


@pytest.fixture(scope="module")
def local(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, Published]:
    """The spec of these files in a folder, and what was built of it, into another."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "set").mkdir()
    for name, data in files.items():
        (folder / "set" / name).write_bytes(data)
    spec = parse_spec(SPEC.format(path=folder / "set"))
    return spec, build(spec, str(folder / "out"))


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
    # Beam looks for credentials for 20 seconds, also with --no_auth; here it has done so.
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    server = create_server("127.0.0.1", port, in_memory=True)
    server.start()
    client = storage.Client(project="test", credentials=AnonymousCredentials())
    bucket = client.create_bucket("pictures")
    for name, data in files.items():
        bucket.blob(f"set/{name}").upload_from_string(data)
    yield os.environ["STORAGE_EMULATOR_HOST"]
    server.stop()


@pytest.mark.parametrize(
    ("store", "path", "option"),
    [("s3", "s3://pictures/set", "--s3_endpoint_url={}"), ("gcs", "gs://pictures/set", "--no_auth")],
)
def test_a_source(
    store: str, path: str, option: str, local: tuple[Spec, Published], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    endpoint = request.getfixturevalue(store)
    options = RunOptions(beam_options=(option.format(endpoint),))
    stored = build(parse_spec(SPEC.format(path=path)), str(tmp_path), options).manifest
    assert stored.rows == {"read": ROWS, "written": ROWS, "rejected": 0, "duplicates": 0}
    assert _sums(stored) == _sums(local[1].manifest)


def _sums(manifest: Manifest) -> list[str]:
    return [shard.sha256 for split in manifest.splits.values() for shard in split.shards]


@pytest.mark.parametrize("start", [emulators.s3, lambda: emulators.gcs(conditions=True)], ids=["s3", "gcs"])
def test_an_output(
    start: Callable[[], AbstractContextManager[str]], local: tuple[Spec, Published], tmp_path: Path
) -> None:
    (spec, here), options = local, RunOptions(work=str(tmp_path / "work"))
    with start() as output:
        there, again = build(spec, output, options), build(spec, output, options)
        assert (there.is_new, again.is_new, again.folder) == (True, False, there.folder)
        assert there.manifest.splits == here.manifest.splits
        assert there.folder == f"{output}/versions/{there.manifest.version}"
        assert open_store(output).children("") == ["LATEST", "versions"]
        mine, other = (open_dataset(one).evaluation_input("train", batch_size=4) for one in (here.folder, output))
        assert_equal(tuple(other), tuple(mine))
        assert not list((tmp_path / "work").rglob("run-*"))
