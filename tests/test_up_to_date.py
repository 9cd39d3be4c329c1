"""Nothing to do is known by a listing: no file is opened; files of another time are compared by their content."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pyarrow.feather
import pytest

from recordmill.pipeline.build.build import build, source_files
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE, SCHEMA, Listings, Remembered
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.plan.under_way import Build, InputsChangedError, check_unchanged
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.dataset.manifest import read_latest
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.verify.verify import verify
from tests.messages import assert_names, raises

pytestmark = pytest.mark.slow
ROWS = "".join(f"k{row},{row},x\n" for row in range(60))


class _OpenedError(Exception):
    """An input was opened."""


class Dataset:
    """A spec, of CSV files where it is not another, and its output."""

    def __init__(self, folder: Path, spec: str = "") -> None:
        self.output = str(folder / "out")
        self.spec = parse_spec(
            spec
            or f"name: d\nsource: {{format: csv, path: {folder}/rows}}\nkey: id\nshards: 1\n"
            "features: {price: {kind: number, normalize: none}}"
        )

    def begin(self) -> Build:
        return Build(self.spec, self.output, Listings(source_files()))

    def is_up_to_date(self) -> bool:
        return self.begin().done is not None

    def plan(self) -> tuple[BuildPlan, Listings]:
        build = self.begin()
        assert not build.done
        return build.plan(), build.files

    def is_known_at_once(self, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Whether the live version is found without opening any input."""

        def refuse(files: LocalFiles, path: str) -> BinaryIO:
            raise _OpenedError(path)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "open", refuse)
            try:
                return self.is_up_to_date()
            except _OpenedError:
                return False


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("up_to_date")
    (folder / "rows").mkdir()
    for name in "ab":
        (folder / f"rows/{name}.csv").write_text(f"id,price,unread\n{ROWS.replace('k', name)}")
        os.utime(folder / f"rows/{name}.csv", (1e9, 1e9))
    assert build(Dataset(folder).spec, Dataset(folder).output).is_new
    return folder


def test_a_version_remembers_its_inputs(built: Path) -> None:
    folder = built / "out/versions" / read_latest(built / "out").version
    rows = pyarrow.feather.read_table(folder / "inputs.arrow").to_pylist()
    data = [(built / f"rows/{name}.csv").read_bytes() for name in "ab"]
    assert [(row["source"], row["span"], row["path"], row["bytes"], row["sha256"]) for row in rows] == [
        (0, None, path, len(content), hashlib.sha256(content).digest())
        for path, content in zip([b"a.csv", b"b.csv"], data, strict=True)
    ]
    seen = [str((file.stat().st_ctime, file.stat().st_ino)) for file in sorted((built / "rows").iterdir())]
    assert [(row["modified"], row["identity"], row["tag"]) for row in rows] == [(1e9, 1e9, tag) for tag in seen]
    assert verify(str(built / "out")).is_whole


def test_from_an_unchanged_to_a_changed_file(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, a, b = Dataset(built), built / "rows/a.csv", built / "rows/b.csv"
    assert dataset.is_known_at_once(monkeypatch)
    os.utime(a, (2e9, 2e9))
    assert not dataset.is_known_at_once(monkeypatch)  # its content is compared
    assert dataset.is_up_to_date()
    assert dataset.is_known_at_once(monkeypatch)  # `LATEST` remembers it, and the first listing
    assert len(read_latest(built / "out").same) == 2

    b.write_text(b.read_text().replace("b59,59", "b59,58"))
    os.utime(b, (1.5e9, 1.5e9))
    with_touched = dataset.plan()[0].source_key
    os.utime(a, (1e9, 1e9))
    assert with_touched == dataset.plan()[0].source_key  # a touched file changes no key
    os.utime(b, (1.6e9, 1.6e9))
    assert with_touched == dataset.plan()[0].source_key  # nor does one whose content is new
    b.write_text(b.read_text().replace("b59,58", "b59,57"))
    os.utime(b, (1.6e9, 1.6e9))
    assert with_touched != dataset.plan()[0].source_key


def test_a_file_that_is_touched_in_mid_build_counts_as_changed(built: Path) -> None:
    dataset, a, b = Dataset(built), built / "rows/a.csv", built / "rows/b.csv"
    os.utime(a, (2.1e9, 2.1e9))
    b.write_text(b.read_text().replace("b58,58", "b58,57"))
    plan, files = dataset.plan()
    check_unchanged(plan, files)
    os.utime(a, (2.2e9, 2.2e9))
    with raises(InputsChangedError, "a.csv", "another"):
        check_unchanged(plan, files)


def test_the_same_bytes_make_no_version(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, output = Dataset(built), built / "out"
    for name in "ab":
        (built / f"rows/{name}.csv").write_text(f"id,price,unread\n{ROWS.replace('k', name).replace(',x', ',y')}")
    live, notes = read_latest(output).version, list[str]()
    again = build(dataset.spec, dataset.output, listener=Listener(on_note=notes.append))
    assert (again.is_new, again.went_live, again.manifest.version) == (False, False, live)
    assert_names(notes, "byte for byte")
    assert (os.listdir(output / "versions"), ".building" in os.listdir(output)) == ([live], False)
    assert dataset.is_known_at_once(monkeypatch)


def test_a_version_without_inputs_remembers_none(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(SCHEMA.empty_table(), str(tmp_path / INPUTS_FILE))
    assert Remembered.read(tmp_path, by_span=False) is None
    (tmp_path / INPUTS_FILE).write_bytes(b"damaged")
    assert Remembered.read(tmp_path, by_span=False) is None


def test_a_listing_of_more_files_than_are_used_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "metadata.csv").write_text("file_name,price\n" + "".join(f"{row}.bin,{row}\n" for row in range(30)))
    for row in range(31):
        (rows / f"{row}.bin").write_bytes(b"data")
    text = f"name: d\nsource: {{format: image_folder, path: {rows}}}\nfeatures: {{price: {{kind: number}}}}"
    dataset = Dataset(tmp_path, text)
    first = build(dataset.spec, dataset.output)
    assert first.is_new
    assert dataset.is_known_at_once(monkeypatch)
    (rows / "30.bin").write_bytes(b"of no row")
    assert not dataset.is_known_at_once(monkeypatch)
    again = build(dataset.spec, dataset.output)
    assert (again.is_new, again.went_live) == (False, False)
    assert dataset.is_known_at_once(monkeypatch)
