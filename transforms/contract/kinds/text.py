"""Texts as ids, one or several a row, and ids back to the text, as far as the tokenizer can be undone.

>>> TextOptions(end=True).special
SpecialIds(padding=0, unknown=1, begin=None, end=2, first=3)
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

WORD_TOKENIZERS = ("words", "whitespace", "characters")
"""The tokenizers whose tokens are strings, which are looked up in a vocabulary or hashed."""
MODEL_TOKENIZERS = ("wordpiece", "sentencepiece")
"""The tokenizers that are a model, trained or given, whose pieces have their ids."""
BYTES = 256
EXACT_TOKENIZERS = ("words", "whitespace")  # the tokenizers whose words a cut at white space gives again
KEPT_IN_EXPORTS = ("kind", "begin", "end", "max_length", "max_texts", "texts_per_row", "optional")
TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}
PACKED = np.dtype("<i4")  # the ids of packed rows


@dataclass(frozen=True)
class SpecialIds:
    """The ids that stand for no token."""

    padding: int
    unknown: int | None
    """The first id of unknown tokens, of which there are `oov_buckets`; None where nothing is unknown."""
    begin: int | None
    end: int | None
    first: int  # first id of the tokens' own

    @property
    def added(self) -> int:
        """The number of ids that are added to those of the tokens."""
        return (self.begin is not None) + (self.end is not None)


@dataclass(frozen=True, kw_only=True)
class TextOptions(base.FeatureOptions):
    """The options of texts."""

    kind: ClassVar[str] = "text"
    limits: ClassVar[tuple[str, ...]] = ("missing", "jensen_shannon", "psi", "out_of_vocabulary", "ids_moved")
    normalize: str = "none"
    case: str = "lower"
    tokenizer: str = "words"
    model: str | None = None
    model_type: str = "unigram"
    vocabulary: int | str | None = 32_000
    """The number of words with an id of their own; or a file of words; None: another feature's."""
    shared_with: str | None = None  # feature whose vocabulary, or tokenizer, this one uses
    minimum_count: int = 1
    oov_buckets: int = 1
    hash_buckets: int | None = None
    ngrams: tuple[int, ...] = (1,)
    begin: bool = False
    end: bool = False
    max_length: int | None = None
    truncate: str = "end"
    keep_length: bool = False
    pack: int | None = None
    model_bytes: bytes | None = None  # tokenizer's model, once it is trained or read
    model_ids: SpecialIds | None = None
    words: tuple[str, ...] | None = None  # words of a given vocabulary, once its file is read

    @property
    def special(self) -> SpecialIds:
        """The model's special ids, else 0 for padding, 1 and on for unknown tokens, then begin and end."""
        if self.model_ids is not None:
            return self.model_ids
        unknown_ids = self.oov_buckets if self.has_vocabulary or self.tokenizer in MODEL_TOKENIZERS else 0
        begin = 1 + unknown_ids
        end = begin + self.begin
        return SpecialIds(
            padding=0,
            unknown=1 if unknown_ids else None,
            begin=begin if self.begin else None,
            end=end if self.end else None,
            first=end + self.end,
        )

    @property
    def has_vocabulary(self) -> bool:
        """Whether the ids are positions in a file of words that the analysis writes."""
        return self.tokenizer in WORD_TOKENIZERS and self.hash_buckets is None

    @property
    def counts_words(self) -> bool:
        """Whether the analysis counts the words, because no file of words is given."""
        return self.has_vocabulary and not isinstance(self.vocabulary, str)

    @property
    def needs_tensorflow_text(self) -> bool:
        """Whether the graph holds ops that only a process that imports `tensorflow_text` can load."""
        return self.normalize != "none" or self.case == "fold" or self.tokenizer in MODEL_TOKENIZERS


@dataclass(frozen=True, kw_only=True)
class TextsOptions(TextOptions):
    """The options of several texts a row."""

    kind: ClassVar[str] = "texts"
    max_texts: int | None = None  # number of texts that are kept; None: all


def vocabulary_owner(name: str, options: base.FeatureOptions) -> str:
    """Returns the feature whose vocabulary, or tokenizer, a feature uses: its own, or the one that it shares."""
    return (isinstance(options, TextOptions) and options.shared_with) or name


