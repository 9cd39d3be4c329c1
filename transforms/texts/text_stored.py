"""Texts as ids, one or several a row, pairs, chats and labels of tokens; ids back to text as the tokenizer allows."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.json_values import Count
from recordmill.transforms.base import description as base

WORD_TOKENIZERS = ("words", "whitespace", "characters")
"""Tokenizers with string tokens, looked up in a vocabulary or hashed."""
LIBRARY_TOKENIZERS = ("huggingface", "tiktoken")
"""Tokenizers with a given model that run before the graph, which takes their ids (`transforms.texts.tokenizers`)."""
MODEL_TOKENIZERS = ("wordpiece", "sentencepiece", *LIBRARY_TOKENIZERS)
"""Tokenizers with a model, trained or given, that defines the ids."""
BYTES = 256
TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}
TOKENS |= dict.fromkeys(LIBRARY_TOKENIZERS, "token")
PACKED = np.dtype("<i4")  # the ids of packed rows
MOST_LENGTH = 1 << 20  # ids of a packed row
WINDOW_PARTS = ("window", "start")
"""A window's number in its row, from 0, and the place of its first id in the text's ids."""
SPACE = "▁"  # U+2581, a space in SentencePiece and in characters: vocabularies need non-blank lines
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTES = [*_VISIBLE, *sorted({*range(256)} - {*_VISIBLE})]
BYTE_CHARACTERS = {byte: chr(byte if n < len(_VISIBLE) else 256 + n - len(_VISIBLE)) for n, byte in enumerate(_BYTES)}
"""The visible character of each byte in byte-level pieces, as in GPT-2 (Radford et al. 2019)."""
_BYTE_OF = {character: byte for byte, character in BYTE_CHARACTERS.items()}


@dataclass(frozen=True)
class Window:
    """Records of a long text: the first has its first `length` ids, each next one begins `stride` ids later."""

    length: Count
    stride: Count


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """The options of a feature that its model's tokenizer takes, as the spec has them."""

    kind: str
    tokenizer: str
    special_tokens: bool = True
    pretokenized: bool = False
    pattern: str | None = None
    begin: bool | str | None = None
    separator: str | None = None
    end: bool | str | None = None
    max_length: int | None = None
    truncate: str | None = None

    @property
    def joined(self) -> int:
        """The texts that one list of ids holds."""
        return 2 if self.kind == "pair" else 1


