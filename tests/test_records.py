"""Records of a version as people read them: chosen by split, key, class, position and span, and decoded by kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.inspection.values import StoredImage
from recordmill.transforms.contract.kinds.base import Decoding
from recordmill.transforms.contract.kinds.boxes import Box
from recordmill.transforms.contract.kinds.number import Bucket
from recordmill.transforms.contract.kinds.text import DecodedText, TextDescription
from tests import every_kind as kinds
from tests import published
from tests.messages import raises


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    output = tmp_path_factory.mktemp("small")
    published.write_version(output)
    return open_dataset(output)


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


@pytest.fixture(scope="module")
def raw(every_kind: tuple[Path, Any]) -> dict[str, dict[str, Any]]:
    return kinds.raw_rows(every_kind[0] / "in")


@pytest.fixture(scope="module")
def records(every_kind: tuple[Path, Any]) -> list[Record]:
    return list(read_records(open_dataset(every_kind[0] / "out")))


@pytest.mark.slow
def test_names_and_lists_are_those_of_the_source(raw: Any, records: list[Record]) -> None:
    assert len(records) == len(raw)
    for record in records:
        row = raw[record.key]
        assert record.values["label"] == row["label"]
        assert record.values["category"] == row["category"]
        assert record.values["given"] == (row["category"] if row["category"] in ("dog", "cat") else "[UNK]")
        assert record.values["tags"] == row["tags"][:4]
        assert record.values["maybe"] in ((None,) if not row["maybe"] else (row["maybe"], "[UNK]"))
        assert record.values["places"] == row["counts"]
        assert record.values["note"] == row["text"].encode()


@pytest.mark.slow
def test_numbers_are_in_the_units_of_the_source(raw: Any, records: list[Record]) -> None:
    deviation = np.std([row["number"] for row in raw.values()])
    single = np.float32
    for record in records:
        row = raw[record.key]
        assert single(record.values["plain"]) == single(row["number"])
        assert record.values["count"] == row["count"]
        assert record.values["number"] == pytest.approx(row["number"], abs=1e-6 * deviation)
        assert record.values["triple"] == pytest.approx(row["triple"], abs=1e-5)
        bucket = record.values["bucket"]
        assert isinstance(bucket, Bucket)
        assert bucket.low <= single(row["number"]) < bucket.high
        if np.isnan(row["gap"]):
            assert record.values["gap"] is None
        else:
            assert record.values["gap"] == pytest.approx(row["gap"], abs=1e-4)


@pytest.mark.slow
def test_texts_are_words_again(raw: Any, records: list[Record]) -> None:
    for record in records:
        row = raw[record.key]
        assert record.values["bytes"].text == row["text"].lower()
        assert len(record.values["captions"]) == min(3, len(row["captions"]))
        pieces = record.values["pieces"].text
        assert "[UNK]" in pieces or pieces == " ".join(row["text"].lower().split())


@pytest.mark.slow
def test_images_have_formats_and_sizes_and_decode(raw: Any, records: list[Record]) -> None:
    sizes = {"image": (10, 12), "jpeg": (16, 16), "png": (14, 9), "pixels": (8, 8)}
    for record in records[:40]:
        row = raw[record.key]
        for name, size in sizes.items():
            image = record.values[name]
            assert isinstance(image, StoredImage)
            assert (image.width, image.height) == image.pillow().size == size
        assert record.values["jpeg"].format == "JPEG"
        assert record.values["pixels"].format == "raw"
        assert record.values["original"].array().shape == (12, 12, 3)
        assert (record.values["missing"] is None) == (not row["photo"])
        assert len(record.values["frames"]) == min(2, len(row["frames"]))
        boxes = record.values["boxes"]
        assert len(boxes) == min(3, len(row["boxes"]) // 4)
        assert all(isinstance(box, Box) for box in boxes)
