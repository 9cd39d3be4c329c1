"""CoNLL: sentences between blank lines are rows, their columns lists of cells."""

import bz2
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import conll, csv_records, reader_of
from recordmill.pipeline.sources.options import Conll
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, ColumnType
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, INTEGER, TEXT, read

WORDS, NUMBERS = Column(ColumnType.TEXT, many=True), Column(ColumnType.NUMBER, many=True)
NER = ("word", "pos", "chunk", "ner")
CONLL_2003 = b"""-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # I-NP O

-DOCSTART- -X- -X- O
Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


"""
CONLLU = """\ufeff# newdoc id = a
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\tMood=Imp\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\tCase=Acc\t1\tobj\t_\t_
3\ta el\ta\tADP\t_\t_\t1\tcase\t_\t_
3.1\tir\t_\t_\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
"""


def source(path: object, columns: tuple[str, ...] = (), form: str = "conll", **options: Any) -> SourceReader[Any]:
    return reader_of(Conll.model_validate({"format": form, "path": str(path), "columns": columns, **options}))


def write(folder: Path, data: bytes, name: str = "train.conll") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def test_columns_of_conll_2003(tmp_path: Path) -> None:
    path = write(tmp_path, CONLL_2003)
    asked = {"word": WORDS, "ner": WORDS, "line": INTEGER, "file_name": CATEGORY}
    for chunk_bytes in (1, 1000):
        result = read(source(path, NER), asked, chunk_bytes)
        assert result.rows == [
            {"word": ["EU", "rejects", "#"], "ner": ["B-ORG", "O", "O"], "line": 3, "file_name": "train.conll"},
            {"word": ["Peter", "Blackburn"], "ner": ["B-PER", "I-PER"], "line": 8, "file_name": "train.conll"},
        ]
    assert (result.plan.rows, result.plan.is_exact) == (2, True)
    assert_names(result.plan.notes, "-DOCSTART- lines", ": 2", "pos")
    cells = b"Peter\tNNP\tB-NP\tB-PER\nBlackburn\tNNP\tI-NP\tI-PER"
    assert result.keys[1] == blake2b(cells, digest_size=16).hexdigest().encode()


def test_conllu_skips_comments_ranges_and_empty_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, CONLLU.encode(), "dev.conllu")
    result = read(source(path, form="conllu"), {"form": WORDS, "id": NUMBERS, "head": WORDS, "line": INTEGER})
    assert result.rows == [
        {"form": ["vamos", "nos", "a el"], "id": [1.0, 2.0, 3.0], "head": ["0", "1", "1"], "line": 5},
        {"form": ["#"], "id": [1.0], "head": ["0"], "line": 11},
    ]
    assert_names(result.plan.notes, "comments, skipped: 4", "multi-word ranges and empty nodes, skipped: 2")
    found = read(source(path, (*NER, *"abcdef"), "conllu"), {"word": WORDS, "pos": WORDS})
    assert found.rows[0]["word"] == ["1-2", "1", "2", "3", "3.1"], "ids are a rule of the column `id`"
    assert_names(found.plan.notes, "`id`", ": 2")
    assert read(source(path, ("X", "ID", *"abcdefgh"), "conllu"), {"X": WORDS}).rows[1] == {"X": ["1"]}


def test_a_sentence_with_a_wrong_line_is_one_reject_at_that_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"# id 7 x\n# k = v\na O\nb O\n\nc O\nd\ne\n\n# NN\ng O\n# a comment\n\nh O\n")
    for chunk_bytes in (1, 1000):
        asked = source(path, ("word", "ner"))
        result = read(asked, {"word": WORDS}, chunk_bytes)
        assert [row["word"] for row in result.rows] == [["a", "b"], ["h"]]
        assert_names(result.plan.notes, "comments, skipped: 2")
        assert [reject.reason for reject in result.rejects] == ["malformed_row"] * 2
    for reject, (line, facts) in zip(result.rejects, {7: ["1 cell", "2"], 12: ["3 cells", "2"]}.items(), strict=True):
        assert asked.locate(result.plan.chunks[0], reject.position) == ("train.conll", line)
        assert_names(reject.message, *facts)
    assert result.plan.rows == 4


