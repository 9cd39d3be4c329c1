"""Records of a version as people and programs read them: chosen, decoded by kind; `recordmill head`, `show --json`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline import inspection
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.inspection import LONGEST, lines_of, read_records, shown, to_json
from recordmill.transforms.base.description import Decoding
from recordmill.transforms.images.places_stored import Box
from recordmill.transforms.texts.text_stored import DecodedText, TextDescription
from recordmill.transforms.values.values_stored import Bucket
from tests import published
from tests.messages import assert_names, raises


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    published.write_version(folder)
    return folder


@pytest.fixture
def small(output: Path) -> Dataset:
    return open_dataset(output)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit):
            main(arguments)
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    return run


def test_the_page_of_the_docs_is_what_is_printed(run: Any, output: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/inspect.md").read_text(encoding="utf-8")
    block = page.split("$ recordmill head out/small --key row/7\n")[1].split("```")[0].splitlines()
    lines, _ = run("head", str(output), "--key", "row/7")
    assert lines == block


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--key", "row/1000"], ("row/1000", "--record row/1000`")),
        (["--class", "drak"], ("drak", "`dark`")),
        (["--version", "#7"], ("'#7'",)),
    ],
)
def test_head_names_what_is_not_there(run: Any, output: Path, arguments: list[str], facts: tuple[str, ...]) -> None:
    lines, error = run("head", str(output), *arguments)
    assert lines == []
    assert_names(error, *facts)
    assert "Traceback" not in error


def test_show_json_gives_the_manifest_and_the_versions(run: Any, output: Path) -> None:
    lines, _ = run("show", str(output), "--json")
    shown_ = json.loads("\n".join(lines))
    assert shown_["splits"]["train"]["shards"] == published.LAYOUT.shards["train"]
    assert shown_["features"].keys() == published.FEATURES.keys()
    [version] = shown_["versions"]
    assert (version["version"], version["live"], version["records"]) == (published.VERSION, True, 200)
    _, error = run("show", str(output), "--json", "--record", "row/7")
    assert "recordmill head" in error


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_of_rejects_is_one_line(run: Any, tmp_path: Path, damage: bytes) -> None:
    folder = published.write_version(tmp_path)
    assert_names(run("show", str(tmp_path), "--record", "bad/1")[0], "bad/1", "missing_value")
    (folder / published.REJECTS).write_bytes(b'{"id": null}\n' + damage)
    _, error = run("show", str(tmp_path), "--record", "bad/1")
    assert_names(" ".join(error.split()), f"{published.REJECTS}, line 2", "`recordmill verify`")


@pytest.mark.parametrize(
    ("value", "text", "as_json"),
    [
        (None, "-", None),
        (0.1, "0.1", 0.1),
        (float("-inf"), "-inf", "-Infinity"),
        ([], "none", []),
        (list(range(20)), "0, 1, 2, 3, 4, 5, 6, 7, … (20 values)", list(range(20))),
        (Box(0.0, 0.25, 0.5, 1.0), "[0 0.25 0.5 1]", [0.0, 0.25, 0.5, 1.0]),
        (Bucket(0, float("-inf"), 2.5), "0 [-inf, 2.5)", {"bucket": 0, "from": None, "below": 2.5}),
        (DecodedText((5, 7), None, None), "5 7", [5, 7]),
        (b"a\nb", "a\\nb", "a\nb"),
        ("x" * 5_000, "x" * (LONGEST - 1) + "…", "x" * 5_000),
        (b"\xff\x00", "2 bytes: ff 00", {"base64": "/wA="}),
    ],
)
def test_a_value_is_one_line_and_json(value: Any, text: str, as_json: Any) -> None:
    assert shown(value) == text
    assert to_json(value) == as_json


def test_all_records_come_in_the_order_of_evaluation(small: Dataset) -> None:
    records = list(read_records(small))
    assert [record.position for record in records] == [*range(small.splits["train"]), *range(small.splits["test"])]
    for record in records:
        row = published.row(int(record.key.removeprefix("row/")))
        assert record.values["note"] == row["note"]
        assert record.values["price"] == row["price"]
        assert record.values["label"] == published.CLASSES[row["label"]]
        assert record.values["text"].text == " ".join(published.WORDS[id_ - 2] for id_ in row["text"])


def test_records_are_chosen_by_split_key_class_and_position(small: Dataset) -> None:
    test = list(read_records(small, "test"))
    assert {record.split for record in test} == {"test"}
    wanted = test[7]
    assert list(read_records(small, key=wanted.key)) == [wanted]
    assert list(read_records(small, "train", key=wanted.key)) == []
    assert list(read_records(small, "test", positions=[7, 3])) == [wanted, test[3]]
    dark = [record for record in test if record.values["label"] == "dark"]
    assert list(read_records(small, "test", label="dark")) == dark
    assert list(read_records(small, "test", label="dark", limit=2)) == dark[:2]
    assert [list(record.values) for record in read_records(small, "test", features=["label"], limit=1)] == [["label"]]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"split": "tset"}, ("split 'tset'", "`test`")),
        ({"span": "monday"}, ("span 'monday'", "none")),
        ({"label": "drak"}, ("class 'drak'", "`dark`", "dark, bright")),
        ({"positions": [0]}, ("positions", "split")),
        ({"split": "test", "positions": [1_000]}, ("1,000", "'test'")),
        ({"features": ["lable"]}, ("feature 'lable'",)),
    ],
)
def test_a_wrong_choice_says_what_there_is(small: Dataset, arguments: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(DatasetError, *facts):
        list(read_records(small, **arguments))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    dataset = open_dataset(tmp_path)
    shard = folder / dataset.manifest.splits["test"].shards[0].file
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    with raises(DatasetError, "record 0", shard.name, "`recordmill verify`"):
        list(read_records(dataset, "test"))


@pytest.mark.parametrize(
    ("tokenizer", "words", "text"),
    [
        ("words", ["the", "cat"], "the cat"),
        ("characters", ["a", "▁", "b"], "a b"),
        ("bytes", ["<0xC3>", "<0xA9>", "<0x0A>"], "é\n"),
        ("wordpiece", ["play", "##ing", "now"], "playing now"),
        ("sentencepiece", ["▁the", "▁c", "<0xC3>", "<0xA9>", "t"], "the cét"),
    ],
)
def test_words_are_joined_as_their_tokenizer_cut_them(tokenizer: str, words: list[str], text: str) -> None:
    description = TextDescription(
        max_length=None, vocabulary_size=9, padding_id=0, unknown_id=1, first_id=4, begin_id=2, end_id=3,
        tokenizer=tokenizer,
    )  # fmt: skip
    vocabulary = ["", "[UNK]", "[BEGIN]", "[END]", *words]
    ids = [2, *range(4, len(vocabulary)), 3, 0, 0]
    shown = tuple(vocabulary[id_] for id_ in ids[:-2])
    assert description.text(ids, Decoding(vocabulary, {}, None)) == DecodedText(tuple(ids[:-2]), shown, text)
    assert description.text(ids, Decoding(None, {}, None)).text is None


def test_records_are_a_sequence(small: Dataset) -> None:
    every = list(read_records(small))
    keys = [record.key for record in every]
    assert len(small.records()) == len(every)
    assert [record.key for record in small.records()[-3:]] == keys[-3:]
    assert [record.key for record in small.records(limit=9)[8:2:-2]] == [keys[8], keys[6], keys[4]]
    assert small.records()[-1].position == every[-1].position
    with pytest.MonkeyPatch.context() as patch:  # nothing is read to be counted
        patch.setattr(inspection, "_read", None)
        assert (len(small.records("test", positions=[3, 1, 2], limit=2)), len(small.records(label=None, limit=4))) == (
            2,
            4,
        )
    chosen = small.records("test", positions=(number for number in (3, 1, 2)))
    assert [record.position for record in [*chosen, chosen[-2], *chosen[:2]]] == [3, 1, 2, 1, 3, 1]
    dark = [record.key for record in every if record.values["label"] == small.classes[0]]
    chosen = small.records(label=small.classes[0], features=["label"])
    assert (len(chosen), chosen[1].key, [*chosen[1].values]) == (len(dark), dark[1], ["label"])
    with pytest.raises(IndexError):
        small.records("test")[len(every)]


def test_a_key_is_one_line(small: Dataset) -> None:
    record = next(iter(read_records(small)))
    first, *_ = lines_of(replace(record, key="a\n9  (train"))
    assert_names(first, "a\\n9  (train", record.split)
    assert "\n" not in first
