"""Texts, one or several per row: normalized, tokenized, and mapped to ids by a learned or given vocabulary."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from recordmill.pipeline.errors import UserError, WrongValueError
from recordmill.pipeline.yaml_document import Options, number_or_list
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import NOTHING, Description, Learned, SpecialIds
from recordmill.transforms.base.feature import Feature, feature_named
from recordmill.transforms.texts import text_stored as kinds
from recordmill.transforms.texts.text_ids_spec import Names, TextIds, Token, wrong_library
from recordmill.transforms.texts.text_stored import MOST_LENGTH
from recordmill.transforms.values.category_spec import read_classes

SHARED_ALIKE = "tokenizer model_type special_tokens pattern normalize case ngrams oov_buckets begin end".split()
"""Options that features with a shared vocabulary must agree on, because they decide the meaning of an id."""


def _wrong(text: "Tokenized", changed: Names, given: Names) -> Iterator[tuple[str, str]]:
    """Yields contradictory options and the reasons; `changed` differ from the default, `given` are in the spec."""
    if text.normalize == "nfc" and text.case == "fold":
        yield "normalize", "`case: fold` is NFKC case folding: leave `normalize` out, or take `case: lower`"
    for option in ("ngrams", "oov_buckets", "hash_buckets"):
        if option in changed and text.tokenizer not in kinds.WORD_TOKENIZERS:
            tokenizers = ", ".join(kinds.WORD_TOKENIZERS)
            yield option, f"needs a tokenizer of {tokenizers}, not {text.tokenizer}: leave it out"
    for option in ("vocabulary", "minimum_count", "oov_buckets"):
        if option in changed and text.tokenizer == "bytes":
            yield option, "the tokenizer bytes needs no vocabulary: leave it out"
        if option in changed and text.hash_buckets is not None:
            yield option, "contradicts `hash_buckets`, which needs no vocabulary: leave one out"
    if "minimum_count" in changed and not isinstance(text.vocabulary, int):
        where = "is given" if isinstance(text.vocabulary, str) else "has its options in the other feature"
        yield "minimum_count", f"does not apply, since the vocabulary {where}: leave it out"
    if isinstance(text.vocabulary, str) and text.needs_model:
        yield "vocabulary", f"give a {text.tokenizer} model as `model: {text.vocabulary}`"
    if "model_type" in changed and (text.tokenizer != "sentencepiece" or text.model is not None):
        yield "model_type", "is for learned sentencepiece models, and none is learned here: leave it out"
    if text.model is not None and not text.needs_model:
        yield "model", f"needs a tokenizer of {', '.join(kinds.MODEL_TOKENIZERS)}, not {text.tokenizer}"
    for option in ("vocabulary", "minimum_count"):
        if text.model is not None and option in changed:
            yield option, "a given `model` has its own pieces: leave it out"
    if text.model is not None and "case" not in given and not text.in_library:
        yield "model", "was trained on one case: say which, `case: keep` or `case: lower`"
    yield from wrong_library(text, changed, given)
    added = bool(text.begin) + bool(text.end)
    if text.max_length is not None and text.max_length <= added:
        yield "max_length", f"should be {added + 1} or more, since begin and end take {added}, got {text.max_length}"
    if "truncate" in changed and text.max_length is None:
        yield "truncate", "needs `max_length`: give one, or leave `truncate` out"
    if list(text.ngrams) != sorted(set(text.ngrams)):
        yield "ngrams", f"should be ascending widths such as [1, 2], got {list(text.ngrams)}"


class SharedVocabulary(Options):
    """Another text's vocabulary."""

    shared_with: str
    """The feature that owns the vocabulary; both features' words are counted together."""


def _form(value: Any) -> str:
    """Names the form of a `vocabulary`: a mapping, what looks like a path, else a size."""
    if isinstance(value, dict | SharedVocabulary):
        return "another feature"
    return "a file" if isinstance(value, str) and ("." in value or "/" in value) else "a size"


Size = Annotated[int, Field(ge=1, strict=True)]
Vocabulary = Annotated[
    Annotated[Size, Tag("a size")]
    | Annotated[str, Tag("a file")]
    | Annotated[SharedVocabulary, Tag("another feature")],
    Discriminator(_form),
]
Width = Annotated[int, Field(ge=1, le=16, strict=True)]
Widths = Annotated[tuple[Width, ...], Field(min_length=1), BeforeValidator(number_or_list, int | tuple[int, ...])]


