"""Paths with placeholders: which span a file belongs to, and the path of that span alone."""

from pathlib import Path

import pytest

from recordmill.pipeline.build.inputs.span_sources import by_span
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.sources.globs import Template
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests.messages import raises
from tests.tables import write


@pytest.mark.parametrize(("template", "path", "span", "filled"), [
    ("d/{span}", "d/monday/a/b.jpg", "monday", "d/monday"),
    ("d/{span}.csv", "d/a.b.csv", "a.b", "d/a.b.csv"),
    ("d/part-{span}-x.csv", "d/part-a-b-x.csv", "a-b", "d/part-a-b-x.csv"),
    ("d/{span}/**/*.jpg", "d/q/r/s/t.jpg", "q", "d/q/**/*.jpg"),
    ("d/{span}/*.csv", "d/a*b/t.csv", "a*b", "d/a[*]b/*.csv"),
    ("{YYYY}/{MM}/{DD}/*.csv", "2026/11/20/a.csv", "2026-11-20", "2026/11/20/*.csv"),
    ("{YYYY}{MM}{DD}/{YYYY}.csv", "20261120/2026.csv", "2026-11-20", "20261120/2026.csv"),
    ("{YYYY}-{MM}-{DD}T{HH}/x", "2026-11-20T05/x", "2026-11-20T05", "2026-11-20T05/x"),
])  # fmt: skip
def test_what_stands_in_a_placeholder_names_the_span(template: str, path: str, span: str, filled: str) -> None:
    assert Template(template).span_of(path) == span
    assert Template(template).fill(span) == filled


@pytest.mark.parametrize(("template", "path"), [
    ("{YYYY}-{MM}-{DD}", "2026-11-31/a.csv"),
    ("{YYYY}-{MM}-{DD}", "2026-11-3/a.csv"),
    ("{YYYY}-{MM}-{DD}T{HH}", "2026-11-20T24/a.csv"),
    ("{YYYY}{MM}{DD}/{YYYY}.csv", "20261120/2027.csv"),
    ("d{span}/x", "d.hidden/x"),
    ("d/{span}/x", "d/a\x1b/x"),
    ("data/{span}/*.csv", "data/12:30/a.csv"),
    ("data/{span}/*.csv", "data/a\\b/a.csv"),
])  # fmt: skip
def test_other_paths_belong_to_no_span(template: str, path: str) -> None:
    assert Template(template).span_of(path) is None


def test_a_day_has_one_name() -> None:
    for span in ("2026-11-31", "2026-11-20T05", "monday", "../x"):
        assert Template("{YYYY}/{MM}/{DD}").fill(span) is None


def spec(source: str, more: str = "") -> Spec:
    return parse_spec(f"name: d\nsource: {source}\nfeatures: {{n: {{kind: number}}}}\n{more}")


@pytest.mark.parametrize(("source", "more", "facts"), [
    ("{format: csv, path: 'd/{YYYY}-{MM}.csv'}", "", ["{MM}, {YYYY}: ", "{YYYY}, {MM} and {DD}", "[{]MM}"]),
    ("{format: csv, path: 'd/{span}-{DD}.csv'}", "", ["{DD}, {span}: ", "[{]DD}"]),
    ("{format: csv, path: 'd/*.csv', images: 'd/{span}'}", "", ["`images`", "{span}", "`path`"]),
    ("{format: python, path: 'd/{span}', rows: 'm:f'}", "", ["function", "no span"]),
    ("{format: csv, path: 'd/{span}.csv'}", "duplicates: drop", ["duplicates", "all spans"]),
])  # fmt: skip
def test_a_wrong_template_is_refused(source: str, more: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        spec(source, more)


def test_a_source_is_read_in_as_many_parts_as_there_are_spans(tmp_path: Path) -> None:
    for name in ("d/2/a.csv", "d/1/b.csv", "d/1/.c.csv", "old.csv"):
        write(tmp_path / name, "n\n1\n")
    sources = f"[{{format: csv, path: '{tmp_path}/d/{{span}}'}}, {{format: csv, path: '{tmp_path}/old.csv'}}]"
    parts = by_span(spec(sources), LocalFiles())
    assert [(part.span, part.index, part.key_prefix, part.source.path) for part in parts] == [
        ("1", 0, "1/", f"{tmp_path}/d/1"),
        ("2", 0, "2/", f"{tmp_path}/d/2"),
        ("base", 1, "", f"{tmp_path}/old.csv"),
    ]


def test_a_source_whose_files_name_no_span_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "d/2026-02-30/a.csv", "n\n1\n")
    with raises(SourceError, "{DD}/*.csv", "no file"):
        by_span(spec(f"{{format: csv, path: '{tmp_path}/d/{{YYYY}}-{{MM}}-{{DD}}/*.csv'}}"), LocalFiles())
