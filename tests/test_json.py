"""One JSON document: the objects of a list in it are rows, read as those of JSON Lines, however the file is cut."""

import gzip
import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources import batches
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import json as json_source
from recordmill.pipeline.sources.formats import json_document, reader_of
from recordmill.pipeline.sources.options import Json
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.bounds import JSON_KEPT, JSON_ROWS
from recordmill.transforms.base.columns import Column, ColumnType
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, NUMBER, TEXT, read


def article(number: int) -> dict[str, Any]:
    def qas(place: int) -> list[Any]:
        rest = {"question": "é ]}\n?"}
        return [{"id": f"{number}.{place}.{n}", **rest, "answers": [{"text": "x", "at": n}]} for n in range(place)]

    paragraphs = [{"qas": qas(place), "context": f'A "context" {place}'} for place in range(3)]
    return {"title": f"Title {number}", "paragraphs": paragraphs}


SQUAD = {"data": [*map(article, range(4))], "version": "1.1"}
OPTIONS: dict[str, Any] = {
    "rows": "data[].paragraphs[].qas[]",
    "keep": ["data[].title", "data[].paragraphs[].context", "version"],
}
COLUMNS = {"id": CATEGORY, "question": TEXT, "title": TEXT, "context": TEXT, "version": TEXT}
COLUMNS["answers.at"] = Column(ColumnType.NUMBER, many=True)


def squad_rows() -> Iterator[dict[str, Any]]:
    for article in SQUAD["data"]:
        for paragraph in article["paragraphs"]:
            for row in paragraph["qas"]:
                around = {"title": article["title"], "context": paragraph["context"], "version": "1.1"}
                found = {"id": row["id"], "question": row["question"], **around}
                yield found | {"answers.at": [float(each["at"]) for each in row["answers"]]}


def source(path: object, rows: str = "[]", **options: Any) -> SourceReader[Any]:
    return reader_of(Json(format="json", path=str(path), rows=rows, **options))


def write(folder: Path, text: str | bytes, name: str = "train.json") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_of_squad_with_the_values_around_them(tmp_path: Path, indent: int | None) -> None:
    expected = list(squad_rows())
    text = json.dumps(SQUAD, indent=indent, ensure_ascii=False)
    write(tmp_path, "\ufeff" + text)
    write(tmp_path, gzip.compress(text.encode()), "a.json.gz")
    write(tmp_path, text.encode("utf-16"), "16")
    for size, piece in ((1, 1), (100, 40), (1 << 20, 1 << 20)):
        with constants(json_document, READ_BYTES=piece), constants(batches, BLOCK_BYTES=piece):
            result = read(source(tmp_path / "train.json", **OPTIONS), COLUMNS, size)
            assert result.rows == expected
            assert len(result.plan.chunks) == (1 if size > 1000 else 4)
            assert read(source(tmp_path / "*.gz", **OPTIONS), COLUMNS, size).rows == expected
            assert read(source(tmp_path / "16", encoding="utf-16", **OPTIONS), COLUMNS, size).rows == expected
            plan = result.plan
            assert (plan.rows, plan.is_exact, plan.notes) == (12, True, ["unused columns: answers.text"])


def test_what_rows_keep_is_counted_before_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, rows = "x" * 1_000, [{"id": str(number)} for number in range(20)]
    given = [{"c": kept, "r": rows[:2]}, {"c": kept, "r": rows}]
    monkeypatch.setattr(json_source, "JSON_ROWS", JSON_ROWS._replace(most=9_000))
    found = read(source(write(tmp_path, json.dumps(given)), "[].r[]", keep=["[].c"]), {"id": TEXT, "c": TEXT})
    assert [row["id"] for row in found.rows] == ["0", "1"]
    assert [(reject.reason, "9,000" in reject.message) for reject in found.rejects] == [("too_large", True)]
    monkeypatch.setattr(json_source, "JSON_KEPT", JSON_KEPT._replace(most=9_000))
    path = write(tmp_path, json.dumps({"c": kept, "r": rows}))
    with raises(SourceError, "train.json", "20,0", "9,000", "`keep`"):
        read(source(path, "r[]", keep=["c"]), {"id": TEXT})


