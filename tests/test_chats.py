"""Chats from their source to a batch: options, built, shown, read in every form, exported, and rejects."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from recordmill import Dataset, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Published
from recordmill.pipeline.errors import UserError, WrongValueError
from recordmill.pipeline.export.export import export
from recordmill.pipeline.spec.features.chat import Chat
from recordmill.pipeline.spec.features.text import Text
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.transforms.contract.kinds.base import Decoding
from recordmill.transforms.contract.kinds.chat import ChatDescription
from recordmill.transforms.contract.stored import FinishOptions, Ragged
from recordmill.transforms.numpy.features import finish
from tests.chats import TEMPLATES, chats, tokenizer, write_model
from tests.messages import raises

MODEL = "m/tokenizer.json"
COLUMNS = {"instruction": "q", "output": "a"}
WRONG: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"column": "c", "columns": COLUMNS}, "column", ("`columns`",)),
    ({"truncate": "start"}, "truncate", ("`max_length`",)),
    ({"columns": COLUMNS, "optional": True}, "optional", ("output",)),
]


@pytest.mark.parametrize(("given", "option", "facts"), WRONG, ids=[str(given) for given, _, _ in WRONG])
def test_what_does_not_go_together(given: dict[str, Any], option: str, facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts) as error:
        Chat(kind="chat", model=MODEL, **given)
    assert error.value.errors()[0]["ctx"]["error"].path == (option,)


@pytest.mark.parametrize("given", [{}, {"model": MODEL, "roles": {"bot": "robot"}}, {"model": MODEL, "train": "none"}])
def test_wrong_values(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Chat(kind="chat", **given)


def test_a_text_has_not_a_chats_vocabulary() -> None:
    features = {"chat": Chat(kind="chat", model=MODEL), "text": Text(kind="text", vocabulary={"shared_with": "chat"})}
    with raises(WrongValueError, "'chat'", "vocabulary"):
        features["text"].check(features)


def test_a_column_has_one_type() -> None:
    features = "features: {chat: {kind: chat, model: m}, text: {kind: text, column: chat}}"
    with raises(UserError, "'chat'", "list of objects", "text"):
        parse_spec(f"name: x\nsource: {{format: jsonl, path: a}}\n{features}\n").columns()


DESCRIBED = ChatDescription(
    max_length=None, vocabulary_size=600, padding_id=9, unknown_id=None, first_id=0, train="assistant"
)
IDS = [[1, 2, 3], [], [4, 5, 6, 7, 8], [9]]
MASKS = [[0, 1, 1], [], [0, 0, 1, 0, 1], [1]]


def ragged(lists: list[list[int]]) -> Ragged:
    ends = np.cumsum([0, *map(len, lists)])
    return Ragged(np.array([each for row in lists for each in row], np.int64), ends.astype(np.int64))


def test_the_id_that_pads_may_end_turns() -> None:
    chat = DESCRIBED.value(
        {"": np.array([1, 9, 2, 9]), "loss_mask": np.array([0, 0, 1, 1])},
        Decoding([f"w{id_}" for id_ in range(10)], {}, lambda *_: None),
    )
    assert chat.ids == (1, 9, 2, 9)
    assert str(chat) == "w1 w9⟦w2 w9⟧"


def read(**options: Any) -> dict[str, Any]:
    columns = {"chat": ragged(IDS), "chat_loss_mask": ragged(MASKS)}
    return dict(finish({"chat": DESCRIBED}, columns, FinishOptions(**options)))


def test_packing_moves_the_mask_with_the_ids() -> None:
    found = read(text="packed", text_length=6)
    lists = {tuple(ids): mask for ids, mask in zip(IDS, MASKS, strict=True)}
    for ids, mask, segments in zip(found["chat"], found["chat_loss_mask"], found["chat_segments"], strict=True):
        assert not mask[segments == 0].any()
        for segment in range(1, segments.max() + 1):
            assert mask[segments == segment].tolist() == lists[tuple(ids[segments == segment].tolist())]
    assert found["chat_loss_mask"].sum() == sum(map(sum, MASKS))


SPEC = """
name: chats
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 80, test: 20}
features:
  chat: {kind: chat, model: model/tokenizer.json, tools: tools, max_length: 600, roles: {bot: assistant}}
  alpaca:
    kind: chat
    model: model/tokenizer.json
    template: last.jinja
    train: last
    columns: {instruction: ask, input: more, output: answer}
  maybe: {kind: chat, model: model/tokenizer.json, train: all, optional: true}