class Tokenized(TextIds):
    """The rules that map a text to ids: 0 pads, 1 is unknown, then begin and end if requested, then tokens."""

    column_type = ColumnType.TEXT
    description: ClassVar[type[kinds.TextDescription]] = kinds.TextDescription
    normalize: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode's normalization form. nfkc also unifies characters that differ only in looks, such as ﬁ and fi."""
    case: Literal["lower", "fold", "keep"] = "lower"
    """lower: lower case; fold: Unicode's NFKC case folding, which makes ß ss; keep: unchanged."""
    tokenizer: Literal[
        "words", "whitespace", "characters", "bytes", "wordpiece", "sentencepiece", "huggingface", "tiktoken"
    ] = "words"
    """words: runs of letters, marks, digits and underscores; whitespace: split at white space; characters: code points;
    bytes: of UTF-8; wordpiece, sentencepiece: subwords, learned from the train split or given; huggingface, tiktoken: a
    model's own file."""
    model: str | None = Field(default=None, min_length=1)
    """A given model instead of a learned one: a SentencePiece model, a WordPiece vocabulary with a piece per line, a
    tokenizer.json, or tiktoken's file of ranks."""
    model_type: Literal["unigram", "bpe"] = "unigram"
    """The training algorithm of a SentencePiece model."""
    vocabulary: Vocabulary = 32_000
    """The number of tokens with ids; or a file of words, one per line; or {shared_with: FEATURE}."""
    minimum_count: int = Field(default=1, ge=1, strict=True)
    """The smallest count in the train split for a word to get an id; rarer words are unknown, and not learned from."""
    oov_buckets: int = Field(default=1, ge=1, le=1 << 20, strict=True)
    """The number of ids for unknown tokens, by hash: 1 to n."""
    hash_buckets: int | None = Field(default=None, ge=1, le=1 << 40, strict=True)
    """The number of ids by the tokens' hash, without a vocabulary."""
    ngrams: Widths = (1,)
    """Joins this many consecutive tokens with spaces; with several widths, all of the first come first."""
    special_tokens: bool = True
    """Whether a tokenizer.json adds its special tokens to each text."""
    pattern: str | None = Field(default=None, min_length=1)
    """The rule that splits a text before the ranks of tiktoken apply: `r50k_base`, `p50k_base`, `cl100k_base`,
    `o200k_base`, or a regular expression."""
    begin: bool | Token = False
    """Whether a special id precedes each text; of huggingface and tiktoken the token's name."""
    end: bool | Token = False
    """Whether a special id follows each text; of huggingface and tiktoken the token's name."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """Keeps this many ids, and pads batches to this length. None: keeps all, and pads to a batch's longest text."""
    truncate: Literal["end", "start"] = "end"
    """The side on which long texts are cut."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for option, message in _wrong(self, self._changed(), self.model_fields_set):
            raise WrongValueError(message, option)
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that the owner of a shared vocabulary is a text with matching options."""
        if (owner := self.shared_with) is None:
            return
        path = ("vocabulary", "shared_with")
        other = feature_named(owner, features, *path)
        if not isinstance(other, Tokenized) or other.shared_with is not None:
            raise WrongValueError(f"'{owner}' should be a text with its own vocabulary", *path)
        for option in SHARED_ALIKE:
            mine, theirs = getattr(self, option), getattr(other, option)
            if mine != theirs:
                message = f"is {mine} here and {theirs} in '{owner}', which owns the vocabulary: make them the same"
                raise WrongValueError(message, option)
        if other.hash_buckets is not None or other.tokenizer == "bytes":
            raise WrongValueError(f"'{owner}' has no vocabulary: leave this out and take the same options", *path)

    @property
    def shared_with(self) -> str | None:
        return self.vocabulary.shared_with if isinstance(self.vocabulary, SharedVocabulary) else None

    @property
    def has_vocabulary(self) -> bool:
        return self.tokenizer in kinds.WORD_TOKENIZERS and self.hash_buckets is None

    @property
    def learns(self) -> Sequence[str]:
        return ("vocabularies",) if self.has_vocabulary and not isinstance(self.vocabulary, str) else ()

    @property
    def needs_tensorflow_text(self) -> bool:
        if self.in_library:
            return False
        return self.normalize != "none" or self.case == "fold" or self.needs_model

    def special(self, learned: Learned = NOTHING) -> SpecialIds:
        """Returns the model's special ids; otherwise 0 for padding, then unknown, begin and end ids.

        >>> Text(kind="text", end=True).special()
        SpecialIds(padding=0, unknown=1, begin=None, end=2, first=3)
        """
        if learned.special is not None:
            return learned.special
        unknown_ids = self.oov_buckets if self.has_vocabulary or self.needs_model else 0
        begin = 1 + unknown_ids
        end = begin + bool(self.begin)
        marks = begin if self.begin else None, end if self.end else None
        return SpecialIds(0, 1 if unknown_ids else None, *marks, first=end + bool(self.end))

    def given_words(self) -> tuple[str, ...]:
        """Reads a given vocabulary's words; empty without one. Raises: UserError: the file is wrong."""
        try:
            return read_classes(self.vocabulary) if isinstance(self.vocabulary, str) else ()
        except ValueError as error:
            raise UserError(str(error)) from None

    def never_met(self) -> list[str]:
        """Returns those of the given words that `case` changes in every text. Raises: UserError: as `given_words`."""
        changed: dict[str, Callable[[str], str]] = {"lower": str.lower, "fold": str.casefold, "keep": str}
        return [word for word in self.given_words() if changed[self.case](word) != word]

    def files(self) -> dict[str, str]:
        given = {"model": self.model, "vocabulary": self.vocabulary if isinstance(self.vocabulary, str) else None}
        return {option: path for option, path in given.items() if path is not None}

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes vocabulary and special ids by the owner's statistics (`pipeline.build.analysis.tokenizers`)."""
        special = SpecialIds(**statistics["special_ids"]) if self.needs_model else self.special()
        tokens = kinds.BYTES if self.tokenizer == "bytes" else self.hash_buckets or statistics["words"]
        return self._describe(
            self.description,
            vocabulary=statistics["vocabulary"] if self.needs_model or self.has_vocabulary else None,
            vocabulary_size=max(special.first + tokens, special.padding + 1),
            model=statistics["model"] if self.needs_model else None,
            joins=statistics.get("joins"),
            **special.described(),
            **self.stored_form(),
        )

    def stored_form(self) -> dict[str, Any]:
        """Returns the fields of the description that each kind fills in its own way."""
        raise NotImplementedError


