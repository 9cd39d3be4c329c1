"""`recordmill show --record KEY --spec`: the file and line that a record was made of, and whether the file changed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from PIL import Image

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.inputs.input_table import SCHEMA, Remembered
from recordmill.pipeline.build.inputs.span_sources import Group, SpanSource
from recordmill.pipeline.build.results.row_origins import _since
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import FileInfo, LocalFiles
from recordmill.pipeline.spec.model import load_spec
from tests.messages import assert_names, raises

pytestmark = pytest.mark.slow
WITHOUT_TENSORFLOW = """
import sys
sys.modules |= dict.fromkeys(("tensorflow", "apache_beam", "tensorflow_transform"))
from recordmill.pipeline.cli.commands import app
app(["show", "out", "--record", "tuesday-7", "--spec", "dataset.yaml"])
"""


def days(folder: Path, path: str, more: str = "key: id") -> str:
    """Builds two days of rows, with an empty line in each file; gives the output."""
    for day in ("monday", "tuesday"):
        (folder / "rows" / day).mkdir(parents=True)
        lines = [f'{{"id": "{day}-{number}", "n": {number}}}' for number in range(20)]
        (folder / "rows" / day / "a.jsonl").write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    build(load_spec(write_spec(folder, path, more)), str(folder / "out"))
    return str(folder / "out")


def write_spec(folder: Path, path: str, more: str = "key: id") -> str:
    (folder / "dataset.yaml").write_text(
        f"name: d\nsource: {{format: jsonl, path: '{folder}/rows/{path}'}}\n{more}\ngate: false\n"
        "features: {n: {kind: number, normalize: none}}\n"
    )
    return str(folder / "dataset.yaml")


def shown(capsys: pytest.CaptureFixture[str], output: str, key: str) -> list[str]:
    spec = str(Path(output).parent / "dataset.yaml")
    app(["show", output, "--record", key, "--spec", spec], standalone_mode=False)
    return [line.strip() for line in capsys.readouterr().out.splitlines()[2:]]


@pytest.mark.first(1)
@pytest.mark.parametrize("path", ["{span}/*.jsonl", "*/*.jsonl"])
def test_the_file_and_line_of_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    output, file = days(tmp_path, path), tmp_path / "rows/tuesday/a.jsonl"
    (same,) = shown(capsys, output, "tuesday-7")
    assert same.startswith(f"from {file}, line 9; ")
    os.utime(file, (1e9, 1e9))
    assert shown(capsys, output, "tuesday-7") == [same]
    done = subprocess.run([sys.executable, "-c", WITHOUT_TENSORFLOW], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert same in done.stdout
    file.write_text("\n" + file.read_text())
    (line,) = shown(capsys, output, "tuesday-7")
    assert_names(line, f"from {file}, line 10; ", "changed")
    (file.parent / "b.jsonl").write_text(file.read_text())
    file.write_text('{"id": "other", "n": 1}\n')
    (line,) = shown(capsys, output, "tuesday-7")
    assert_names(line, f"from {file.parent}/b.jsonl, line 10; ", "without")
    (file.parent / "b.jsonl").unlink()
    (line,) = shown(capsys, output, "tuesday-7")
    assert_names(line, "/dataset.yaml", "no row")


@pytest.mark.parametrize("path", ["{span}/*.jsonl", "*/*.jsonl"])
def test_the_files_and_lines_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    output = days(tmp_path, path)
    rows = open_dataset(output).training_input(batch_size=8).rows(1)
    options = ["--step", "1", "--batch-size", "8", "--spec", str(tmp_path / "dataset.yaml")]
    app(["show", output, *options], standalone_mode=False)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if " from " in line]
    names = (row.key.split("-") for row in rows)  # each file's sixth line is empty
    places = [f"from {tmp_path}/rows/{day}/a.jsonl, line {int(n) + 1 + (int(n) > 4)}; " for day, n in names]
    assert [line[: len(place)] for line, place in zip(lines, places, strict=True)] == places
    for day in ("monday", "tuesday"):
        (tmp_path / f"rows/{day}/a.jsonl").write_text('{"id": "other", "n": 1}\n')
    app(["show", output, *options], standalone_mode=False)
    assert capsys.readouterr().out.count(f" from no row of the sources of {tmp_path}/dataset.yaml") == len(places)


@pytest.mark.nightly
def test_a_record_whose_row_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), (len(name), 9, 60)).save(tmp_path / "images" / name / "1.png")
    (tmp_path / "dataset.yaml").write_text(
        f"name: d\nsource: {{format: image_folder, path: '{tmp_path}/images/{{span}}'}}\n"
        "features: {image: {kind: image, size: [4, 4]}}\n"
    )
    output = str(tmp_path / "out")
    build(load_spec(str(tmp_path / "dataset.yaml")), output)
    (line,) = shown(capsys, output, "b/1.png")
    assert line.startswith(f"from {tmp_path}/images/b/1.png; ")


@pytest.mark.nightly
def test_a_record_whose_key_is_its_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for red in range(2):
        Image.new("RGB", (4, 4), (red, 9, 60)).save(tmp_path / f"{red}.png")
    (tmp_path / "rows.jsonl").write_text('{"image": "0.png"}\n{"image": "1.png"}\n{"image": "gone.png"}\n')
    (tmp_path / "dataset.yaml").write_text(
        "name: d\nsource: {format: jsonl, path: rows.jsonl}\nkey: {content: image}\nsplits: {train: 1}\n"
        "rejects: {max_share: 1}\nfeatures: {image: {kind: image, size: [4, 4]}}\n"
    )
    output = str(tmp_path / "out")
    build(load_spec(str(tmp_path / "dataset.yaml")), output)
    keys = [record.key for record in open_dataset(output).records("train")]
    places = [shown(capsys, output, key.decode() if isinstance(key, bytes) else key) for key in keys]
    assert sorted(line.partition(",")[2].partition(";")[0] for (line,) in places) == [" line 1", " line 2"]


def test_a_spec_is_for_a_record(tmp_path: Path) -> None:
    with raises(UserError, "--spec", "--record KEY"):
        app(["show", str(tmp_path), "--spec", "dataset.yaml"], standalone_mode=False)


def test_an_object_without_a_digest_is_not_read(tmp_path: Path) -> None:
    class Unreadable(LocalFiles):
        def open(self, path: str) -> BinaryIO:
            raise AssertionError(path)

    source = SpanSource(load_spec(write_spec(tmp_path, "*.jsonl")).resolved_sources()[0], 0, {})
    row = {"source": 0, "span": None, "path": b"a", "bytes": 1, "modified": 0.0, "identity": 0.0, "sha256": None}
    remembered = Remembered(pa.Table.from_pylist([row | {"tag": "old"}], SCHEMA), by_span=False)
    group = Group(source, [FileInfo("a", 1, 0.0, "new")])
    assert_names(_since(remembered, group, "a", Unreadable()), "changed")
