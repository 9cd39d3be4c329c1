"""Disks that are too small, full, or refuse: told before the work or without damage, in one clear line."""

import errno
import gzip
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from recordmill.pipeline.build.attempt.failures import DiskError, disk_error
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.plan.plan import (
    BuildPlan,
    NoSpaceError,
    check_free_space,
    make_plan,
    planned_build,
    size,
)
from recordmill.pipeline.build.plan.under_way import InputsChangedError, check_unchanged
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.build.worker.read_chunk import ChunkReader
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from tests import tfrecords
from tests.messages import assert_names, raises
from tests.tables import tar, write

Usage = namedtuple("Usage", "total used free")
MIB = 1 << 20


@pytest.fixture
def plan(tmp_path: Path) -> BuildPlan:
    """A plan of 8 MiB of text."""
    (tmp_path / "rows.jsonl").write_text('{"text": "%s"}\n' % ("x" * (8 * MIB - 13)))
    source = f"{{format: jsonl, path: {tmp_path}/rows.jsonl}}"
    return make_plan(parse_spec(f"name: d\nsource: {source}\nfeatures: {{text: {{kind: text}}}}"), BeamFiles())


@pytest.mark.parametrize(
    ("free", "kept", "said"),
    [
        (3, 0, NoSpaceError),  # 8 MiB of shards and 8 of scratch: not even a quarter
        (5, 0, "16.0 MiB"),
        (17, 0, None),
        (3, 6, "10.0 MiB"),
        (1, 9, NoSpaceError),
    ],
)
def test_what_surely_does_not_fit_is_refused(
    plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, kept: int, said: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(100 * MIB, 0, free * MIB))
    run = str(tmp_path / "run")
    check = partial(check_free_space, plan, run, holds_shards=True, holds_rows=True, kept=kept * MIB)
    if said is NoSpaceError:
        with raises(NoSpaceError, "of scratch", f"{free}.0 MiB", "free some"):
            check()
        return
    note = check()
    assert note is None if said is None else note is not None and said in note


def test_only_local_files_need_local_space(plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(100 * MIB, 0, 3 * MIB))
    check = partial(check_free_space, plan, str(tmp_path / "run"))
    assert "about 8.0 MiB" in str(check(holds_shards=False, holds_rows=True))  # the output is a URL: only scratch
    assert check(holds_shards=False, holds_rows=False) is None


def test_sizes_as_people_read_them() -> None:
    assert [size(count) for count in (0, 1500, MIB, 5 << 30)] == ["0.0 kB", "1.5 kB", "1.0 MiB", "5.0 GiB"]


IMAGES = [os.urandom(10_000) for _ in range(40)]


def write_parquet(folder: Path) -> str:
    pq.write_table(pa.table({"image": IMAGES}), folder / "rows.parquet")
    return "parquet"


def write_tar(folder: Path, ending: str) -> str:
    images = tar(*((f"{number}.image", image) for number, image in enumerate(IMAGES)))
    write(folder / f"rows{ending}", gzip.compress(images) if ending.endswith("gz") else images)
    return "webdataset"


def write_tfrecord(folder: Path, pack: Callable[[bytes], bytes]) -> str:
    file = tfrecords.write(folder / "rows.tfrecord", [{"image": image} for image in IMAGES])
    file.write_bytes(pack(file.read_bytes()))
    return "tfrecord"


def write_jsonl(folder: Path) -> str:
    """Writes rows that name their images."""
    write_files(folder)
    (folder / "rows.jsonl").write_text("".join(f'{{"image": "{number}.png"}}\n' for number in range(len(IMAGES))))
    return "jsonl"


def write_files(folder: Path) -> str:
    for number, image in enumerate(IMAGES):
        (folder / f"{number}.png").write_bytes(image)
    return "image_folder"


@pytest.mark.parametrize(
    ("write", "are_inside"),
    [
        (write_parquet, True),
        (partial(write_tar, ending=".tar"), False),
        (partial(write_tar, ending=".tar.gz"), True),
        (partial(write_tfrecord, pack=bytes), False),
        (partial(write_tfrecord, pack=gzip.compress), True),
        (write_jsonl, False),
        (write_files, False),
    ],
)
def test_scratch_holds_the_images_that_lie_in_rows(
    tmp_path: Path, write: Callable[[Path], str], are_inside: bool
) -> None:
    (tmp_path / "in").mkdir()
    source = f"{{format: {write(tmp_path / 'in')}, path: {tmp_path}/in}}"
    spec = parse_spec(f"name: d\nsource: {source}\nfeatures: {{image: {{kind: image, size: 4}}}}\nsplits: {{train: 1}}")
    plan = make_plan(spec, LocalFiles())
    planned = planned_build(plan, str(tmp_path / "run"), LocalFiles(), inline=False, threads=1)
    for name in ("scratch", "progress", "reports", "rejects"):
        (tmp_path / "run" / name).mkdir(parents=True)
    for chunk in plan.chunks:
        assert list(ChunkReader(planned).read(chunk))
    written = sum(file.stat().st_size for file in Path(planned.scratch).iterdir())
    estimate, images = plan.scratch_bytes, sum(map(len, IMAGES))
    assert (written >= images, estimate >= images) == (are_inside, are_inside)
    assert 0.9 * images < estimate < 2 * images if are_inside else estimate == pytest.approx(written, abs=5000)


def wrapped(cause: Exception) -> Exception:
    """An error as Beam raises it of one of its workers."""
    try:
        try:
            raise cause
        except Exception as error:
            raise RuntimeError("[while running 'BuildShards']") from error
    except RuntimeError as error:
        return error