pack: {length: 300, features: [alpaca]}
rejects: {max_share: 0.2}
"""
ROWS = 60
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
FAULTY: dict[str, tuple[Any, str]] = {
    "3": ([], "malformed_chat"),
    "5": ([{"role": "Zorro", "content": "a"}], "malformed_chat"),
    "13": ([["user", "a"]], "malformed_chat"),
    "7": ([{"role": "user", "content": "hi"}], "no_trainable_token"),
    "9": ([{"role": "user", "content": "x" * 999}, {"role": "bot", "content": "y"}], "no_trainable_token"),
    "11": ([{"role": "tool", "content": "hi"}], "template_error"),
}
REFUSING = "{% if messages[0].role == 'tool' %}{{ raise_exception('a tool cannot begin') }}{% endif %}"


def rows() -> list[dict[str, Any]]:
    made = []
    for number, messages in enumerate(chats("qwen2_5_tools", ROWS, seed=2)):
        said = FAULTY.get(str(number), (messages, ""))[0]
        maybe = {} if number % 3 else {"maybe": said if str(number) not in FAULTY else messages}
        texts = {"ask": f"add {number}", "answer": f"it is {number}"} | ({"more": "1 2"} if number % 2 else {})
        tools = {"tools": TOOLS} if number % 4 == 0 else {}
        made.append({"id": str(number), "chat": said, **texts, **tools, **maybe})
    return made


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("chats")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    write_model(folder / "model", None, chat_template=REFUSING + TEMPLATES["qwen2_5_tools"])
    (folder / "last.jinja").write_text(TEMPLATES["llama3"])
    (folder / "dataset.yaml").write_text(SPEC)
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))


@pytest.fixture(scope="module")
def dataset(published: Published) -> Dataset:
    return open_dataset(Path(published.folder))


@pytest.fixture(scope="module")
def records(dataset: Dataset) -> dict[str, dict[str, Any]]:
    return {each.key: dict(each.values) for split in dataset.splits for each in dataset.records(split)}


@pytest.mark.slow
def test_faulty_chats_are_rejects(published: Published) -> None:
    (file,) = Path(published.folder).glob("rejects/*.jsonl")
    found = {each["id"]: each for each in map(json.loads, file.read_text().splitlines())}
    assert {key: each["code"] for key, each in found.items()} == {key: code for key, (_, code) in FAULTY.items()}
    assert {each["column"] for each in found.values()} == {"chat"}
    assert "Zorro" not in file.read_text()
    assert published.manifest.rejects["by_reason"] == dict(Counter(code for _, code in FAULTY.values()))


@pytest.mark.slow
def test_a_client_encodes_rendered_chats(dataset: Dataset) -> None:
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert dataset.tokenizer("chat").encode(text).tolist() == tokenizer().encode(text, add_special_tokens=False).ids


@pytest.mark.slow
def test_an_export_has_text_ids_and_masks(dataset: Dataset, records: dict[str, Any], tmp_path: Path) -> None:
    export(dataset, "parquet", tmp_path / "exported")
    table = pa.concat_tables([pq.read_table(file) for file in sorted((tmp_path / "exported").rglob("*.parquet"))])
    for row in table.to_pylist():
        assert row["chat_ids"] == list(records[row["id"] if "id" in row else row["key"]]["chat"].ids)
        assert row["chat_loss_mask"] == list(records[row["id"] if "id" in row else row["key"]]["chat"].loss_mask)
