"""Text files joined line by line: row n has line n of each, however the files are cut, written or compressed."""

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.formats import csv_records, reader_of, text
from recordmill.pipeline.sources.formats import text as text_source
from recordmill.pipeline.sources.options import TextFiles
from recordmill.pipeline.sources.source_reader import SourceError, SourceReader
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, INTEGER, NUMBER, TEXT, read

PAIR = {"en": TEXT, "de": TEXT}
NAMES = {"en": "train.en", "de": "train.de"}


def source(path: object, columns: dict[str, str], **options: Any) -> SourceReader[Any]:
    return reader_of(TextFiles(format="text", path=str(path), columns=columns, **options))


def fill(folder: Path, **contents: bytes) -> Path:
    """Writes files: `train_en` is `train.en`."""
    for name, content in contents.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def test_blank_lines_shift_no_row(tmp_path: Path) -> None:
    fill(tmp_path, train_en=b"\xef\xbb\xbfa\n\n \nd\r\n\n", train_de=b"1\n2\n\n4\n\n")
    result = read(source(tmp_path, NAMES), PAIR | {"line": INTEGER, "file_name": CATEGORY})
    assert [tuple(row.values()) for row in result.rows] == [
        ("a", "1", 1, "train.en"), ("", "2", 2, "train.en"), ("d", "4", 4, "train.en")
    ]  # fmt: skip
    assert result.keys[0] == blake2b(b"1:11:a", digest_size=16).hexdigest().encode()  # train.de comes first
    assert result.plan.inputs[0].path == "train.de"


LINES = st.lists(st.tuples(*[st.sampled_from(["", " ", "a", "é" * 9, '"', "x,\t"])] * 2), min_size=1, max_size=30)


@given(LINES, st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.sampled_from(["\n", "\r\n", "\r"]))
def test_rows_are_the_same_however_the_files_are_cut(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], size: int, piece: int, every: int, end: str
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    sides = [end.join(side) + end for side in zip(*pairs, strict=True)]
    for name, side in zip(NAMES.values(), sides, strict=True):
        (folder / name).write_bytes(side.encode())
        (folder / f"{name}.gz").write_bytes(gzip.compress(side.encode()))
        (folder / f"{name}.16").write_bytes(side.encode("utf-16"))
    expected = [(en, de, line) for line, (en, de) in enumerate(pairs, 1) if en.strip() or de.strip()]
    asked = PAIR | {"line": INTEGER}
    with constants(csv_records, PIECE_BYTES=piece), constants(text, STRIDE=every):
        with constants(text_source, BATCH_LINES=2):
            for ending, encoding in (("", "utf-8"), (".gz", "utf-8"), (".16", "utf-16")):
                columns = {name: f"{file}{ending}" for name, file in NAMES.items()}
                found = read(source(folder, columns, encoding=encoding), asked, size)
                assert [tuple(row.values()) for row in found.rows] == expected
                assert len(found.plan.chunks) == 1 or not ending
                assert sum(chunk.bytes for chunk in found.plan.chunks) == found.plan.bytes


