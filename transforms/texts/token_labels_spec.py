"""Labels of a text's tokens: tags of words, or spans of characters, as one id for each of the text's."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.feature import Feature, feature_named
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.texts.text_stored import OUTSIDE, PREFIXES, SPAN_FIELDS, TokenLabelsDescription
from recordmill.transforms.values.category_spec import Classes, ListedClasses


class TokenLabels(ListedClasses):
    """Labels of the tokens of a text, such as named entities."""

    column_type = ColumnType.CATEGORY
    is_input = False
    counts = "labels"
    kind: Literal["token_labels"]
    is_packable: ClassVar[bool] = True
    text: str
    """The text with the tokens, of `tokenizer: huggingface`."""
    classes: Classes | None = None
    """The tags, ordered by id."""
    classes_file: str | None = Field(default=None, min_length=1)
    """A file of tags, one per line, instead of `classes`."""
    spans: bool = False
    """Whether a row has spans of characters, objects or lists of `start`, `end`, `label`, not a tag for each word."""
    fields: dict[Literal["start", "end", "label"], str] = {}
    """Other names of a span's fields: {label: category}. Known are doccano's, and entity_group, entity, type, tag."""
    scheme: Literal["bio", "bioes", "none"] = "bio"
    """The scheme of tags, checked in each row: `O`, and a type after B-, I-, of bioes also E-, S-. none: any tags."""
    label: Literal["first", "all"] = "first"
    """The labelled pieces of a word: the first, or all, by `scheme`: B-PER, I-PER."""
    ignore: int = Field(default=-100, ge=-(1 << 63), lt=1 << 63, strict=True)
    """The label of special tokens, other pieces and padding, which losses leave out."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.classes is None) == (self.classes_file is None):
            message = "should list the tags, ordered by id: `classes: [O, B-PER, I-PER]`, or a `classes_file`, not both"
            raise WrongValueError(message, "classes")
        if wrong := self._wrong_classes():
            raise WrongValueError(wrong, "classes")
        return self

    def _wrong_classes(self) -> str | None:
        """Says why tags contradict the other options; None for a file not yet read."""
        tags, prefixes = self.classes or (), PREFIXES[self.scheme]
        if 0 <= self.ignore < len(tags):
            return f"gives {tags[self.ignore]!r} the id {self.ignore}, which `ignore` takes: change it, such as to -100"
        if self.scheme != "none":
            for tag in tags:
                if tag != OUTSIDE and not (tag.startswith(prefixes) and tag[2:]):
                    known = ", ".join(f"{prefix}…" for prefix in prefixes)
                    return f"holds {cut(repr(tag))}, neither O nor {known}: `scheme: none` takes any tags"
        if not tags or not (self.spans or self.label == "all"):
            return None
        types = dict.fromkeys(tag[2:] for tag in tags if tag != OUTSIDE) if self.scheme != "none" else {}
        needed = [*([OUTSIDE] if self.spans else []), *(prefix + name for name in types for prefix in prefixes)]
        why = "`spans: true`" if self.spans else "`label: all`"
        return next((f"lacks {cut(repr(tag))}, which {why} needs: add it" for tag in needed if tag not in tags), None)

    def with_classes(self) -> Self:
        read = super().with_classes()
        if wrong := read._wrong_classes():
            raise ValueError(f"{self.classes_file} {wrong}")
        return read

    @property
    def fill(self) -> Any:
        return b"" if self.spans else []

    def _column(self) -> Column:
        if self.spans:
            return Column(ColumnType.OBJECTS, optional=self.optional, keys=sum(self.named.values(), ()))
        return Column(ColumnType.CATEGORY, many=True, optional=self.optional, separator=" ")

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The names of a span's fields, by their own."""
        return SPAN_FIELDS | {name: (other,) for name, other in self.fields.items()}

    def check(self, features: Mapping[str, Feature]) -> None:
        text = feature_named(self.text, features, "text")
        if not isinstance(text, Text) or text.tokenizer != "huggingface":
            found = f"has the tokenizer {text.tokenizer}" if isinstance(text, Text) else f"is of kind {text.kind}"
            message = f"'{self.text}' {found}: give a text of `tokenizer: huggingface`, which tells the place of tokens"
            raise WrongValueError(message, "text")
        if self.spans and text.pretokenized:
            message = "is a list of words, `pretokenized`: give a tag for each, without `spans`"
            raise WrongValueError(f"'{self.text}' {message}", "text")
        if not self.spans and not text.pretokenized:
            message = "should be a list of words, with `pretokenized: true`; or give `spans: true` here"
            raise WrongValueError(f"'{self.text}' {message}", "text")

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes the labels; `statistics` hold the text's `max_length`."""
        most = statistics["max_length"]
        return self._describe(TokenLabelsDescription, padding_id=self.ignore, max_length=most)
