"""A whole build in one process: every row is accounted for, a version is immutable, mistakes are one clear line."""

import errno
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from PIL import Image as PillowImage

from recordmill import open_dataset
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.beam.runners import RunnerError
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.results.results import NothingToPublishError, ReconcileError
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.placement import Layout, hash_keys
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.versions.publishing import OutputError, Published
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.images.image_spec import Image
from tests.messages import raises

SPEC = """
name: pets
source: {{format: jsonl, path: {folder}/rows.jsonl}}
key: id
splits: {{train: 60, validation: 20, test: 20}}
features:
  caption: {{kind: text, vocabulary: 50}}
  weight: {{kind: number}}
  label: {{kind: category{classes}}}
label: label
rejects: {{max_share: 1}}
"""
PHOTO = {"photo": Image(kind="image", size=(8, 8))}
GOOD = 40
pytestmark = pytest.mark.slow


def _row(number: int, **changes: Any) -> dict[str, Any]:
    row = {"id": f"k{number}", "photo": "good.png", "caption": "a small pet", "weight": 1.5 * number, "label": "cat"}
    return {name: value for name, value in (row | changes).items() if value is not ...}


BAD: list[tuple[str | bytes, str, str | None]] = [
    ("this is not JSON", "malformed_row", None),
    (json.dumps(_row(101, label=...)), "missing_value", "label"),
    (json.dumps(_row(102, weight="heavy")), "wrong_type", "weight"),
    (json.dumps(_row(103, caption="X")).encode().replace(b"X", b"\xff\xfe"), "invalid_utf8", "caption"),
    (json.dumps(_row(104, photo="none.png")), "unreadable", "photo"),
    (json.dumps(_row(105, photo="cut.jpg")), "undecodable_image", "photo"),
    (json.dumps(_row(106, photo="text.png")), "unsupported_format", "photo"),
    (json.dumps(_row(107, photo="../good.png")), "forbidden_path", "photo"),
    (json.dumps(_row(7, caption="again")), "duplicate_key", None),
    (json.dumps(_row(108, weight=float("nan"))), "wrong_type", "weight"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    PillowImage.new("RGB", (9, 7), (200, 30, 90)).save(tmp_path / "good.png")
    PillowImage.effect_noise((64, 64), 90).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:900])
    (tmp_path / "text.png").write_text("no picture")
    return tmp_path


def _write(folder: Path, lines: list[str | bytes]) -> None:
    data = [line if isinstance(line, bytes) else line.encode() for line in lines]
    (folder / "rows.jsonl").write_bytes(b"".join(line + b"\n" for line in data))


def _spec(folder: Path, classes: str = "", photos: bool = False) -> Spec:
    spec = parse_spec(SPEC.format(folder=folder, classes=classes))
    return spec.model_copy(update={"features": PHOTO | spec.features}) if photos else spec


def _build(folder: Path, classes: str = "", spec: Spec | None = None, **options: Any) -> Published:
    spec = spec or _spec(folder, classes)
    return build(spec, str(folder / "out"), RunOptions(**options))


def _build_photos(folder: Path) -> Published:
    return _build(folder, spec=_spec(folder, photos=True))


def _good() -> list[str | bytes]:
    return [json.dumps(_row(number, label=("cat", "dog")[number % 2])) for number in range(GOOD)]


def test_every_bad_row_is_a_reject_with_its_reason_and_place(folder: Path) -> None:
    _write(folder, [*_good(), "", *(line for line, _, _ in BAD)])
    manifest = _build_photos(folder).manifest
    assert manifest.rows == {"read": GOOD + len(BAD), "written": GOOD, "rejected": len(BAD), "duplicates": 0}
    assert manifest.rejects["by_reason"] == dict(Counter(reason for _, reason, _ in BAD))
    (file,) = (folder / "out/versions").glob("*/rejects/*.jsonl")
    rejects = [json.loads(line) for line in file.read_text().splitlines()]
    found = [(reject["line"], reject["code"], reject["column"]) for reject in rejects]
    assert [reject["id"] for reject in rejects[3:9]] == ["k103", "k104", "k105", "k106", "k107", "k7"]
    assert found == [(GOOD + 2 + place, reason, column) for place, (_, reason, column) in enumerate(BAD)]
    assert {(reject["source"], reject["file"]) for reject in rejects} == {(0, "rows.jsonl")}
    assert "rows.jsonl, line 8" in rejects[8]["message"]
    assert set(rejects[0]) == {"id", "column", "code", "message", "source", "file", "line"}
    late = {"unreadable", "undecodable_image", "unsupported_format", "duplicate_key"}  # found when shards are built
    keys = [reject["id"].encode() for reject in rejects if reject["code"] in late]
    shares = {"train": 60.0, "validation": 20.0, "test": 20.0}
    layout = Layout(shares, dict.fromkeys(shares, 1))
    in_train = int((layout.split_of(hash_keys(keys)[0]) == 0).sum())
    assert manifest.rejects["in_statistics"] == len(keys) > in_train > 0
    assert manifest.rejects["learned_from"] == {"caption": in_train, "label": len(keys), "weight": in_train}
    assert not any(secret in file.read_text() for secret in ("heavy", "a small pet", str(folder)))


