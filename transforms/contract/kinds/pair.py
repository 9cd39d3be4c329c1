"""Two texts as one list of ids, and for each id whether it belongs to the second."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from recordmill.transforms.contract.kinds import base
from recordmill.transforms.contract.kinds.text import DecodedText, TextDescription

FIELDS = ("first", "second")
TYPES = "token_types"


@dataclass(frozen=True, kw_only=True)
class PairDescription(TextDescription):
    """The ids of two texts a row, and for each its type, by the model's own template."""

    kind: ClassVar[str] = "pair"
    aligned: ClassVar[tuple[str, ...]] = (TYPES,)

    def words(self) -> str:
        return f"{super().words()}, with token types"

    def value(self, parts: Mapping[str, Any], decoding: base.Decoding) -> "DecodedPair":
        """Returns both texts, with the separators."""
        stored = replace(self, padding_id=self.vocabulary_size, end_id=None)  # ids that may also separate
        both = stored.text(parts[""].tolist(), decoding)
        return DecodedPair(both.ids, both.words, both.text, token_types=tuple(parts[TYPES].tolist()))


@dataclass(frozen=True)
class DecodedPair(DecodedText):
    """Two texts as the model reads them."""

    token_types: tuple[int, ...] = ()  # for each id
