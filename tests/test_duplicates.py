"""Rows of equal content are counted, dropped or refused, in any order; `test_duplicate_buckets` compares a model."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.build.beam.placement import place
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowSchema
from recordmill.pipeline.build.context.reports import chunk_step
from recordmill.pipeline.build.duplicates.decisions import count, count_keys, leave_out, published
from recordmill.pipeline.build.duplicates.find import DuplicatesError, all_take_part, members
from recordmill.pipeline.build.duplicates.fingerprints import (
    content_features,
    content_table,
    digest_rows,
    file_digests,
    fingerprints,
    numbered,
)
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.build.worker.placement import CONTENTS
from recordmill.pipeline.dataset.placement import Layout, hash_key
from recordmill.pipeline.facts.version import duplicate_lines, duplicate_warnings, leaks
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Block, Chunk
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.spec.split_by import Duplicates, SplitBy
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.texts.text_spec import Text
from tests.messages import assert_names, raises

LAYOUT = Layout({"train": 60, "validation": 20, "test": 20}, {"train": 2, "validation": 1, "test": 1})
COLUMNS = {"text": Column(ColumnType.TEXT), "who": Column(ColumnType.CATEGORY)}
FORM = RowSchema(columns=COLUMNS, features={"text": "text"}, key=None, label=None, classes=None)
FEATURES = {"text": Text(kind="text")}
Row = tuple[str, str, str]
"""Its key, its text and its group."""


def work(folder: Path, action: str, form: RowSchema = FORM) -> PlannedBuild:
    """What is used of a build."""
    source = SimpleNamespace(locate=lambda chunk, position: (chunk.file, position + 1))
    return PlannedBuild(
        name="t", workspace=LocalStore(str(folder)), shards=LocalStore(str(folder)), scratch=str(folder),
        features=FEATURES, learned={}, analyzed=frozenset(), schema=form, layout=LAYOUT,
        readers=(source,), spans=(None,), roots=(), files=None, inline=True, pack_bytes=0,  # type: ignore[arg-type]
        set_threads=1, sample_share=1.0, models={},
        duplicates=Duplicates(action=action)
    )  # fmt: skip


def keyed(rows: Sequence[Row], chunk: int, form: RowSchema) -> pa.Table:
    table = {
        "text": [text for _, text, _ in rows],
        "who": [who for _, _, who in rows],
        "@key": pa.array([key.encode() for key, _, _ in rows], pa.binary()),
        "@position": pa.array(range(len(rows)), pa.int64()),
    }
    block = Block(pa.table(table), [], len(rows))
    return key_rows(block, Chunk(chunk, 0, f"{chunk}.jsonl", 0), form, LAYOUT)[0]


def read(chunks: Sequence[Sequence[Row]], form: RowSchema = FORM) -> list[pa.Table]:
    return [keyed(rows, chunk, form) for chunk, rows in enumerate(chunks)]


def contents(chunks: Sequence[Sequence[Row]], form: RowSchema = FORM) -> list[pa.Table]:
    """The contents of chunks."""
    tables = []
    for chunk, rows in enumerate(read(chunks, form)):
        table = content_table(rows, digest_rows(rows, ["text"], {}), {})
        numbers = pa.array(numbered(chunk, rows["@position"].to_numpy()), pa.int64())
        tables.append(table.append_column("unit", rows["@unit"]).append_column("row", numbers))
    return tables


class Placed:
    """The decisions of a placement that goes on with the contents that an earlier attempt read."""

    def __init__(self, folder: Path, action: str, chunks: Sequence[Sequence[Row]], form: RowSchema = FORM) -> None:
        folder.mkdir(exist_ok=True)
        self._chunks, self._form, planned = chunks, form, work(folder, action, form)
        self._workspace = planned.workspace
        for chunk, table in enumerate(contents(chunks, form)):
            write_table(self._workspace, f"{CONTENTS}/{chunk_step(chunk)}.arrow", table)
        listed = [Chunk(chunk, 0, f"{chunk}.jsonl", 0) for chunk in range(len(chunks))]
        self.decisions = place(planned, listed, make_runner())
        assert place(planned, [], make_runner()) == self.decisions  # a later attempt takes them over

    def left(self) -> list[tuple[pa.Table, list[Reject], int]]:
        """Returns the rows that stay, the rejects and the number of duplicates, by chunk."""
        tables = read(self._chunks, self._form)
        decided = [self._read(self.decisions.dropped, chunk) for chunk in range(len(tables))]
        return [
            (rows, [], 0) if dropped is None else leave_out(dropped, rows)
            for rows, dropped in zip(tables, decided, strict=True)
        ]

    def _read(self, folder: str | None, chunk: int) -> pa.Table | None:
        return read_table(self._workspace, f"{folder}/{chunk_step(chunk)}.arrow")


def rows_of(seed: int, count: int = 40, *, again: float = 0.0) -> list[Row]:
    """Rows of as many texts, some of them several times and others never; `again`: the share of repeated keys."""
    random = np.random.default_rng(seed)
    rows = []
    for row, text in enumerate(random.integers(0, count, count).tolist()):
        number = random.integers(row + 1) if random.random() < again else row
        rows.append((f"k{number}", f"text {text}", f"p{text % 3}-{row % 7}"))
    return rows


def in_chunks(rows: Sequence[Row], seed: int) -> list[list[Row]]:
    """The rows in another order, cut anywhere."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(rows))
    cuts = sorted(random.integers(0, len(rows) + 1, 3).tolist())
    return [[rows[place] for place in part] for part in np.split(order, cuts)]


