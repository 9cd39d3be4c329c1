"""Text, one or several a row: cleaned, cut into tokens, and mapped to ids by a vocabulary, learned or given."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.feature import Feature, feature_named
from recordmill.pipeline.yaml_document import Options, number_or_list
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import (
    BYTES,
    MODEL_TOKENIZERS,
    WORD_TOKENIZERS,
    SpecialIds,
    TextDescription,
    TextOptions,
    TextsDescription,
    TextsOptions,
)

SHARED_ALIKE = (
    "tokenizer", "model_type", "normalize", "case", "ngrams", "oov_buckets", "begin", "end",
)  # fmt: skip
"""The options that must be equal in features that share a vocabulary, so that an id means the same in both."""


def _wrong(text: TextOptions, changed: AbstractSet[str], given: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that do not go together, of those that are `changed` from the default or `given`, and why."""
    if text.normalize == "nfc" and text.case == "fold":
        yield "normalize", "`case: fold` is NFKC case folding: leave `normalize` out, or take `case: lower`"
    yield from _wrong_tokens(text, changed)
    yield from _wrong_model(text, changed, given)
    added = text.begin + text.end
    if text.max_length is not None and text.max_length <= added:
        yield "max_length", f"should be {added + 1} or more, since begin and end take {added}, got {text.max_length}"
    if "truncate" in changed and text.max_length is None:
        yield "truncate", "nothing is cut without `max_length`: give one, or leave `truncate` out"
    if text.pack is not None and text.keep_length:
        yield "keep_length", "with `pack` the length of each document is stored: leave `keep_length` out"
    if list(text.ngrams) != sorted(set(text.ngrams)):
        yield "ngrams", f"should be widths that ascend, such as [1, 2], got {list(text.ngrams)}"


