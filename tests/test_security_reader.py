"""Reading somebody else's dataset, from a bucket or a folder, writes into the cache and temporary files alone."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recordmill import Dataset, DatasetError, UserError, mix, open_dataset
from recordmill.pipeline.reader import block_cache
from recordmill.pipeline.reader.block_cache import FOLDER, MARK, PART
from recordmill.pipeline.versions.base import Forgotten
from recordmill.pipeline.versions.stores.open_store import open_bucket
from tests.constants import constants
from tests.emulators import s3
from tests.memory_store import Memory, memory_store
from tests.messages import assert_names
from tests.opened import snapshot
from tests.places import CACHE, place_of
from tests.published import VERSION, write_version
from tests.test_security_writes import places, tampered
from tests.test_written_places import PLANTS, changed, plant

URL = "memory://bucket/out/small"
Read = Callable[[Dataset], Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a reader may write into, a dataset, and what belongs to a victim."""
    for name in ("cache", "temp", "cwd", "victim/outside"):
        (tmp_path / name).mkdir(parents=True)
    write_version(tmp_path / "out", rows=24)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    return tmp_path


@pytest.fixture
def memory(place: Path) -> Iterator[Memory]:
    """The dataset in a bucket."""
    files = [path for path in (place / "out").rglob("*") if path.is_file()]
    with memory_store() as memory:
        memory.objects |= {f"{URL}/{path.relative_to(place / 'out')}": path.read_bytes() for path in files}
        yield memory


def training(dataset: Dataset, **options: Any) -> Any:
    return dataset.training_input(**{"batch_size": 4, "epochs": 1, "features": ["price", "text"], **options})


READERS: dict[str, Read] = {
    "as_numpy": lambda dataset: list(training(dataset, verify=True).as_numpy()),
    "evaluation": lambda dataset: list(dataset.evaluation_input("test", batch_size=4, features=["price"]).as_numpy()),
    "source": lambda dataset: [dataset.source("test", features=["text"])[number] for number in range(4)],
    "mix": lambda dataset: list(mix([training(dataset, epochs=None)] * 2, [1, 3]).as_numpy()),
    "records": lambda dataset: list(dataset.records("train")),
    "vocabulary": lambda dataset: dataset.vocabulary("text"),
    "as_tf_data": lambda dataset: list(training(dataset).as_tf_data()),
    "as_torch": lambda dataset: list(training(dataset).as_torch()),
    "as_jax": lambda dataset: list(training(dataset).as_jax()),
    "as_keras": lambda dataset: [training(dataset).as_keras()[0]],
}
"""All ways to read rows; an adapter without its framework ends in a line."""


@pytest.mark.parametrize("where", ["bucket", "folder"])
@pytest.mark.parametrize("how", READERS)
def test_all_that_a_reader_writes_is_known(how: str, where: str, memory: Memory, place: Path) -> None:
    url = URL if where == "bucket" else str(place / "out")

    def read() -> None:
        try:
            READERS[how](open_dataset(url))
        except DatasetError as error:
            assert_names(error, "pip install")  # and writes nothing

    seen = {path for path in changed(place, read) - {"cache"} if not path.startswith("temp")}
    assert {path for path in seen if place_of(path) not in (CACHE if where == "bucket" else ())} == set()
    if (how, where) == ("as_numpy", "bucket"):
        assert {place_of(path) for path in seen} == CACHE.keys(), "they are written no more"


@pytest.mark.nightly
def test_all_that_worker_processes_write_is_known(place: Path) -> None:
    with s3() as url:
        for path in [path for path in (place / "out").rglob("*") if path.is_file()]:
            open_bucket(url).write(path.relative_to(place / "out").as_posix(), path.read_bytes())
        seen = changed(place, lambda: list(training(open_dataset(url), workers=1).as_numpy()))
    assert {path for path in seen - {"cache"} if place_of(path) not in CACHE} == set()


def prices(**options: Any) -> list[float]:
    batches = training(open_dataset(URL), seed=1, **options).as_numpy()
    return [float(price) for features, _ in batches for price in features["price"]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", [*filter(None, CACHE.values())])
@pytest.mark.parametrize("kind", PLANTS)
@constants(block_cache, PATIENCE_SECONDS=0.2)
def test_nothing_planted_in_the_cache_is_followed(kind: str, what: str, memory: Memory, place: Path) -> None:
    expected = prices()
    digests = [path.name for path in (place / "cache/recordmill" / FOLDER).iterdir() if path.name != MARK]
    if kind == "folder" and what == f"cache/recordmill/{FOLDER}":
        pytest.skip("the user names this folder")
    for digest in digests if "{digest}" in what and kind != "folder" else digests[:1]:
        for path in (f"{digest}{PART}", digest)[: what.endswith(PART) + 1]:
            (place / "cache/recordmill" / FOLDER / path).unlink(missing_ok=True)
        plant(kind, place / what.format(digest=digest), place / "victim")
        before = snapshot(place / "victim")
        with suppress(UserError):
            assert prices() == expected
        assert snapshot(place / "victim") == before
        (place / "victim/own").rename(place / "victim" / digest) if kind != "folder" else None


def test_the_users_files_beside_the_blocks_stay(memory: Memory, place: Path) -> None:
    for name in ("own/notes", f"{'0a' * 32}/0-120", "blocks/1", f"{FOLDER}x"):
        (place / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "cache" / name).write_bytes(bytes(10_000))
    before = snapshot(place / "cache")
    prices(cache=place / "cache", cache_bytes=1)
    after = snapshot(place / "cache")
    assert {path: state for path, state in after.items() if not path.startswith(f"{FOLDER}/")}.keys() >= before.keys()
    assert {path for path in before if before[path] != after[path]} == {"."}


FILES = ("LATEST", "forgotten.json", f"versions/{VERSION}/dataset.json")
HOSTILE = ("../../victim/outside", "a\0b", "x" * 5000, "https://127.0.0.1:1/x", "{place}/victim/outside", "\udc80", "")


@pytest.mark.first(4)
@pytest.mark.parametrize("all_texts", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", ["as_numpy", "vocabulary", "records"])
def test_no_value_leads_a_reader_out_of_its_cache(
    how: str, file: str, all_texts: bool, memory: Memory, place: Path
) -> None:
    good = memory.objects.get(f"{URL}/{file}") or Forgotten({"0" * 48: "2026-11-20T12:00:00Z"}).to_text().encode()

    def read() -> None:
        with suppress(UserError):  # any other error would be a traceback
            READERS[how](open_dataset(URL))

    for number, way in enumerate(places(json.loads(good))):
        for text in HOSTILE if all_texts else HOSTILE[number % len(HOSTILE) :][:1]:
            for bad in tampered(json.loads(good), way, text.format(place=place)):
                memory.objects[f"{URL}/{file}"] = json.dumps(bad).encode()
                paths = changed(place, read)
                assert {path for path in paths if not path.startswith(("cache", "temp"))} == set()