@settings(max_examples=5)
@given(st.integers(0, 10_000))
def test_drop_keeps_the_same_rows_whatever_their_order(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rows, kept = rows_of(seed, 25), []
    for order in range(2):
        left = Placed(tmp_path_factory.mktemp("drop"), "drop", in_chunks(rows, order)).left()
        assert sum(stay.num_rows + dropped for stay, _, dropped in left) == len(rows)
        assert not any(rejects for _, rejects, _ in left)
        kept.append(sorted(key for stay, _, _ in left for key in stay["@key"].to_pylist()))
    assert kept[0] == kept[1]
    firsts = {
        text: min((hash_key(k.encode()).position, k) for k, own, _ in rows if own == text)[1] for _, text, _ in rows
    }
    assert kept[0] == sorted(key.encode() for key in firsts.values())


@settings(max_examples=5)
@given(st.integers(0, 10_000))
def test_repeated_keys_are_rejects_and_no_duplicates(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rows = rows_of(seed, 25, again=0.3)
    ((stay, rejects, dropped),) = Placed(tmp_path_factory.mktemp("again"), "drop", [rows]).left()
    assert stay.num_rows + dropped + len(rejects) == len(rows)
    keys = [key for key, _, _ in rows]
    for reject in rejects:
        assert (reject.reason, reject.first_chunk) == ("duplicate_key", 0)
        assert reject.first_position == keys.index(reject.key or "") < reject.position
    taking_part = {key: text for key, text, _ in reversed(rows)}  # the first of each key
    assert dropped == len(taking_part) - len(set(taking_part.values()))
    remaining = {key.decode() for key in stay["@key"].to_pylist()}
    assert {taking_part[key] for key in remaining} == set(taking_part.values())
    assert len({taking_part[key] for key in remaining}) == len(remaining)


def test_duplicates_are_counted_within_and_across_splits() -> None:
    keys = [f"k{number}" for number in range(200)]
    splits = dict(zip(keys, read([[(key, "", "") for key in keys]])[0]["@split"].to_pylist(), strict=True))
    train, validation, test = ([key for key in keys if splits[key] == place] for place in range(3))
    rows = [(key, "a", "") for key in (*train[:3], test[0], test[1])]
    rows += [(key, "b", "") for key in validation[:2]]
    rows += [(key, "c", "") for key in (validation[2], test[2])]
    rows += [(key, f"alone {key}", "") for key in train[3:]] + [(key, "", "") for key in validation[3:]]
    files = contents(in_chunks(rows, 5))
    found = members(all_take_part(fingerprints(pa.concat_tables(files), "hash", "sample")))
    counts = published(count(found), LAYOUT.splits, lambda chunk: files[chunk])
    assert (counts["groups"], counts["rows"]) == (3, 6)
    assert counts["within"] == {"train": 2, "validation": 1, "test": 1}
    assert counts["across"] == {"train": {"test": 2}, "validation": {"test": 1}}
    texts = {key: text for key, text, _ in rows}
    pairs = [{(one["split"], texts[one["key"]]) for one in pair} for pair in counts["examples"]]
    assert len(pairs) == 3
    assert {("train", "a"), ("test", "a")} in pairs[:2]  # of two splits first
    assert pairs[2] == {("validation", "b")}


def test_keys_in_several_splits_are_counted_where_there_can_be_any() -> None:
    form = RowSchema(**{**FORM.__dict__, "split_by": SplitBy(column="who")})
    rows = [("a", "1", "train"), ("b", "2", "train"), ("b", "3", "test"), ("c", "4", "test")]
    assert count_keys(pa.concat_tables(contents([rows[:2], rows[2:]], form))).groups == 1
    assert count_keys(pa.concat_tables(contents([[]], form))).groups == 0
    by_source = RowSchema(**{**FORM.__dict__, "source_splits": (None, "test")})
    assert [schema.keys_may_cross for schema in (FORM, form, by_source)] == [False, True, True]
    assert list(duplicate_warnings({"keys_across": 0})) == []
    (one,), (two,) = (duplicate_warnings({"keys_across": count}) for count in (1, 2))
    assert_names(one, "1 key ", "several splits")
    assert_names(two, "2 keys ", "several splits")


def test_what_is_told_of_duplicates() -> None:
    counts = {
        "groups": 1, "rows": 2, "within": {"train": 1}, "across": {"train": {"test": 1}},
        "examples": [[{"split": "train", "key": "a"}, {"split": "test", "key": "b"}]],
    }  # fmt: skip
    none = {"groups": 0, "rows": 0, "within": {}, "across": {}, "examples": []}
    duplicates = {"content": ["image", "text"], "exact": counts, "near": {"distance": 6, **none}}
    (warning,) = duplicate_warnings(duplicates)
    assert_names(warning, "1 row of test", "in train")
    exact, across, example, near = duplicate_lines(duplicates)
    assert_names(exact, "1 group", "image and text", "2 rows", "1 within train")
    assert (across, example) == (warning, "  a (train), b (test)")
    assert_names(near, "no rows", "images", "6 bits")
    assert (list(duplicate_warnings({})), list(duplicate_lines({})), leaks(none)) == ([], [], "")


def test_fail_names_the_first_pairs(tmp_path: Path) -> None:
    rows = [("a", "same", ""), ("b", "other", ""), ("c\x1b[2J", "same", "")]
    pairs = "'a' of 0.jsonl and 'c\\x1b[2J' of 0.jsonl", "'b' of 0.jsonl and 'd' of 1.jsonl"
    with raises(DuplicatesError, "2 rows", "2 groups", "1 row of ", *pairs, "`duplicates: drop`"):
        Placed(tmp_path / "fail", "fail", [rows, [("d", "other", "")]])
    assert Placed(tmp_path / "clean", "fail", [rows[:2]]).decisions.dropped is None


@pytest.mark.parametrize("action", ["drop", "same_split", "fail"])
def test_no_rows_have_no_duplicates(tmp_path: Path, action: str) -> None:
    (none, *_), (one, *_) = Placed(tmp_path / "none", action, [[], [("a", "x", "")]]).left()
    assert (none.num_rows, one.num_rows) == (0, 1)


ARRAY, TEXT = "array: {kind: 'array', dtype: uint8, shape: [2]}", "text: {kind: text}"
PICTURE, NUMBER, ID = "image: {kind: image, size: 8}", "number: {kind: number}", "id: {kind: raw, type: int64}"
FRAMES = "kind: image_sequence, column: y, size: 8, max_length: "


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ([PICTURE, NUMBER, TEXT], "image text"),
        ([PICTURE, "again: {kind: image, size: 8}"], "image again"),
        ([NUMBER, ID], "number"),
        ([ID], ""),
        ([ARRAY, TEXT, NUMBER], "array text"),
        ([PICTURE, "mask: {kind: mask, image: image}", ARRAY], "image array"),
        ([PICTURE, "b: {kind: image, size: 8, column: image}"], "image"),  # of those that read one column the first
        ([f"c: {{{FRAMES}2}}", f"d: {{{FRAMES}3}}", f"e: {{{FRAMES}2}}"], "c d"),
        ([TEXT, "g: {kind: text, column: text, max_length: 3}"], "text"),
    ],
)
def test_pictures_arrays_and_texts_are_the_content_or_else_all_but_the_key(features: list[str], names: str) -> None:
    spec = parse_spec(f"name: a\nsource: {{format: jsonl, path: a}}\nkey: id\nfeatures: {{{', '.join(features)}}}\n")
    columns = {name: feature.column or name for name, feature in spec.features.items()}
    assert content_features(spec.features, RowSchema({}, columns, ("id",), None, None)) == names.split()


