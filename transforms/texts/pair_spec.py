"""Pairs: two texts as one list of ids, joined as the model's tokenizer does."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.texts.text_ids_spec import TextIds, Token, wrong_library
from recordmill.transforms.texts.text_stored import FIELDS, PairDescription


class Pair(TextIds):
    """Two texts as one list of ids, such as a question and its answer."""

    column_type = ColumnType.TEXT
    kind: Literal["pair"]
    is_packable: ClassVar[bool] = True
    first: str = Field(min_length=1)
    """The column of the first text."""
    second: str = Field(min_length=1)
    """The column of the second text."""
    tokenizer: Literal["huggingface", "tiktoken"] = "huggingface"
    """The package that reads `model`. Other tokenizers run in the graph, which takes one text."""
    model: str = Field(min_length=1)
    """A model's tokenizer.json, or tiktoken's file of ranks."""
    special_tokens: bool = True
    """Whether a tokenizer.json joins the texts by its own template."""
    pattern: str | None = Field(default=None, min_length=1)
    """The rule that splits a text before the ranks of tiktoken apply, as of `text`."""
    begin: Token | None = None
    """The name of a token before the first text."""
    separator: Token | None = None
    """The name of the token between the texts, if the file's template puts none there."""
    end: Token | None = None
    """The name of a token after the second text."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """Keeps this many ids, and pads batches to this length. None: keeps all, and pads to a batch's longest pair."""
    truncate: Literal["longest_first", "only_first", "only_second"] = "longest_first"
    """The text to cut at its end: the longer one until both are equal, or only one, as in `tokenizers`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        changed = self._changed()
        for option, message in wrong_library(self, changed, self.model_fields_set):
            raise WrongValueError(message, option)
        is_joined = self.tokenizer == "huggingface" and self.special_tokens
        if is_joined and self.separator is not None:
            raise WrongValueError("contradicts the file's template: add `special_tokens: false`", "separator")
        if not is_joined and self.separator is None:
            raise WrongValueError("name the token between the texts: `separator: <|endoftext|>`", "separator")
        if "truncate" in changed and self.max_length is None:
            raise WrongValueError("needs `max_length`: give one, or leave `truncate` out", "truncate")
        for option in ("column", "optional"):
            if option in changed:
                raise WrongValueError("a pair has both texts, of `first` and `second`: leave it out", option)
        return self

    def first_column(self, name: str) -> str:
        return self.first

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        return {field: (getattr(self, field), Column(ColumnType.TEXT)) for field in FIELDS}

    def files(self) -> dict[str, str]:
        return {"model": self.model}

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe_given(PairDescription, statistics)