@dataclass(frozen=True, kw_only=True)
class TextDescription(base.Description):
    """A list of ids a row, or packed rows of several documents."""

    kind: ClassVar[str] = "text"
    aligned: ClassVar[tuple[str, ...]] = ()  # parts with a value for each id
    several: ClassVar[bool] = False  # whether a row has several texts
    stored: str = "int64"
    length: str = "varying"
    max_length: Count | None
    vocabulary: str | None = base.left_out(None)  # path of the words in the version
    vocabulary_size: Count
    padding_id: Count
    unknown_id: Count | None
    first_id: Count
    begin_id: Count | None = base.left_out(None)
    end_id: Count | None = base.left_out(None)
    tokenizer: str = base.left_out("words")
    model: str | None = base.left_out(None)
    joins: str | None = base.left_out(None)  # another tokenizer's way from pieces to a text
    oov_buckets: Count = base.left_out(1)
    hash_buckets: Count | None = base.left_out(None)
    keep_length: bool = base.left_out(False)
    window: Window | None = base.left_out(None)
    packed: Count | None = base.left_out(None)  # ids of a row of several documents

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        """Returns the ids, lists beside them, their number before the cut, a window's place; of packed rows, bytes."""
        if "packed" in description:  # little-endian bytes: 20 times faster to read than an int64 list
            return {"": base.Stored("bytes"), "lengths": base.Stored("int64", None)}
        numbers = ["length"] if description.get("keep_length") else WINDOW_PARTS if description.get("window") else []
        lists = {part: base.Stored("int64", None) for part in ("", *cls.aligned)}
        return lists | {part: base.Stored("int64") for part in numbers}

    @property
    def as_text(self) -> Self:
        return self

    @property
    def ids(self) -> base.Ids:
        return base.Ids(
            size=self.vocabulary_size,
            are_classes=False,
            file=self.vocabulary,
            words=tuple(f"<0x{byte:02X}>" for byte in range(BYTES)) if self.tokenizer == "bytes" else None,
            hashes=self.hash_buckets,
            first=self.first_id,
            unknown=self.unknown_id,
            unknown_ids=self.oov_buckets,
            begin=self.begin_id,
            end=self.end_id,
            padding=self.padding_id,
        )

    @property
    def decoded(self) -> tuple[str, int]:
        return "string", int(self.several)

    def type_words(self) -> str:
        return f"{TOKENS.get(self.tokenizer, self.tokenizer)} ids"

    def words(self) -> str:
        if self.packed:
            return f"{self.type_words()}, packed in rows of {self.packed:,}"
        counted = base.counted_words(self.type_words(), self.length, self.max_length)
        return counted if self.window is None else f"{counted}, a window every {self.window.stride:,}"

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> Any:
        if self.packed is not None:
            return self.texts(np.frombuffer(parts[""], PACKED), parts["lengths"], decoding)
        text = self.text(parts[""].tolist(), decoding, int(parts["length"]) if "length" in parts else None)
        window, start = (int(parts[part]) if part in parts else None for part in WINDOW_PARTS)
        return replace(text, window=window, start=start)

    def text(self, ids: list[int], decoding: base.Decoding, length: int | None = None) -> "DecodedText":
        """Returns the text of stored ids; `length` counts them before the cut."""
        kept = tuple(id_ for id_ in ids if id_ != self.padding_id)
        if (vocabulary := decoding.vocabulary) is None:
            return DecodedText(kept, None, None, length)
        words = tuple(vocabulary[id_] if 0 <= id_ < len(vocabulary) else base.UNKNOWN for id_ in kept)
        inner = [word for id_, word in zip(kept, words, strict=True) if id_ not in (self.begin_id, self.end_id)]
        return DecodedText(kept, words, JOINED.get(self.joins or self.tokenizer, " ".join)(inner), length)

    def texts(self, ids: Any, lengths: Any, decoding: base.Decoding) -> list["DecodedText"]:
        each = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
        return [self.text(of_text.tolist(), decoding) for of_text in each]


