"""Sources and outputs on object stores: real clients against an S3 and a GCS emulator, started and stopped here."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from apache_beam.internal.gcp import auth

from recordmill import open_dataset
from recordmill.pipeline.build.driver import Published, RunOptions, build
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators
from tests.every_kind import write_pictures
from tests.test_reader_input import assert_equal

pytestmark = pytest.mark.slow
SPEC = """
name: stored
source: {{format: image_folder, path: "{path}"}}
features:
  image: {{kind: image, store: original, size: [8, 8]}}
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
def local(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Published:
    """What is built of these files in a folder."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "set").mkdir()
    for name, data in files.items():
        (folder / "set" / name).write_bytes(data)
    return build(parse_spec(SPEC.format(path=folder / "set")), str(folder / "out"))


@pytest.mark.parametrize(
    ("start", "option"),
    [(emulators.s3, "--s3_endpoint_url={}"), (lambda: emulators.gcs(conditions=True), "--no_auth")],
    ids=["s3", "gcs"],
)
def test_a_source_and_an_output(
    start: Callable[[], AbstractContextManager[str]],
    option: str,
    files: dict[str, bytes],
    local: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One build reads from a store and publishes there the same as a build from a folder into a folder."""
    # Beam looks for credentials for 20 seconds, also with --no_auth; here it has done so.
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    with start() as url:
        source, output = f"{url}/in", f"{url}/out"
        store = open_store(source)
        for name, data in files.items():
            store.write_if(name, data, None)
        spec = parse_spec(SPEC.format(path=source))
        beam_options = (option.format(os.environ.get("AWS_ENDPOINT_URL")),)
        options = RunOptions(work=str(tmp_path / "work"), beam_options=beam_options)
        there, again = build(spec, output, options), build(spec, output, options)
        assert there.manifest.rows == {"read": ROWS, "written": ROWS, "rejected": 0, "duplicates": 0}
        assert (there.is_new, again.is_new, again.folder) == (True, False, there.folder)
        assert there.manifest.splits == local.manifest.splits
        assert there.folder == f"{output}/versions/{there.manifest.version}"
        assert open_store(output).children("") == ["LATEST", "versions"]
        mine, other = (open_dataset(one).evaluation_input("train", batch_size=4) for one in (local.folder, output))
        assert_equal(tuple(other), tuple(mine))
        assert not list((tmp_path / "work").rglob("run-*"))