@dataclass(frozen=True, kw_only=True)
class TextDescription(base.Description):
    """A list of ids a row, or packed rows of several documents."""

    kind: ClassVar[str] = "text"
    stored: str = "int64"
    length: str = "varying"
    max_length: Count | None
    vocabulary: str | None = base.left_out(None)  # path of the words' file inside the version
    vocabulary_size: Count
    padding_id: Count
    unknown_id: Count | None
    first_id: Count
    begin_id: Count | None = base.left_out(None)
    end_id: Count | None = base.left_out(None)
    tokenizer: str = base.left_out("words")
    model: str | None = base.left_out(None)
    oov_buckets: Count = base.left_out(1)
    hash_buckets: Count | None = base.left_out(None)
    keep_length: bool = base.left_out(False)
    packed: Count | None = base.left_out(None)  # number of ids that a row of several documents holds

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        """Returns the ids, and their number before the cut; of packed rows int32 bytes, and each document's length."""
        if "packed" in description:  # bytes, little-endian: to read them takes a twentieth of an int64 list's time
            return {"": base.Stored("bytes"), "lengths": base.Stored("int64", None)}
        ids = {"": base.Stored("int64", None)}
        return ids | {"length": base.Stored("int64")} if description.get("keep_length") else ids

    def ids_words(self) -> str:
        """Describes what the ids stand for."""
        return f"{TOKENS.get(self.tokenizer, self.tokenizer)} ids"

    def words(self) -> str:
        if self.packed:
            return f"{self.ids_words()}, packed in rows of {self.packed:,}"
        return base.counted_words(self.ids_words(), self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> Any:
        """Returns the text; of a packed row its documents."""
        if self.packed is not None:
            return self.texts(np.frombuffer(parts[""], PACKED), parts["lengths"], decoding)
        return self.text(parts[""].tolist(), decoding, int(parts["length"]) if "length" in parts else None)

    def text(self, ids: list[int], decoding: base.Decoding, length: int | None = None) -> "DecodedText":
        """Returns the text of ids as they are stored; `length` is their number before the cut."""
        kept = tuple(id_ for id_ in ids if id_ != self.padding_id)
        vocabulary = decoding.vocabulary
        if vocabulary is None:
            return DecodedText(kept, None, None, length)
        words = tuple(vocabulary[id_] if 0 <= id_ < len(vocabulary) else base.UNKNOWN for id_ in kept)
        inner = [word for id_, word in zip(kept, words, strict=True) if id_ not in (self.begin_id, self.end_id)]
        return DecodedText(kept, words, JOINED.get(self.tokenizer, " ".join)(inner), length)

    def texts(self, ids: Any, lengths: Any, decoding: base.Decoding) -> list["DecodedText"]:
        """Cuts the ids of several texts, one after another."""
        each = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
        return [self.text(of_text.tolist(), decoding) for of_text in each]

    def export(self, into: base.Export, name: str, options: dict[str, Any]) -> None:
        """Adds the text, and where it does not give the same ids again, these."""
        if self.packed is not None:
            raise base.ExportError(
                f"'{name}' is packed: a record holds several rows, whose keys are not stored. Build it without `pack`"
            )
        texts = self.text_column(name)
        if self.goes_back(options):
            path = into.add_words(name, into.vocabulary(name)[self.first_id :])
            kept = {key: options[key] for key in KEPT_IN_EXPORTS if key in options}
            into.add(name, {**kept, "tokenizer": "whitespace", "case": "keep", "vocabulary": path}, texts)
            return
        if self.hash_buckets is None:
            into.add_column(texts)
        self.export_ids(into, name)
        why = "its ids are hashes" if self.hash_buckets is not None else "its text does not give the same ids"
        lost = "; the number of its tokens before the cut is not exported" if self.keep_length else ""
        into.note(name, f"{why}, which are the column {name}_ids and go back as kind raw{lost}")

    def goes_back(self, options: dict[str, Any]) -> bool:
        """Whether the words of a text, with spaces between, give its ids again."""
        return (
            self.tokenizer in EXACT_TOKENIZERS
            and self.hash_buckets is None
            and self.oov_buckets == 1
            and not self.keep_length
            and "ngrams" not in options
        )

    def text_column(self, name: str) -> base.ExportColumn:
        return base.ExportColumn(name, "string", name, lambda text: text.text)

    def export_ids(self, into: base.Export, name: str) -> None:
        into.add_raw(name, base.ExportColumn(f"{name}_ids", "int64", name, lambda text: list(text.ids), depth=1))


@dataclass(frozen=True, kw_only=True)
class TextsDescription(TextDescription):
    """Any number of texts a row, each a list of ids."""

    kind: ClassVar[str] = "texts"
    texts_per_row: Count | str  # number of texts of every row, or `varying`
    max_texts: Count | None = base.left_out(None)

    @classmethod
    def parts_of(cls, description: base.Json) -> dict[str, base.Stored]:
        """Returns the ids of all texts, one after another, and the number of each text's."""
        return {"": base.Stored("int64", None), "lengths": base.Stored("int64", None)}

    @property
    def empty_text(self) -> list[int]:
        """The ids of an empty text, which stands for a row that has none: begin and end, if there are such."""
        return [id_ for id_ in (self.begin_id, self.end_id) if id_ is not None]

    def words(self) -> str:
        if isinstance(self.texts_per_row, int):
            texts = f"{self.texts_per_row:,} texts"
        else:
            texts = "any number of texts" if self.max_texts is None else f"at most {self.max_texts:,} texts"
        return base.counted_words(f"{texts}: {self.ids_words()}", self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> list["DecodedText"]:
        return self.texts(parts[""], parts["lengths"], decoding)

    def text_column(self, name: str) -> base.ExportColumn:
        return base.ExportColumn(name, "string", name, lambda value: [text.text for text in value], depth=1)

    def export_ids(self, into: base.Export, name: str) -> None:
        """Adds the ids of a row's texts, one after another, and how many each text has."""
        ids = base.ExportColumn(
            f"{name}_ids", "int64", name, lambda texts: [id_ for text in texts for id_ in text.ids], depth=1
        )
        lengths = base.ExportColumn(
            f"{name}_lengths", "int64", name, lambda texts: [len(text.ids) for text in texts], depth=1
        )
        into.add_raw(name, ids)
        into.add_raw(lengths.name, lengths)


@dataclass(frozen=True)
class DecodedText:
    """A text of a record, as the model reads it: cleaned, cut at `max_length`, with unknown words."""

    ids: tuple[int, ...]  # as they are stored, with begin and end, without padding
    words: tuple[str, ...] | None  # word, piece or character of each id; None where ids are hashes
    text: str | None  # words joined as their tokenizer cut them, without begin and end; None where ids are hashes
    length: int | None = None  # number of ids before the cut at `max_length`, where the feature keeps it

    def __str__(self) -> str:
        """Returns the text; of hashes the ids."""
        return " ".join(map(str, self.ids)) if self.text is None else self.text


SPACE = "▁"  # U+2581, as SentencePiece and our characters write a space
CONTINUED = "##"  # the beginning of a WordPiece that goes on with a word
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _wordpieces(pieces: Sequence[str]) -> str:
    return " ".join(pieces).replace(f" {CONTINUED}", "")


def _spaced(pieces: Sequence[str]) -> str:
    """Joins characters, or SentencePieces, some of which may be bytes."""
    text = "".join(pieces)
    if BYTE.search(text):
        text = re.sub(f"(?:{BYTE.pattern})+", lambda match: _bytes(BYTE.findall(match[0])), text)
    return text.replace(SPACE, " ").strip(" ")


def _bytes(digits: Sequence[str]) -> str:
    return bytes.fromhex("".join(digits)).decode("utf-8", "replace")


def _of_bytes(names: Sequence[str]) -> str:
    return _bytes([name[3:5] for name in names])


JOINED: Mapping[str, Callable[[Sequence[str]], str]] = {
    "words": " ".join,
    "whitespace": " ".join,
    "characters": _spaced,
    "bytes": _of_bytes,
    "wordpiece": _wordpieces,
    "sentencepiece": _spaced,
}
"""The function that joins a tokenizer's words to a text."""
