"""Labels of a text's tokens, one for each of its ids: the classes of words or spans, or a number to ignore."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from recordmill.pipeline.json_values import Count
from recordmill.transforms.contract.kinds import base

OUTSIDE = "O"
IGNORED = "a label to ignore"
LABELS = ("label", "entity_group", "entity", "type", "tag")
FIELDS = {"start": ("start", "start_offset"), "end": ("end", "end_offset"), "label": LABELS}
"""The names of a span's fields, doccano's too; the first that a span has."""
PREFIXES: Mapping[str, tuple[str, ...]] = {"bio": ("B-", "I-"), "bioes": ("B-", "I-", "E-", "S-"), "none": ("",)}
"""The beginnings of tags by scheme (Ramshaw and Marcus 1995; Ratinov and Roth 2009): begin, inside, end, single."""


@dataclass(frozen=True, kw_only=True)
class TokenLabelsOptions(base.FeatureOptions):
    """The options of labels of tokens."""

    kind: ClassVar[str] = "token_labels"
    is_input: ClassVar[bool] = False
    text: str  # the feature with the tokens
    classes: tuple[str, ...] = ()  # tags by id
    spans: bool = False  # whether a row has spans of characters, not a tag for each word
    label: str = "first"  # the labelled pieces of a word: the `first`, or `all`
    ignore: int = -100  # the label of all other tokens
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=FIELDS.copy)
    scheme: str = "bio"  # `bio`, `bioes` or `none`


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