def test_the_array_itself_and_its_keys(tmp_path: Path) -> None:
    rows = ['{"a": 1}', '{ "a" : 2.5}', '{"a": -0, "b": "\\u00e9"}']
    result = read(source(write(tmp_path, f"[{', '.join(rows)}]\n")), {"a": NUMBER})
    assert [str(row["a"]) for row in result.rows] == ["1.0", "2.5", "-0.0"]
    assert result.keys == [blake2b(row.encode(), digest_size=16).hexdigest().encode() for row in rows]
    kept = read(source(write(tmp_path, f'{{"x": "k", "r": [{rows[0]}, {{}}]}}'), "r[]", keep=["x"]), {"x": TEXT})
    assert kept.rows == [{"x": "k"}] * 2
    assert kept.keys[0] == blake2b(b'{"x": "k", "a": 1}', digest_size=16).hexdigest().encode()


def test_a_key_is_of_the_kept_values_in_the_order_of_the_option(tmp_path: Path) -> None:
    given, paths = '{"y": 2, "of": {"z": 3, "r": [{"a": 1}]}, "x": 1}', ["[].x", "[].of.z", "[].y"]
    kept = read(source(write(tmp_path, f"[{given}]"), "[].of.r[]", keep=paths), {"a": NUMBER})
    assert kept.keys == [blake2b(b'{"x": 1, "y": 2, "z": 3, "a": 1}', digest_size=16).hexdigest().encode()]


def test_lists_in_lists_and_elements_without_rows(tmp_path: Path) -> None:
    text = '{"é": [[{"n": 1}, {"n": 2}], [], null, [{"n": 3}]], "other": [{"é": [1]}, [[{}]]]}'
    result = read(source(write(tmp_path, text), "é[][]"), {"n": NUMBER}, 1)
    assert [row["n"] for row in result.rows] == [1, 2, 3]
    [note] = (note for note in result.plan.notes if "é[][]" in note)
    assert_names(note, ": 2", "train.json")


BAD = {
    '{"n": 1,}': "character",
    '{"n": tru\n}': "row",
    "[1]": "{",
    '{"n":' + "[" * 300 + "]" * 300 + "}": "200",
    '{"n": "a"}': "number",
}


def test_a_bad_row_is_one_reject_at_its_number(tmp_path: Path) -> None:
    rows = ['{"n": 1}', *(each for bad in BAD for each in (bad, '{"n": 1}'))]
    asked = source(write(tmp_path, f'{{"rows": [{",".join(rows)}]}}'), "rows[]")
    for size in (1, 1 << 20):
        result = read(asked, {"n": NUMBER}, size)
        assert result.rows == [{"n": 1.0}] * (len(BAD) + 1)
        for reject, fact in zip(result.rejects, BAD.values(), strict=True):
            assert_names(f"{reject.reason} {reject.message}", fact)
    [chunk] = result.plan.chunks
    places = [asked.locate(chunk, reject.position) for reject in result.rejects]
    assert places == [("train.json", number) for number in range(2, 2 * len(BAD) + 1, 2)]


def test_a_fault_around_rows_rejects_their_element(tmp_path: Path) -> None:
    text = '{"d": [{"p": [{"n": 1}]}, {"p": {}}, 3, {"q": 1}, {"p": [], "p": []}, {"p": [{"n": 2}]}]}'
    asked = source(write(tmp_path, text), "d[].p[]")
    result = read(asked, {"n": NUMBER})
    assert [row["n"] for row in result.rows] == [1, 2]
    assert [reject.position for reject in result.rejects] == [1, 2, 3]
    for reject, facts in zip(result.rejects, (["list"], ["`p`"], ["`p`", "twice"]), strict=True):
        assert_names(reject.message, "`d[]`", *facts)
    assert result.plan.rows == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=8), st.dictionaries(st.text(max_size=2), JSON, max_size=3), st.integers(1, 60), st.data()
)
def test_rows_are_those_of_the_whole_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, extra: list[Any], around: dict[str, Any], size: int, data: Any
) -> None:
    rows = [{"n": 1, "more": value} for value in extra] or [{"n": 1}]
    items = [*around.items(), ("the rows", rows)]
    document = dict(data.draw(st.permutations(items)))
    text = json.dumps(document, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=data.draw(st.booleans()))
    path = write(tmp_path_factory.mktemp("json"), text.encode("utf-8", "surrogatepass"))
    with constants(json_document, READ_BYTES=data.draw(st.integers(1, 40))):
        result = read(source(path, "the rows[]"), {"n": NUMBER}, size)
    assert len(result.rows) + len(result.rejects) == len(rows) == result.plan.rows