FULL = OSError(errno.ENOSPC, "No space left on device")
REFUSED = OSError(errno.EACCES, "Permission denied", "/out/x")
TENSORFLOWS = tf.errors.ResourceExhaustedError(None, None, "/out/saved_model.pb; No space left on device")
COPIED = shutil.Error([("/a/x", "/out/x", "[Errno 28] No space left on device: '/a/x' -> '/out/x'")])
OTHER_PROCESS = RuntimeError("Traceback …\nOSError: [Errno 30] Read-only file system: '/out/y' [while running 'X']")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FULL, ["No space left on device: /out:", "free some space"]),
        (wrapped(FULL), ["No space left on device: /out:", "free some space"]),
        (wrapped(TENSORFLOWS), ["No space left on device: /out:", "free some space"]),
        (COPIED, ["No space left on device: /out/x:", "free some space"]),
        (OTHER_PROCESS, ["Read-only file system: /out/y:", "make it writable"]),
        (wrapped(REFUSED), ["Permission denied: /out/x:", "permission"]),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), ["Disk quota exceeded: /out:", "quota"]),
        (wrapped(OSError(errno.ENOENT, "No such file or directory", "/in/a")), None),
        (ValueError("no disk"), None),
        (wrapped(UserError("Permission denied: secret")), None),
    ],
)  # fmt: skip
def test_what_a_disk_refuses_is_one_line(error: Exception, told: list[str] | None) -> None:
    found = disk_error(error, "/out")
    assert (found is None) == (told is None)
    if told is not None:
        assert_names(found, *told)
        assert "\n" not in str(found)


def planned_of(folder: Path) -> tuple[BuildPlan, Listings]:
    """A plan of the JSON Lines files in a folder, with pictures."""
    folder.mkdir(exist_ok=True)
    for name in "abc":
        (folder / f"{name}.jsonl").write_text('{"picture": "x.png"}\n')
    (folder / "x.png").write_text("x")
    files = Listings(BeamFiles())
    features = "features: {picture: {kind: image, size: 4}}"
    return make_plan(parse_spec(f"name: d\nsource: {{format: jsonl, path: {folder}}}\n{features}"), files), files


def test_inputs_that_change_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    planned = planned_of(folder)
    check_unchanged(*planned)
    assert (planned[1].has(f"{folder}/a.jsonl"), planned[1].has(f"{folder}/d.jsonl")) == (True, False)
    (folder / "a.jsonl").unlink()
    (folder / "b.jsonl").write_text('{"picture": "xx.png"}\n')
    (folder / "d.jsonl").write_text("{}\n")
    with raises(InputsChangedError, f"{folder}/a.jsonl", f"{folder}/b.jsonl", f"{folder}/d.jsonl", "build again"):
        check_unchanged(*planned)
    os.rename(folder, tmp_path / "moved")
    with raises(InputsChangedError, "a.jsonl", "b.jsonl", "c.jsonl", "gone", "1 more"):
        check_unchanged(*planned)


def test_other_files_may_come_and_go_and_a_changed_picture_is_a_changed_input(tmp_path: Path) -> None:
    planned = planned_of(tmp_path / "in")
    (tmp_path / "in/build.log").write_text("written meanwhile, and listed with the pictures")
    check_unchanged(*planned)
    (tmp_path / "in/x.png").write_text("another")
    with raises(InputsChangedError, "x.png", "another"):
        check_unchanged(*planned)


def small_build(folder: Path, **on: Callable[..., object]) -> tuple[Published, list[str]]:
    spec = parse_spec(
        f"name: d\nsource: {{format: jsonl, path: {folder}/rows.jsonl}}\nsplits: {{train: 100}}\nshards: 4\n"
        "features: {number: {kind: number}}"
    )
    notes: list[str] = []
    return build(spec, str(folder / "out"), listener=Listener(on_note=notes.append, **on)), notes


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(80)))
    return tmp_path


@pytest.mark.slow
def test_a_disk_that_fills_up_rejects_no_row_and_the_build_goes_on(small: Path, monkeypatch: Any) -> None:
    real, shards = ShardWriter.write, list[int]()

    def full(writer: ShardWriter, records: list[bytes]) -> None:
        shards.append(len(records))
        if len(shards) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(writer, records)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "write", full)
        with raises(DiskError, "No space left on device: ", "/out/.building/", "free some space"):
            small_build(small)
    assert not (small / "out/LATEST").exists()
    assert not list((small / "out").rglob("scratch"))  # which makes room
    published, notes = small_build(small)
    assert len(notes) == 1
    assert_names(notes[0], "transform graph", "2 of 4 shards")
    assert published.manifest.rows == {**published.manifest.rows, "read": 80, "written": 80, "rejected": 0}


@pytest.mark.slow
def test_inputs_that_change_in_mid_build_are_not_published(small: Path) -> None:
    def change(*_: object) -> None:
        (small / "rows.jsonl").write_text('{"number": 1}\n' * 80)

    with raises(InputsChangedError, "rows.jsonl", "another"):
        small_build(small, on_plan=change)
    assert [path.name for path in (small / "out").iterdir()] == ["history.jsonl"]


@pytest.mark.slow
def test_an_output_that_is_pulled_away_does_not_come_back(small: Path) -> None:
    with raises(OutputError, f"{small}/out", "gone", "moved or removed"):
        small_build(small, on_plan=lambda *_: os.rename(small / "out", small / "moved"))
    assert not (small / "out").exists()
