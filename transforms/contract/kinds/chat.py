"""Chats as ids, with a mask of the tokens to train on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from recordmill.transforms.contract.kinds import base
from recordmill.transforms.contract.kinds.text import DecodedText, TextDescription

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LOSS_MASK = "loss_mask"
TRAINED = ("weight", "train", "training", "trainable", "loss")  # of a message: 0 or false leaves an answer out
KEYS = (
    *TRAINED,
    *"""role content from value name tool_calls tool_call_id function_call reasoning_content thinking
    reasoning""".split(),
)
"""The keys of a message that are read, or that templates are known to read."""


class ChatError(Exception):
    """A chat cannot be stored: the code of its reject, and a message without its words."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(frozen=True, kw_only=True)
class ChatDescription(TextDescription):
    """A chat's ids a row, and for each 1 if the loss counts there, else 0."""

    kind: ClassVar[str] = "chat"
    aligned: ClassVar[tuple[str, ...]] = (LOSS_MASK,)
    train: str

    def words(self) -> str:
        return f"{super().words()}, with a loss mask"

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> "DecodedChat":
        """Returns the text in runs of equal masks."""
        ids, mask = parts[""], parts[LOSS_MASK]
        stored = replace(self, padding_id=self.vocabulary_size)  # the id that pads batches may also end turns
        whole = stored.text(ids.tolist(), decoding)
        cuts = np.flatnonzero(np.diff(mask)) + 1
        runs = zip(np.split(ids, cuts), np.split(mask, cuts), strict=True) if len(ids) else ()
        shown = tuple((str(stored.text(run.tolist(), decoding)), bool(trained[0])) for run, trained in runs)
        return DecodedChat(whole.ids, whole.words, whole.text, runs=shown, loss_mask=tuple(mask.tolist()))


@dataclass(frozen=True)
class DecodedChat(DecodedText):
    """A chat as the model reads it."""

    runs: tuple[tuple[str, bool], ...] = ()  # the text in order, each with whether the loss counts there
    loss_mask: tuple[int, ...] = ()  # for each id

    def __str__(self) -> str:
        """Returns the text, with the text to train on between ⟦ and ⟧."""
        return "".join(f"⟦{text}⟧" if is_trained else text for text, is_trained in self.runs)