def test_a_chunk_is_about_as_large_as_asked_and_rejects_name_line_and_file(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    fill(tmp_path, train_en="\n".join(lines).encode(), n=b"1\n" * 41 + b"x\n" + b"\xff\n" + b"1\n" * 57)
    asked = source(tmp_path, {"en": "train.en", "n": "n"})
    with constants(text, STRIDE=10):
        plan = asked.plan(FILES, {"en": TEXT, "n": NUMBER}, 200)
        result = read(asked, {"en": TEXT, "n": NUMBER}, 200)
    assert 4 <= len(plan.chunks) <= 7
    assert [row["en"] for row in result.rows] == lines[:41] + lines[43:]
    assert [(reject.reason, reject.column) for reject in result.rejects] == [("wrong_type", "n")] * 2
    before = sum(chunk.index < result.rejects[0].chunk for chunk in plan.chunks)
    assert asked.locate(plan.chunks[before], 0)[0] == "train.en"


@constants(csv_records, MAX_LINE_BYTES=50)
def test_a_line_that_is_too_long_rejects_its_row(tmp_path: Path) -> None:
    fill(tmp_path, train_en=b"a\n" + b"b" * 200 + b"\nc\n", train_de=b"1\n2\n3\n")
    result = read(source(tmp_path, NAMES), PAIR)
    assert [row["de"] for row in result.rows] == ["1", "3"]
    [reject] = result.rejects
    assert (reject.reason, reject.position) == ("too_large", 1)


@pytest.mark.parametrize(
    ("contents", "facts"),
    [
        ({"train_en": b"a\nb\nc\n", "train_de": b"1\n2\n"}, ["train.en has 3", "train.de has 2", "remove lines"]),
        ({"train_en": b"a\n", "train_de": b""}, ["train.en has 1", "train.de has 0"]),
        ({"train_en": b"a\nb\n", "train_de": b"1\n2\n\n"}, ["train.en has 2", "train.de has 3"]),
        ({"train_en": b"", "train_de": b""}, ["empty"]),
        ({"train_en": b"a\n", "train_ed": b""}, ["'train.de'", "no file", "mean `train.ed`", "`columns`"]),
    ],
)
def test_files_that_do_not_fit_together(tmp_path: Path, contents: dict[str, bytes], facts: list[str]) -> None:
    with raises(SourceError, *facts):
        read(source(fill(tmp_path, **contents), NAMES), PAIR)


def test_a_column_of_text_is_not_one_of_joined_files(tmp_path: Path) -> None:
    fill(tmp_path, train_en=b"a\n", train_de=b"1\n")
    with raises(SourceError, "'text'", "train.en", "line"):
        read(source(tmp_path, NAMES), PAIR | {"text": TEXT})
    with raises(SourceError, "txet", "mean `text`"):
        read(source(tmp_path, {"caption": "txet"}), {"caption": TEXT})
    row = read(source(tmp_path, NAMES | {"n": "line"}), PAIR | {"n": CATEGORY}).rows[0]
    assert row == {"en": "a", "de": "1", "n": "1"}


SPEC = """
name: pairs
source: {format: text, SOURCE}
features: {en: {kind: text}, de: {kind: text}}
"""


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("split: train", ["`path`", "train.en"]),
        ("columns: {en: text}", ["`path`"]),
        ("columns: {en: ../train.en}", ["'../train.en'", "`path`"]),
        ("columns: {en: /data/train.en}", ["'/data/train.en'", "`path`"]),
        ("columns: {en: train.en}, document: file", ["`document: file`"]),
    ],
)
def test_a_wrong_spec_is_one_line(options: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace("SOURCE", options))


def test_the_folder_is_the_specs_and_each_file_belongs_to_the_build_key(tmp_path: Path) -> None:
    fill(tmp_path, train_en=b"a\n", train_de=b"1\n", dataset_yaml=b"")
    (tmp_path / "dataset.yaml").write_text(SPEC.replace("SOURCE", "columns: {en: train.en, de: ./train.de}"))
    keys = set()
    for lines in (b"1\n", b"22\n"):
        (tmp_path / "train.de").write_bytes(lines)
        plan = make_plan(load_spec(str(tmp_path / "dataset.yaml")), FILES)
        keys.add(plan.build_key)
    assert len(keys) == 2


def test_each_day_joins_its_own_files(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / day).mkdir()
        fill(tmp_path / day, train_en=b"a\n", train_de=day.encode())
    spec = SPEC.replace("SOURCE", f"path: '{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}', columns: {{en: train.en, de: train.de}}")
    plan = make_plan(parse_spec(spec), FILES)
    assert [each.span for each in plan.sources] == ["2026-01-01", "2026-01-02"]


def test_images_may_be_lines_too(tmp_path: Path) -> None:
    fill(tmp_path, train_en=b"a\n", train_de=b"x/1.png\n")
    result = read(source(tmp_path, NAMES), {"en": TEXT, "de": Column(ColumnType.IMAGE)})
    assert result.rows[0]["de"] == b"fx/1.png"
    assert_names(result.plan.names, "train.en")
