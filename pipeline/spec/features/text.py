"""Text, one or several a row: cleaned, cut into tokens, and mapped to ids by a vocabulary, learned or given."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from recordmill.pipeline.options import Options
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import Feature
from recordmill.pipeline.spec.features.text_rules import check_options, check_shared
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import (
    BYTES,
    MODEL_TOKENIZERS,
    SpecialIds,
    TextDescription,
    TextOptions,
    TextsDescription,
    TextsOptions,
)


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
    BeforeValidator(lambda value: (value,) if isinstance(value, int) else value, int | tuple[int, ...]),
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
        check_options(self.options(), self._changed(), given=self.model_fields_set)
        return self

    def check(self, features: Mapping[str, Feature]) -> None:
        """Checks that a shared vocabulary exists, and that its options match.

        Raises:
            WrongValueError: it is not; its path begins at this feature.
        """
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
        """Gives the paths of files that decide the stored ids, by option: `model`, or `vocabulary`."""
        given = {"model": self.model, "vocabulary": self.vocabulary if isinstance(self.vocabulary, str) else None}
        return {option: path for option, path in given.items() if path is not None}

    def options(self, *, is_label: bool = False) -> TextOptions:
        """Gives what the graph and the workers need."""
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
        """Gives the description's fields for the form of the stored ids."""
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
        """Gives bytes for packed documents, else a list of int64."""
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
        """The empty list."""
        return []

    def raw_column(self) -> Column:
        """Gives a column of lists of texts, which may be empty."""
        return Column(
            self.column_type, many=True, optional=self.optional, separator=self.separator, length=self.texts_per_row
        )

    def parts(self) -> tuple[str, ...]:
        """Names `lengths`, the number of ids of each text."""
        return ("lengths",)

    def read_parts(self) -> tuple[str, ...]:
        """Names `length`, the number of texts, where rows differ in it."""
        return ("length",) if self.texts_per_row is None else ()

    def stored_form(self) -> dict[str, Any]:
        """Gives the number of texts of every row, or `varying`."""
        return {"texts_per_row": self.texts_per_row or "varying"}
