"""Bases of texts, pairs and chats: ids by a tokenizer in the graph, or by one that a model brings."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from recordmill.transforms.base.description import NOTHING, Description, Learned, SpecialIds
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.texts.text_stored import LIBRARY_TOKENIZERS, MODEL_TOKENIZERS, TokenizerOptions, Window

Names = AbstractSet[str]  # of options
Token = Annotated[str, Field(min_length=1)]


def wrong_library(text: Any, changed: Names, given: Names) -> Iterator[tuple[str, str]]:
    """Yields options and the reasons: a library's tokenizer does not take them, or only that of a library does."""
    for option in ("begin", "end"):
        value = getattr(text, option)
        if isinstance(value, str) and not text.in_library:
            yield option, f"should be true or false with the tokenizer {text.tokenizer}, got {value!r}"
        if value is True and text.in_library:
            yield option, f"name the token of the tokenizer {text.tokenizer}, such as `{option}: <|endoftext|>`"
    for option in ("special_tokens", "pretokenized"):
        if option in changed and text.tokenizer != "huggingface":
            yield option, "is for the tokenizer huggingface: leave it out"
    if (text.pattern is not None) != (text.tokenizer == "tiktoken"):
        known = "`r50k_base`, `p50k_base`, `cl100k_base`, `o200k_base`, or the regular expression"
        missing = f"the tokenizer tiktoken needs the pattern that splits a text before ranks apply: {known}"
        yield "pattern", missing if text.pattern is None else "is for the tokenizer tiktoken: leave it out"
    if not text.in_library:
        return
    if text.model is None and text.shared_with is None:
        file = "tokenizer.json" if text.tokenizer == "huggingface" else "o200k_base.tiktoken"
        yield "model", f"the tokenizer {text.tokenizer} is a file of yours: give it, such as `model: {file}`"
    for option in ("normalize", "case"):
        if option in given:
            yield option, f"the tokenizer {text.tokenizer} has its own rules: leave it out"


class TextIds(Feature):
    """Texts as ids: by a tokenizer in the graph, or by one that a model brings, in the worker."""

    limits = "missing", "jensen_shannon", "psi", "out_of_vocabulary", "ids_moved"
    is_content = True
    counts = "words"
    if TYPE_CHECKING:
        model: str | None

        @property
        def tokenizer(self) -> str:
            """The way from texts to ids."""

    @property
    def in_library(self) -> bool:
        return self.tokenizer in LIBRARY_TOKENIZERS

    @property
    def needs_model(self) -> bool:
        return self.tokenizer in MODEL_TOKENIZERS

    @property
    def shared_with(self) -> str | None:
        """The feature with the vocabulary or tokenizer to use; None: its own."""
        return None

    def owner(self, name: str) -> str:
        return self.shared_with or name

    @property
    def needs_tensorflow_text(self) -> bool:
        """Whether the graph needs a process with `tensorflow_text` imported."""
        return False

    @property
    def library_parts(self) -> tuple[str, ...]:
        """The parts that come with a library's ids and bypass the graph."""
        return ()

    @property
    def windows(self) -> Window | None:
        """The records of a long text, cut after the graph."""
        return None

    @property
    def tokenizer_options(self) -> TokenizerOptions:
        names = [each.name for each in fields(TokenizerOptions) if hasattr(self, each.name)]
        return TokenizerOptions(**{name: getattr(self, name) for name in names})

    def special(self, learned: Learned = NOTHING) -> SpecialIds:
        """Returns the special ids, the model's if it is read."""
        assert learned.special is not None  # noqa: S101 - the driver reads every model
        return learned.special

    def _describe_given(self, kind: type[Description], statistics: dict[str, Any]) -> Description:
        """Describes ids of a given model, whatever joins its texts."""
        special = SpecialIds(**statistics["special_ids"])
        size = max(special.first + statistics["words"], special.padding + 1)
        found = {name: statistics[name] for name in ("vocabulary", "model", "joins")}
        given = {**found, "vocabulary_size": size, "tokenizer": self.tokenizer, **special.described()}
        return self._describe(kind, **given)