def _wrong_tokens(text: TextOptions, changed: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that contradict the tokenizer, or hashing."""
    for option in ("ngrams", "oov_buckets", "hash_buckets"):
        if option in changed and text.tokenizer not in WORD_TOKENIZERS:
            tokenizers = ", ".join(WORD_TOKENIZERS)
            yield option, f"goes with the tokenizers {tokenizers} alone, not with {text.tokenizer}: leave it out"
    for option in ("vocabulary", "minimum_count", "oov_buckets"):
        if option in changed and text.tokenizer == "bytes":
            yield option, "the tokenizer bytes has no vocabulary, each byte is its own id: leave it out"
        if option in changed and text.hash_buckets is not None:
            yield option, "there is no vocabulary with `hash_buckets`: leave one of the two out"
    if "minimum_count" in changed and not isinstance(text.vocabulary, int):
        where = "is given" if isinstance(text.vocabulary, str) else "has its options in the other feature"
        yield "minimum_count", f"nothing is counted here, since the vocabulary {where}: leave it out"


def _wrong_model(text: TextOptions, changed: AbstractSet[str], given: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that contradict a learned model, or a given one."""
    if isinstance(text.vocabulary, str) and text.tokenizer in MODEL_TOKENIZERS:
        yield "vocabulary", f"a {text.tokenizer} model that is given is `model: {text.vocabulary}`"
    if "model_type" in changed and (text.tokenizer != "sentencepiece" or text.model is not None):
        yield "model_type", "says how a sentencepiece model is learned, and none is learned here: leave it out"
    if text.model is None:
        return
    if text.tokenizer not in MODEL_TOKENIZERS:
        yield "model", f"goes with the tokenizers {', '.join(MODEL_TOKENIZERS)} alone, not with {text.tokenizer}"
    for option in ("vocabulary", "minimum_count"):
        if option in changed:
            yield option, "a given `model` has its own pieces: leave it out"
    if "case" not in given:
        yield "model", "was made of text of one case: say which, `case: keep` or `case: lower`"


def check_packed(features: Mapping[str, Feature], label: str | None, preprocessing: str | None) -> None:
    """Checks that a record holds nothing but a packed text: a row of several documents has no one label.

    Raises: WrongValueError: it holds more; its path begins at the spec.
    """
    for name in [name for name, feature in features.items() if getattr(feature, "pack", None) is not None]:
        others = [f"the feature '{other}'" for other in features if other != name]
        beside = [*others, *(["`label`"] if label else []), *(["`preprocessing`"] if preprocessing else [])]
        if beside:
            message = f"packed rows hold several documents, and nothing can stand beside them: leave {beside[0]} out"
            raise WrongValueError(f"{message}, or `pack`", "features", name, "pack")


def check_shared(text: TextOptions, owner: str, features: Mapping[str, Feature]) -> None:
    """Checks that a shared vocabulary belongs to another text, whose options match.

    Raises: WrongValueError: it is not; its path begins at the text.
    """
    path = ("vocabulary", "shared_with")
    other = feature_named(owner, features, *path).options()
    if not isinstance(other, TextOptions) or other.shared_with is not None:
        raise WrongValueError(f"'{owner}' should be a text with a vocabulary of its own", *path)
    for option in SHARED_ALIKE:
        mine, theirs = getattr(text, option), getattr(other, option)
        if mine != theirs:
            raise WrongValueError(
                f"is {mine} here and {theirs} in '{owner}', whose vocabulary this is: make them the same", option
            )
    if other.hash_buckets is not None or other.tokenizer == "bytes":
        raise WrongValueError(f"'{owner}' has no vocabulary: leave this out and take the same options", *path)


class SharedVocabulary(Options):
    """Another text's vocabulary."""

    shared_with: str
    """The feature that has the vocabulary; the words of both are counted together."""


def _form(value: Any) -> str:
    """Names the form of a `vocabulary`: a size, unless it is a mapping or looks like a path."""
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
Widths = Annotated[
    tuple[Annotated[int, Field(ge=1, le=16, strict=True)], ...],
    Field(min_length=1),
    BeforeValidator(number_or_list, int | tuple[int, ...]),
]


class Tokenized(Feature):
    """The rules by which a text becomes ids: 0 pads, 1 is unknown, then begin and end where requested, then tokens."""

    column_type = ColumnType.TEXT
    contract: ClassVar[type[TextOptions]] = TextOptions
    description: ClassVar[type[TextDescription]] = TextDescription
    normalize: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode's normalization form. nfkc also unifies characters that differ in looks alone, such as ﬁ and fi."""
    case: Literal["lower", "fold", "keep"] = "lower"
    """lower: small letters; fold: Unicode's NFKC case folding, which makes ß ss; keep: as it is."""
    tokenizer: Literal["words", "whitespace", "characters", "bytes", "wordpiece", "sentencepiece"] = "words"
    """words: runs of letters, marks, digits and underscores; whitespace: runs between white space; characters: code
    points; bytes: of UTF-8; wordpiece, sentencepiece: pieces of words, learned from the train split or given."""
    model: str | None = Field(default=None, min_length=1)
    """A given model instead of a learned one: a SentencePiece model, or a WordPiece vocabulary, a piece a line."""
    model_type: Literal["unigram", "bpe"] = "unigram"
    """The algorithm by which a SentencePiece model is learned."""
    vocabulary: Vocabulary = 32_000
    """The number of tokens that have an id of their own; or a file of words, one a line; or {shared_with: FEATURE}."""
    minimum_count: int = Field(default=1, ge=1, strict=True)
    """A word that the train split holds less often is unknown, and nothing is learned from it."""
    oov_buckets: int = Field(default=1, ge=1, le=1 << 20, strict=True)
    """The number of ids that the unknown tokens share, by their hash: 1 to n."""
    hash_buckets: int | None = Field(default=None, ge=1, le=1 << 40, strict=True)
    """The number of ids without a vocabulary: every token gets one by its hash."""
    ngrams: Widths = (1,)
    """The number of consecutive tokens joined into one by a space; with several, all of the first width come first."""
    begin: bool = False
    """Whether an id of its own stands before each text."""
    end: bool = False
    """Whether an id of its own stands after each text."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """The number of ids kept, and the length that a batch is padded to. None: all are kept, and a batch is padded to
    its longest."""
    truncate: Literal["end", "start"] = "end"
    """The side of a long text that is cut off."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for option, message in _wrong(self.options(), self._changed(), self.model_fields_set):
            raise WrongValueError(message, option)
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that a shared vocabulary exists, and that its options match."""
        if isinstance(self.vocabulary, SharedVocabulary):
            check_shared(self.options(), self.vocabulary.shared_with, features)

    @property
    def analyzed(self) -> bool:
        """Whether the analysis counts its words: they are neither given nor hashed."""
        return self.options().counts_words

    @property
    def needs_model(self) -> bool:
        """Whether a tokenizer's model must be there before the graph is made."""
        return self.tokenizer in MODEL_TOKENIZERS

    def files(self) -> dict[str, str]:
        """Returns the paths of files that decide the stored ids, by option: `model`, or `vocabulary`."""
        given = {"model": self.model, "vocabulary": self.vocabulary if isinstance(self.vocabulary, str) else None}
        return {option: path for option, path in given.items() if path is not None}

    def options(self, *, is_label: bool = False) -> TextOptions:
        if isinstance(self.vocabulary, SharedVocabulary):
            return self._make(self.contract, vocabulary=None, shared_with=self.vocabulary.shared_with)
        return self._make(self.contract)

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the vocabulary and the special ids.

        `statistics` is that of the vocabulary's owner: `vocabulary`, `words` and, for a tokenizer's model, `model` and
        `special_ids` (`pipeline.build.analysis.tokenizers`).
        """
        options = self.options()
        special = SpecialIds(**statistics["special_ids"]) if self.needs_model else options.special
        tokens = BYTES if self.tokenizer == "bytes" else self.hash_buckets or statistics["words"]
        return self._make(
            self.description,
            vocabulary=statistics["vocabulary"] if self.needs_model or options.has_vocabulary else None,
            vocabulary_size=max(special.first + tokens, special.padding + 1),
            padding_id=special.padding,
            unknown_id=special.unknown,
            first_id=special.first,
            begin_id=special.begin,
            end_id=special.end,
            model=statistics["model"] if self.needs_model else None,
            **self.stored_form(),
        )

    def stored_form(self) -> dict[str, Any]:
        """Returns the description's fields for the form of the stored ids."""
        raise NotImplementedError


class Text(Tokenized):
    """A text as ids."""

    kind: Literal["text"]
    keep_length: bool = False
    """Whether `<feature>_length` is stored: the number of ids before the cut."""
    pack: int | None = Field(default=None, ge=1, le=1 << 20, strict=True)
    """The number of ids that a record of several documents holds. None: each document is a record."""

    def parts(self) -> tuple[str, ...]:
        """Names `lengths`, each packed document's, or `length`, with `keep_length`."""
        packed = {"packed": self.pack} if self.pack else {}
        return tuple(TextDescription.parts_of({"keep_length": self.keep_length, **packed}))[1:]

    def read_parts(self) -> tuple[str, ...]:
        """Names the document of each id, `segments`, and its position there, for packed documents."""
        return ("segments", "positions") if self.pack is not None else ()

    def stored_form(self) -> dict[str, Any]:
        """Returns bytes for packed documents, else a list of int64."""
        return {"stored": "bytes" if self.pack else "int64", "packed": self.pack}


class Texts(Tokenized):
    """Several texts a row, such as an image's captions."""

    contract = TextsOptions
    description = TextsDescription
    kind: Literal["texts"]
    texts_per_row: int | None = Field(default=None, ge=1, strict=True)
    """The number of texts that every row must have; any number where it is not given."""
    max_texts: int | None = Field(default=None, ge=1, strict=True)
    """The number of texts kept, the first ones, and that a batch is padded to. None: all are kept, and a batch is
    padded to the most of a row."""
    separator: str = Field(default="\n", min_length=1)
    """The separator of the texts where the source holds them as one string; by default each line is a text."""

    @model_validator(mode="after")
    def _check_texts(self) -> "Texts":
        if self.texts_per_row is not None and self.max_texts is not None:
            raise ValueError("`texts_per_row` and `max_texts` exclude each other: a row has exactly `texts_per_row`")
        return self

    @property
    def fill(self) -> Any:
        return []

    def _column(self) -> Column:
        return replace(super()._column(), many=True, separator=self.separator, length=self.texts_per_row)

    def parts(self) -> tuple[str, ...]:
        """Names `lengths`, the number of ids of each text."""
        return ("lengths",)

    def read_parts(self) -> tuple[str, ...]:
        """Names `length`, the number of texts, where rows differ in it."""
        return ("length",) if self.texts_per_row is None else ()

    def stored_form(self) -> dict[str, Any]:
        """Returns the number of texts of every row, or `varying`."""
        return {"texts_per_row": self.texts_per_row or "varying"}