TOKENS = st.sampled_from(["a X", "é\tY", "b  Z ", "-DOCSTART- O", "", " ", "c", "x\ty\tz"])


@given(st.lists(TOKENS, max_size=30), st.integers(1, 40), st.integers(1, 9), st.sampled_from(["\n", "\r\n"]))
def test_sentences_are_the_same_however_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int, piece: int, end: str
) -> None:
    text = end.join(["first X", "", *lines])
    folder = tmp_path_factory.mktemp("conll")
    write(folder, text.encode())
    write(folder, bz2.compress(text.encode()), "a.conll.bz2")
    write(folder, text.encode("utf-16"), "16")
    good, bad, sentence = list[list[str]](), 0, list[list[str]]()
    for line in ["first X", "", *lines, ""]:
        cells = line.split("\t") if "\t" in line else line.split()
        if cells and cells[0] != "-DOCSTART-":
            sentence.append(cells)
        elif sentence:
            is_good = all(len(each) == 2 for each in sentence)
            good += [[each[0] for each in sentence]] * is_good
            bad += not is_good
            sentence = []
    with constants(csv_records, PIECE_BYTES=piece), constants(conll, BATCH_SENTENCES=2):
        found = read(source(folder, ("word", "tag")), {"word": WORDS}, size)
        wide = read(source(folder / "16", ("word", "tag"), encoding="utf-16"), {"word": WORDS}, size)
    assert [row["word"] for row in found.rows] == good * 2
    assert (len(found.rejects), found.plan.rows) == (2 * bad, 2 * (bad + len(good)))
    assert [row["word"] for row in wide.rows] == good


@constants(conll, MAX_LINE_BYTES=50)
def test_a_sentence_without_end_is_too_large(tmp_path: Path) -> None:
    result = read(source(write(tmp_path, b"a O\n\n" + b"b O\n" * 99 + b"\nc O\n"), ("word", "tag")), {"word": WORDS})
    assert [row["word"] for row in result.rows] == [["a"], ["c"]]
    assert [reject.reason for reject in result.rejects] == ["too_large"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, CONLL_2003)
    with raises(SourceError, f"{path}, line 3", "4 cells", "`columns`", "2"):
        read(source(path, ("word", "ner")), {"word": WORDS})
    with raises(SourceError, "'wrd'", "mean 'word'"):
        read(source(path, NER), {"wrd": WORDS})
    result = read(source(path, NER), {"word": TEXT})
    assert [reject.reason for reject in result.rejects] == ["wrong_type"] * 2


SPEC = "name: a\nsource: {format: FORMAT, path: a, columns: COLUMNS}\nfeatures: {word: {kind: categories}}\n"


@pytest.mark.parametrize(
    ("form", "columns", "facts"),
    [
        ("conll", "[]", ["`columns`", "[word, pos, chunk, ner]"]),
        ("conll", "{word: '1'}", ["source.columns", "[word, pos, chunk, ner]"]),
        ("conllu", "[word, word]", ["source.columns", "'word'"]),
        ("conll", "[word, '@position']", ["'@position'", "rename"]),
    ],
)
def test_a_wrong_spec_is_one_line(form: str, columns: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace("FORMAT", form).replace("COLUMNS", columns))


def test_a_spec_need_not_use_every_column_and_is_written_as_given() -> None:
    spec = parse_spec(SPEC.replace("FORMAT", "conll").replace("COLUMNS", "[word, tag]"))
    assert spec.model_dump(mode="json")["source"][0]["columns"] == ["word", "tag"]
    assert type(spec).model_validate(spec.model_dump(mode="json")) == spec
