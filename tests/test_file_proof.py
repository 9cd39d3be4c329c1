"""A file of another inode or ctime is read, whatever its time of change says."""

import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.build import build, source_files
from recordmill.pipeline.build.inputs import input_table
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.plan.under_way import Build, InputsChangedError, check_unchanged
from recordmill.pipeline.build.publish.same_version import EarlierVersions
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import load_spec
from recordmill.pipeline.versions.publishing import Published
from tests.constants import constants
from tests.messages import raises
from tests.opened import opened

pytestmark = pytest.mark.slow
ROWS = "".join(f"k{row},{row}\n" for row in range(20))
SPEC = "name: d\nsource: {format: csv, path: rows}\nkey: id\nsplits: {train: 1}\nfeatures: {n: {kind: raw}}\n"


def begun(folder: Path, **options: bool) -> Build:
    return Build(
        load_spec(str(folder / "dataset.yaml")), str(folder / "out"), Listings(source_files()), RunOptions(**options)
    )


def built(folder: Path) -> Published:
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    (folder / "dataset.yaml").write_text(SPEC)
    (folder / "rows").mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / "rows" / name).write_text(f"id,n\n{ROWS.replace('k', name[0])}")
        os.utime(folder / "rows" / name, (1e9, 1e9))
    assert built(folder).is_new
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """A copy of spec, data and output: all inodes are new, all sizes and times the same."""
    return shutil.copytree(original, tmp_path / "copy")


def other(file: Path) -> bytes:
    return file.read_bytes().replace(b"a7,7\n", b"a7,8\n")


def by_rename(file: Path) -> None:
    """As `sed -i` and `rsync` do."""
    file.with_suffix(".new").write_bytes(other(file))
    file.with_suffix(".new").replace(file)


def in_place(file: Path) -> None:
    content = other(file)
    with file.open("r+b") as opened:
        opened.write(content)


def from_an_archive(file: Path) -> None:
    content, packed = other(file), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo(file.name)
        info.size, info.mtime = len(content), 10**9
        archive.addfile(info, io.BytesIO(content))
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(file.parent, filter="data")


def through_a_hard_link(file: Path) -> None:
    os.link(file, file.parent.parent / "link")
    in_place(file.parent.parent / "link")


def copied(file: Path) -> None:
    shutil.copy2(file, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def linked(file: Path) -> None:
    os.link(file, file.parent.parent / "link")


def restricted(file: Path) -> None:
    file.chmod(0o600)


def later(file: Path) -> None:
    os.utime(file, (2e9, 2e9))


Change = Callable[[Path], None]


@pytest.mark.parametrize("change", [by_rename, in_place, from_an_archive, through_a_hard_link])
def test_other_content_of_equal_size_and_time_is_seen(copy: Path, change: Change) -> None:
    assert begun(copy).done
    before, file = begun(copy).plan().source_key, copy / "rows/a.csv"
    size = file.stat().st_size
    change(file)
    os.utime(file, (1e9, 1e9))
    assert (file.stat().st_size, file.stat().st_mtime) == (size, 1e9)
    assert begun(copy).done is None
    changed = begun(copy)
    plan = changed.plan()
    assert (plan.source_key != before, EarlierVersions(changed, plan).find()) == (True, None)


def read_by(build: Build) -> set[str]:
    """The inputs that are opened until a build is found to have nothing to do."""
    with opened() as files:
        assert build.done
    return {Path(file).name for file in files if file.endswith(".csv")}


@pytest.mark.parametrize("change", [copied, linked, restricted, later])
def test_equal_content_is_read_once(original: Path, change: Change) -> None:
    change(original / "rows/a.csv")
    assert [read_by(begun(original)) for _ in range(2)] == [{"a.csv"}, set()]


def test_a_copy_of_the_whole_is_read_once_and_again_reads_all(copy: Path) -> None:
    both = {"a.csv", "b.csv"}
    assert [read_by(begun(copy, again=again)) for again in (False, False, True)] == [both, set(), both]


def test_a_version_of_the_changed_content_and_back(copy: Path) -> None:
    """Also where an earlier version has the size and time of what is there now."""
    file, texts = copy / "rows/a.csv", [(copy / "rows/a.csv").read_bytes()]
    for number in (8, 9):
        texts.append(texts[0].replace(b"a7,7\n", b"a7,%d\n" % number))
        file.write_bytes(texts[-1])
        os.utime(file, (1e9, 1e9))
        made = built(copy)
        [record] = [record for record in open_dataset(made.folder).records("train") if record.key == "a7"]
        assert (made.is_new, record.values["n"]) == (True, b"%d" % number)
        assert not built(copy).is_new


def test_a_file_that_is_replaced_while_it_is_read(copy: Path) -> None:
    changed = begun(copy)
    plan = changed.plan()
    check_unchanged(plan, changed.files)
    by_rename(copy / "rows/b.csv")
    os.utime(copy / "rows/b.csv", (1e9, 1e9))
    with raises(InputsChangedError, "rows/b.csv", "another"):
        check_unchanged(plan, changed.files)


def test_work_of_a_killed_build_is_of_what_was_seen(copy: Path) -> None:
    pieces = begun(copy).plan().pieces
    assert begun(copy).plan().pieces == pieces
    copied(copy / "rows/a.csv")
    assert begun(copy).plan().pieces != pieces


@pytest.mark.parametrize(("age", "waits"), [(0.5, 1.5), (3.0, 0.0), (-1e6, 2.0)])
def test_a_reader_waits_for_the_clock_of_the_file_system(
    age: float, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit in the tick of the last one gets its time; where the clock was set back, nobody waits for it."""
    slept = list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    file = LocalFiles().match(__file__)[0]._replace(changed=1e9 - age)
    with constants(input_table, TICK_SECONDS=2.0):
        input_table.settle([input_table.Group(None, [file])])  # type: ignore[arg-type]
    assert slept == [waits]