@pytest.mark.parametrize(
    ("text", "rows", "facts"),
    [
        ("no JSON", "[]", ["train.json", "byte 1"]),
        ('{"data": []}', "[]", ["list", "byte 1"]),
        ('{"data": [{}], "b": 1}', "dat[]", ["`dat`", "data, b", "mean `data`"]),
        ('{"data": {"a": 1}}', "data[]", ["list", "byte 10"]),
        ('{"data": [{"a": 1}, {"a"', "data[]", ["byte 21", "closed"]),
        ('{"data": [{"a": 1}]} {}', "data[]", ["byte 22"]),
        ('{"data": [{"a": 1}], "b": nul}', "data[]", ["byte 27"]),
        ('{"data": [{"a": 1}], "data": [{"a": 1}]}', "data[]", ["`data`", "twice"]),
        ("[]", "[]", ["[]", "no JSON object"]),
        ('{"d": [{"qas": [{"a": 1}], "x": 1}]}', "d[].qa[]", ["d[].qa[]", "qas, x", "mean `qas`"]),
        ("[1, 2]", "[]", ["[]", "no JSON object"]),
    ],
)
def test_a_document_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, rows: str, facts: list[str]) -> None:
    with raises(SourceError, *facts) as caught:
        read(source(write(tmp_path, text), rows), {"a": NUMBER})
    assert "\n" not in str(caught.value)


def test_a_kept_name_that_rows_have_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, '{"title": "x", "rows": [{"a": 1}, {"title": "y"}]}')
    with raises(SourceError, "'title'", "`keep`"):
        read(source(path, "rows[]", keep=["title"]), {"a": NUMBER})
    path = write(tmp_path, '{"rows": [{"a": 1, "title": 2}], "title": {"sub": 3}}')
    assert read(source(path, "rows[]"), {"title": NUMBER}).rows == [{"title": 2.0}]


def test_memory_holds_one_element_not_the_document(tmp_path: Path) -> None:
    with constants(json_document, READ_BYTES=64, MOST_CHARACTERS=200):
        many = write(tmp_path, json.dumps({"a": {"b": [[1] * 9] * 99}, "rows": [{"n": 1}] * 99}))
        assert len(read(source(many, "rows[]"), {"n": NUMBER}).rows) == 99
        long = write(tmp_path, json.dumps([{"n": 1, "t": "x" * 2000}]))
        with raises(SourceError, "train.json", "byte"):
            read(source(long), {"n": NUMBER})


SPEC = "name: a\nsource: {format: json, path: a.json, OPTIONS}\nfeatures: {t: {kind: text}}\n"


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("split: train", ["source.rows", "needed"]),
        ("rows: data", ["`data[]`"]),
        ("rows: 'data..x[]'", ["source.rows", "'data..x[]'"]),
        ("rows: 'data[].qas[]', keep: ['data[].qas']", ["`data[].qas`", "`data[].KEY`", "`KEY`"]),
        ("rows: 'data[].qas[]', keep: ['data[].qas[].id']", ["`data[].qas[].id`", "`data[].KEY`"]),
        ("rows: 'data[].qas[]', keep: [title, 'data[].title']", ["'title'"]),
        ("rows: '[]', keep: [title]", ["`title`"]),
    ],
)
def test_a_wrong_spec_is_one_line(options: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace("OPTIONS", options))


def test_an_item_of_too_many_signs_is_one_line(tmp_path: Path) -> None:
    bound = json_document.JSON_ITEM._replace(most=1_000)
    file = write(tmp_path, '{"d": [{"n": 1}, [' + "[]," * 5_000 + "[]]]}")
    with constants(json_document, JSON_ITEM=bound, READ_BYTES=512), raises(SourceError, str(file), "limit of 1,000"):
        read(source(file, "d[]"), {"n": NUMBER})
