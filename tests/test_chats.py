"""Chats from their source to a batch: options, built, shown, read in every form, exported, and rejects."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.base.description import Decoding
from recordmill.transforms.base.stored import FinishOptions, Ragged
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.texts.chat_spec import Chat
from recordmill.transforms.texts.text_stored import ChatDescription
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