def test_classes_come_from_all_splits(folder: Path) -> None:
    lines = _good()
    for number in range(GOOD):  # a class of its own for each row: some are in no train row
        lines[number] = json.dumps(_row(number, label=f"class {number:02d}"))
    _write(folder, lines)
    _build(folder)
    dataset = open_dataset(folder / "out")
    assert sorted(dataset.classes) == [f"class {number:02d}" for number in range(GOOD)]
    assert dataset.splits["train"] < GOOD


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows and what is built of them; not to be changed."""
    folder = tmp_path_factory.mktemp("built")
    _write(folder, [*_good(), "broken"])
    _build(folder)
    return folder


@pytest.fixture
def live(built: Path, folder: Path) -> Path:
    """A folder with images, rows and a dataset that was built before."""
    shutil.copytree(built, folder, dirs_exist_ok=True)
    return folder


def test_the_same_build_again_changes_nothing_and_another_or_a_damaged_one_moves_the_pointer(folder: Path) -> None:
    _write(folder, _good())
    first = _build(folder)
    again = _build(folder)
    assert (again.is_new, again.folder) == (False, first.folder)
    _write(folder, _good()[:-1])
    second = _build(folder)
    assert second.is_new
    assert open_dataset(folder / "out").version == second.manifest.version != first.manifest.version
    old = open_dataset(folder / "out", version=first.manifest.version)
    assert sum(old.splits.values()) == GOOD
    assert json.loads((folder / "out/LATEST").read_text())["sequence"] == 2
    shard = Path(second.folder, second.manifest.splits["train"].shards[0].file)
    shard.write_bytes(shard.read_bytes()[:-1])
    time.sleep(1.1)  # a version's name holds the second of its publishing
    third = _build(folder)
    assert third.is_new  # the damaged version is no version
    assert third.manifest.splits == second.manifest.splits
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["LATEST", "history.jsonl", "versions"]


def test_a_copy_elsewhere_is_the_same_dataset_and_names_no_folder(built: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(built / "out", tmp_path / "moved"))
    files = [path for path in moved.rglob("*") if path.is_file()]
    assert [path for path in files if path.parent.name == "rejects"]
    assert not [path for path in files if str(built).encode() in path.read_bytes()]
    batches = open_dataset(moved).evaluation_input("train", batch_size=8).as_numpy()
    assert sum(len(label) for _, label in batches) == open_dataset(moved).splits["train"]


def test_nothing_to_publish_is_one_clear_line(live: Path) -> None:
    before = open_dataset(live / "out").version
    _write(live, [json.dumps(_row(n, photo="none.png")) for n in range(20)])
    with raises(NothingToPublishError, "unreadable: 20", "line 1") as raised:
        _build_photos(live)
    assert "\n" not in str(raised.value)
    assert open_dataset(live / "out").version == before


@pytest.mark.parametrize(
    ("report", "count", "facts"),
    [
        ("/shard-0", b'"records": ', ["shard 0 of train"]),
        ("analysis.json", b'"train": ', ["statistics", "split 'train'"]),  # what the look saw
    ],
)
def test_rows_that_the_runner_loses_stop_the_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch, report: str, count: bytes, facts: list[str]
) -> None:
    _write(folder, _good())
    real = LocalStore.read

    def lossy(store: LocalStore, name: str) -> bytes | None:
        data = real(store, name)
        return data.replace(count, count + b"9") if data and report in name else data

    monkeypatch.setattr(LocalStore, "read", lossy)
    with raises(ReconcileError, *facts):
        _build(folder)
    assert not (folder / "out/LATEST").exists()


def test_a_machine_that_fails_ends_the_build_and_is_no_reject(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder, _good())
    real = BeamFiles.open

    def failing(files: BeamFiles, path: str) -> BinaryIO:
        if path.endswith(".png"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(files, path)

    monkeypatch.setattr(BeamFiles, "open", failing)
    with raises(Exception, "Too many open files"):
        _build_photos(folder)
    assert not (folder / "out/LATEST").exists()


def test_another_datasets_folder_is_refused(live: Path) -> None:
    before = open_dataset(live / "out").version
    other = _spec(live).model_copy(update={"name": "toys"})
    with raises(OutputError, "dataset 'pets'", "'toys'"):
        build(other, str(live / "out"))
    assert open_dataset(live / "out").version == before


@pytest.mark.parametrize(
    ("option", "fact"),
    [
        ("--direct_running_mode=multi_threading", "loses records"),
        ("--direct_num_wokers=2", "did you mean --direct_num_workers"),
        ("--direct_num_workers=2", "`--processes N`"),
        ("--direct_running_mode=nonsense", "these options"),
        ("--help", "these options"),
        ("stray.yaml", "'stray.yaml'"),
    ],
)
def test_options_that_are_refused(folder: Path, option: str, fact: str) -> None:
    _write(folder, _good())
    with raises(RunnerError, fact):
        _build(folder, beam_options=(option,))


def test_arguments_of_another_type_or_range_are_named(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"spec": {"name": "x"}, "output": None, "options": 5}
    for name, value in wrong.items():
        with raises(DatasetError, name, repr(value)):
            build(**{"spec": "none.yaml", "output": tmp_path, name: value})
    for option in ("processes", "attempts", "limit"):
        with raises(DatasetError, option, "at least 1", "-1"):
            RunOptions(**{option: -1})


def test_processes_are_the_local_runners(folder: Path) -> None:
    _write(folder, _good())
    with raises(RunnerError, "PortableRunner", "parallelism"):
        _build(folder, runner="PortableRunner", processes=2)