def test_the_looks_of_several_images_lie_side_by_side_also_of_no_rows() -> None:
    rows = keyed([("a", "x", ""), ("b", "y", "")], 0, FORM)
    looks = {"one": [b"1" * 16, b"2" * 16], "two": [b"3" * 16, b"4" * 16]}
    table = content_table(rows, [b"d" * 16] * 2, looks)
    assert table["looks"].to_pylist() == [b"1" * 16 + b"3" * 16, b"2" * 16 + b"4" * 16]
    none = content_table(rows.slice(2), [], {name: [] for name in looks})
    assert pa.concat_tables([none, table])["looks"].to_pylist() == table["looks"].to_pylist()


def test_a_picture_with_another_text_is_another_content() -> None:
    rows = pa.table({"text": pa.array([b"a", b"b", b"a", b"", b"a"], pa.binary())})
    files = [file_digests([b"1"]), file_digests([b"1"]), file_digests([b"1"]), b"", file_digests([b"2"])]
    one, two, three, none, other = digest_rows(rows, ["image", "text"], {"image": files})
    assert one == three
    assert len({one, two, other, none}) == 4
    assert none == bytes(16)
    assert digest_rows(rows, [], {}) == [bytes(16)] * 5, "without content a row equals no other"


def test_all_types_of_values_are_compared() -> None:
    def of(**changes: Any) -> bytes:
        values = {"n": 1.5, "i": 7, "l": [1.0, 2.0], "b": b"x", "c": [b"y", b"z"]} | changes
        flat = {"n": pa.float32(), "i": pa.int64(), "b": pa.binary()}
        types = {**flat, "l": pa.list_(pa.float32()), "c": pa.list_(pa.binary())}
        rows = pa.table({name: pa.array([None, values[name]], kind).slice(1) for name, kind in types.items()})
        return digest_rows(rows, list(types), {})[0]

    assert of() == of()
    different = [of(), of(n=2.5), of(i=8), of(l=[1.0]), of(b=b""), of(c=[b"yz"]), of(c=[b"y"], b=b"xz")]
    assert len(set(different)) == len(different)