class Window(Options):
    """Records of a long text."""

    length: int = Field(ge=1, strict=True)
    """The most ids of a record, including begin and end; batches are padded to it."""
    stride: int | None = Field(default=None, ge=1, strict=True)
    """The ids from a window's first one to the next window's, at most `length`. None: `length`, no overlap."""

    @model_validator(mode="after")
    def _check(self) -> "Window":
        if self.stride is not None and self.stride > self.length:
            message = f"should be at most the `length` {self.length}, or ids between windows are lost"
            raise WrongValueError(f"{message}, got {self.stride}", "stride")
        return self


class Text(Tokenized):
    """A text as ids."""

    kind: Literal["text"]
    is_packable: ClassVar[bool] = True
    pretokenized: bool = False
    """Whether a row has a list of words, or words between spaces, which huggingface tokenizes one by one."""
    keep_length: bool = False
    """Whether to store `<feature>_length`: the number of ids before cutting."""
    window: Window | None = None
    """Makes several records of a row whose text has more ids than `length`; other features are repeated."""
    pack: int | None = Field(default=None, ge=1, le=MOST_LENGTH, strict=True)
    """Packs the text alone: the same as `pack: {length: N, features: [TEXT], split: true}` of the spec."""

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        for option in ("max_length", "keep_length"):
            if self.window is not None and getattr(self, option):
                raise WrongValueError("windows hold all ids, and cut none off: leave it or `window` out", option)
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        super().check(features)
        others = [name for name, each in features.items() if getattr(each, "window", None) and each is not self]
        if self.window is not None and others:
            message = f"'{others[0]}' has windows, too, and only one text's make the records: leave one out"
            raise WrongValueError(message, "window")

    @property
    def fill(self) -> Any:
        return [] if self.pretokenized else super().fill

    def _column(self) -> Column:
        return replace(super()._column(), many=True, separator=" ") if self.pretokenized else super()._column()

    @property
    def library_parts(self) -> tuple[str, ...]:
        return ("length",) if self.keep_length else ()

    def stored_form(self) -> dict[str, Any]:
        return {"window": self.windows, "max_length": self.most_ids}

    @property
    def most_ids(self) -> int | None:
        return self.window.length if self.window else self.max_length

    @property
    def windows(self) -> kinds.Window | None:
        if self.window is None:
            return None
        return kinds.Window(self.window.length, self.window.stride or self.window.length)


class Texts(Tokenized):
    """Several texts, such as an image's captions."""

    description = kinds.TextsDescription
    kind: Literal["texts"]
    fill: ClassVar[Any] = []
    texts_per_row: int | None = Field(default=None, ge=1, strict=True)
    """The required number of texts per row; by default any."""
    max_texts: int | None = Field(default=None, ge=1, strict=True)
    """Keeps the first texts, and pads batches to this number. None: keeps all, and pads to a batch's longest row."""
    separator: str = Field(default="\n", min_length=1)
    """The separator if the source holds the texts as one string; by default each line is a text."""

    @model_validator(mode="after")
    def _check_texts(self) -> "Texts":
        if self.texts_per_row is not None and self.max_texts is not None:
            raise ValueError("`texts_per_row` and `max_texts` exclude each other: a row has exactly `texts_per_row`")
        return self

    def _column(self) -> Column:
        return replace(super()._column(), many=True, separator=self.separator, length=self.texts_per_row)

    @property
    def library_parts(self) -> tuple[str, ...]:
        return ("lengths",)

    def read_parts(self) -> tuple[str, ...]:
        return ("length",) if self.texts_per_row is None else ()

    def stored_form(self) -> dict[str, Any]:
        return {"texts_per_row": self.texts_per_row or "varying"}
