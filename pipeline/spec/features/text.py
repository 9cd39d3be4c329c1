"""Text, cleaned, split into tokens and mapped to ids by a vocabulary, learned from the train split or given."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from recordmill.pipeline.options import Options
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.spec.features.base import Feature
from recordmill.pipeline.spec.features.text_rules import check_options, check_shared
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import BYTES, MODEL_TOKENIZERS, SpecialIds, TextDescription, TextOptions


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


class Text(Feature):
    """A text as ids: 0 pads, 1 is unknown, then begin and end where requested, then the tokens' own."""

    column_type = ColumnType.TEXT
    kind: Literal["text"]
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
    keep_length: bool = False
    """Whether `<feature>_length` is stored: the number of ids before the cut."""
    pack: int | None = Field(default=None, ge=1, le=1 << 20, strict=True)
    """The number of ids that a record of several documents holds. None: each document is a record."""

    @model_validator(mode="after")
    def _check(self) -> "Text":
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
            return self._make(TextOptions, vocabulary=None, shared_with=self.vocabulary.shared_with)
        return self._make(TextOptions)

    def parts(self) -> tuple[str, ...]:
        """Names `lengths`, each packed document's, or `length`, with `keep_length`."""
        packed = {"packed": self.pack} if self.pack else {}
        return tuple(TextDescription.parts_of({"keep_length": self.keep_length, **packed}))[1:]

    def read_parts(self) -> tuple[str, ...]:
        """Names the document of each id, `segments`, and its position there, for packed documents."""
        return ("segments", "positions") if self.pack is not None else ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the vocabulary and the special ids.

        `statistics` is that of the vocabulary's owner: `vocabulary`, `words` and, for a tokenizer's model, `model` and
        `special_ids` (`pipeline.build.analysis.tokenizer_models`).
        """
        options = self.options()
        special = SpecialIds(**statistics["special_ids"]) if self.needs_model else options.special
        tokens = BYTES if self.tokenizer == "bytes" else self.hash_buckets or statistics["words"]
        return self._make(
            TextDescription,
            stored="bytes" if self.pack else "int64",
            vocabulary=statistics["vocabulary"] if self.needs_model or options.has_vocabulary else None,
            vocabulary_size=max(special.first + tokens, special.padding + 1),
            padding_id=special.padding,
            unknown_id=special.unknown,
            first_id=special.first,
            begin_id=special.begin,
            end_id=special.end,
            model=statistics["model"] if self.needs_model else None,
            packed=self.pack,
        )