SPEC = "name: a\nsource: {format: jsonl, path: a.jsonl}\nkey: id\nfeatures: {t: {kind: text}, c: {kind: category}}\n"


def test_an_action_may_stand_alone() -> None:
    assert parse_spec(SPEC).duplicates == Duplicates()
    assert parse_spec(f"{SPEC}duplicates: drop\n").duplicates == Duplicates(action="drop")
    pictures = SPEC.replace("text", "image, size: 8")
    found = parse_spec(f"{pictures}duplicates: {{action: fail, near: true, distance: 3}}\n").duplicates
    assert (found.action, found.near, found.distance) == ("fail", True, 3)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        ("duplicates: remove", ["duplicates", "keep", "drop", "same_split", "fail"]),
        ("duplicates: {near: true}", ["`near`", "kind image"]),
        ("split_by: {column: c}\nduplicates: same_split", ["`same_split`", "`split_by: {column: …}`"]),
        (
            "split_by: {time: d, starts: {validation: 2025-01-01, test: 2026-01-01}}\nduplicates: same_split",
            ["`same_split`", "{time: …}"],
        ),
    ],
)
def test_nonsense_is_refused(more: str, facts: list[str]) -> None:
    with raises(SpecError, *facts):
        parse_spec(f"{SPEC}{more}\n")


def test_options_that_contradict_each_other() -> None:
    with raises(SpecError, "`same_split`", "a source's `split`", "`drop` or `keep`"):
        parse_spec(SPEC.replace("a.jsonl}", "a.jsonl, split: test}") + "duplicates: same_split\n")
    assert parse_spec(SPEC.replace("a.jsonl}", "a.jsonl, split: test}") + "duplicates: drop\n")
    with raises(ValidationError, "`distance`", "`near: true`"):
        Duplicates(distance=3)


BY_COLUMN = RowSchema(
    columns=COLUMNS, features={"text": "text"}, key=None, label=None, classes=None, split_by=SplitBy(column="who")
)
TWICE: list[Row] = [("a", "one text", "train"), ("b", "another", "train"), ("a", "one text", "test")]


def test_one_key_in_two_splits_is_a_duplicate_too(tmp_path: Path) -> None:
    with raises(DuplicatesError, "1 rows", "1 groups"):
        Placed(tmp_path / "fail", "fail", [TWICE], BY_COLUMN)
    ((stay, rejects, dropped),) = Placed(tmp_path / "drop", "drop", [TWICE], BY_COLUMN).left()
    assert (stay.num_rows, dropped, rejects) == (2, 1, [])
