"""What follows from a text's options alone, for both halves of the kind: plain functions of the options' mapping.

>>> special_ids({"tokenizer": "words", "hash_buckets": None, "oov_buckets": 1, "begin": False, "end": True})
SpecialIds(padding=0, unknown=1, begin=None, end=2, first=3)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WORD_TOKENIZERS = ("words", "whitespace", "characters")
"""The tokenizers whose tokens are strings, which are looked up in a vocabulary or hashed."""
MODEL_TOKENIZERS = ("wordpiece", "sentencepiece")
"""The tokenizers that are a model, trained or given, whose pieces have their ids."""
BYTES = 256


@dataclass(frozen=True)
class SpecialIds:
    """The ids that stand for no token."""

    padding: int
    unknown: int | None
    """The first id of unknown tokens, of which there are `oov_buckets`; None where nothing is unknown."""
    begin: int | None
    end: int | None
    first: int
    """The first id of the tokens' own."""

    @property
    def added(self) -> int:
        """How many ids are added to those of the tokens."""
        return (self.begin is not None) + (self.end is not None)


def special_ids(options: Mapping[str, Any]) -> SpecialIds:
    """Those of a given model (`special_ids`), else 0 for padding, 1 and on for unknown tokens, then begin and end."""
    if options.get("special_ids"):
        return SpecialIds(**options["special_ids"])
    unknown_ids = options["oov_buckets"] if has_vocabulary(options) or options["tokenizer"] in MODEL_TOKENIZERS else 0
    begin = 1 + unknown_ids
    end = begin + options["begin"]
    return SpecialIds(
        padding=0,
        unknown=1 if unknown_ids else None,
        begin=begin if options["begin"] else None,
        end=end if options["end"] else None,
        first=end + options["end"],
    )


def has_vocabulary(options: Mapping[str, Any]) -> bool:
    """Whether the ids are places in a file of words that the analysis writes."""
    return options["tokenizer"] in WORD_TOKENIZERS and options["hash_buckets"] is None


def counts_words(options: Mapping[str, Any]) -> bool:
    """Whether the analysis counts the words, because no file of words is given."""
    return has_vocabulary(options) and not isinstance(options["vocabulary"], str)


def vocabulary_owner(name: str, options: Mapping[str, Any]) -> str:
    """The feature whose vocabulary, or tokenizer, this one uses: its own, or the one that it shares."""
    shared = options.get("vocabulary")
    return shared["shared_with"] if isinstance(shared, Mapping) else name


def needs_tensorflow_text(options: Mapping[str, Any]) -> bool:
    """Whether the graph holds ops that only a process that imports `tensorflow_text` can load."""
    return options["normalize"] != "none" or options["case"] == "fold" or options["tokenizer"] in MODEL_TOKENIZERS