@dataclass(frozen=True, kw_only=True)
class TextsDescription(TextDescription):
    """Any number of texts a row, each a list of ids."""

    kind: ClassVar[str] = "texts"
    several: ClassVar[bool] = True
    texts_per_row: Count | str  # texts of every row, or `varying`
    max_texts: Count | None = base.left_out(None)

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        return {"": base.Stored("int64", None), "lengths": base.Stored("int64", None)}

    @property
    def empty_text(self) -> list[int]:
        """The ids of an empty text, for rows without texts: begin and end, if any."""
        return [id_ for id_ in (self.begin_id, self.end_id) if id_ is not None]

    def words(self) -> str:
        if isinstance(self.texts_per_row, int):
            texts = f"{self.texts_per_row:,} texts"
        else:
            texts = "any number of texts" if self.max_texts is None else f"at most {self.max_texts:,} texts"
        return base.counted_words(f"{texts}: {self.type_words()}", self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list["DecodedText"]:
        return self.texts(parts[""], parts["lengths"], decoding)


@dataclass(frozen=True)
class DecodedText:
    """A text as the model reads it: cleaned, cut at `max_length`, with unknown words."""

    ids: tuple[int, ...]  # as stored, with begin and end, without padding
    words: tuple[str, ...] | None  # the word, piece or character of each id; None for hashes
    text: str | None  # the joined words without begin and end; None for hashes
    length: int | None = None  # ids before the cut at `max_length`, if the feature stores it
    window: int | None = None  # the number of a window in its row, from 0
    start: int | None = None  # the place of a window's first id in the text's ids

    def __str__(self) -> str:
        text = " ".join(map(str, self.ids)) if self.text is None else self.text
        return text if self.window is None else f"[window {self.window}, from id {self.start}] {text}"


def _spaced(pieces: Sequence[str]) -> str:
    """Joins characters or SentencePieces, including byte pieces."""
    text = "".join(pieces)
    if BYTE.search(text):
        text = re.sub(f"(?:{BYTE.pattern})+", lambda match: _bytes(BYTE.findall(match[0])), text)
    return text.replace(SPACE, " ").strip(" ")


def _bytes(digits: Sequence[str]) -> str:
    return bytes.fromhex("".join(digits)).decode("utf-8", "replace")


def _byte_level(pieces: Sequence[str]) -> str:
    """Joins byte-level pieces; special tokens keep their own characters."""
    encoded = (_BYTE_OF[each].to_bytes() if each in _BYTE_OF else each.encode() for each in "".join(pieces))
    return b"".join(encoded).decode("utf-8", "replace")


JOINED: Mapping[str, Callable[[Sequence[str]], str]] = {
    "words": " ".join,
    "whitespace": " ".join,
    "characters": _spaced,
    "bytes": lambda names: _bytes([name[3:5] for name in names]),
    "wordpiece": lambda pieces: " ".join(pieces).replace(" ##", ""),  # which continue a word
    "sentencepiece": _spaced,
    "byte_level": _byte_level,
}
"""Joins the words of a tokenizer to a text."""

FIELDS = ("first", "second")
TYPES = "token_types"


@dataclass(frozen=True, kw_only=True)
class PairDescription(TextDescription):
    """The ids of two texts a row, and for each its type, by the model's own template."""

    kind: ClassVar[str] = "pair"
    aligned: ClassVar[tuple[str, ...]] = (TYPES,)

    def words(self) -> str:
        return f"{super().words()}, with token types"

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> "DecodedPair":
        stored = replace(self, padding_id=self.vocabulary_size, end_id=None)  # ids that may also separate
        both = stored.text(parts[""].tolist(), decoding)
        return DecodedPair(both.ids, both.words, both.text, token_types=tuple(parts[TYPES].tolist()))


@dataclass(frozen=True)
class DecodedPair(DecodedText):
    """Two texts as the model reads them."""

    token_types: tuple[int, ...] = ()  # for each id


ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LOSS_MASK = "loss_mask"
MESSAGES, WHOLE = "messages", "whole"  # columns beside a chat's ids: its messages' roles, and its ids before the cut
ID_COUNTS = ("trained", "stored", "before cutting", "chats cut")
TRAINED = ("weight", "train", "training", "trainable", "loss")  # of a message: 0 or false leaves an answer out
KEYS = (
    *TRAINED,
    *"""role content from value name tool_calls tool_call_id function_call reasoning_content thinking
    reasoning""".split(),
)
"""The keys of a message that are read, or that templates are known to read."""


class TextError(UserError):
    """A text, pair or chat cannot be stored: the code of its reject, and a message without its words."""

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
        counts = {"assistant": "of the assistant's turns", "last": "of the assistant's last turn"}.get(self.train)
        return f"{super().words()}, with a loss mask {counts or 'of all tokens'}"

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> "DecodedChat":
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


OUTSIDE = "O"
IGNORED = "a label to ignore"
LABELS = ("label", "entity_group", "entity", "type", "tag")
SPAN_FIELDS = {"start": ("start", "start_offset"), "end": ("end", "end_offset"), "label": LABELS}
"""The names of a span's fields, doccano's too; the first that a span has."""
PREFIXES: Mapping[str, tuple[str, ...]] = {"bio": ("B-", "I-"), "bioes": ("B-", "I-", "E-", "S-"), "none": ("",)}
"""The beginnings of tags by scheme (Ramshaw and Marcus 1995; Ratinov and Roth 2009): begin, inside, end, single."""


@dataclass(frozen=True, kw_only=True)
class TokenLabelsDescription(base.Description):
    """A list of labels a row, as long as the text's list of ids."""

    kind: ClassVar[str] = "token_labels"
    is_served: ClassVar[bool] = False
    aligned: ClassVar[tuple[str, ...]] = ()
    packed: ClassVar[int | None] = None
    stored: str = "int64"
    length: str = "varying"
    max_length: Count | None  # the text's
    text: str
    classes: tuple[str, ...]  # tags by id
    padding_id: int  # pads, and labels tokens to ignore

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        return {"": base.Stored("int64", None)}

    @property
    def ids(self) -> base.Ids:
        pad = self.padding_id
        return base.Ids(size=len(self.classes), are_classes=True, words=self.classes, padding=pad, ignored=pad)

    def type_words(self) -> str:
        return base.counted_words(f"labels of the tokens of '{self.text}'", self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list[str | None]:
        """Returns the tag of each token; None for tokens to ignore."""
        names = {**dict(enumerate(self.classes)), self.padding_id: None}
        return [names.get(id_, base.UNKNOWN) for id_ in parts[""].tolist()]
