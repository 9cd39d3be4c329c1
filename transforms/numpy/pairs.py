"""Two texts as one list of ids, as models of pairs take them; cut as the package `tokenizers` does.

The first text does not hold the separator that ends it, so that ids alone tell the texts apart.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from recordmill.pipeline.errors import UserError
from recordmill.transforms.contract.kinds.pair import PairOptions
from recordmill.transforms.contract.kinds.text import TextOptions
from recordmill.transforms.contract.stored import Ragged, splits_of
from recordmill.transforms.numpy.tokenizers import Encoded, Text, TextTokenizer


class PairError(UserError):
    """A pair cannot be stored: the code of its reject, and a message without its words."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PairTokenizer(TextTokenizer):
    """Makes the ids of pairs, sequences of two texts, as their build does; may be called from several threads."""

    separator_id: int

    def __init__(self, data: bytes, options: PairOptions, where: str = "the model") -> None:
        """Reads a model. Raises: UserError: as `TextTokenizer`, or no token of its own ends the first text."""
        super().__init__(data, options, where)
        between = self.around[1]
        if not len(between) or between[0] in self.before:
            message = "puts no token of its own between two texts: name a `separator`, with `special_tokens: false`"
            raise UserError(f"{where} {message}")
        self._added = sum(map(len, self.around))
        self.separator_id = int(between[0])

    def tokens(self, texts: Sequence[Text]) -> list[tuple[list[int], list[int]]]:
        """Returns the ids of both texts of each pair."""
        first, second = (self._library.encode([pair[place] for pair in texts]) for place in (0, 1))
        return list(zip(first, second, strict=True))

    def encode_batch(self, texts: Sequence[Text]) -> Encoded:
        """Returns the ids of pairs, also of none. Raises: PairError: a pair cannot be stored."""
        tokens = self.tokens(texts)
        rows = [self.join(first, second) for first, second in tokens]
        splits = splits_of(np.fromiter(map(len, rows), np.int64, len(rows)))
        values = np.fromiter(chain.from_iterable(rows), np.int64, int(splits[-1]))
        whole = [len(first) + len(second) + self._added for first, second in tokens]
        return Encoded(Ragged(values, splits), np.array(whole, np.int64))

    def join(self, first: list[int], second: list[int]) -> list[int]:
        """Returns a pair's ids as they are stored.

        Raises: PairError: the first text holds the separator, or `truncate` cannot cut so much.
        """
        before, between, after = (ids.tolist() for ids in self.around)
        kept = self._kept(len(first), len(second))
        first, second = first[: kept[0]], second[: kept[1]]
        if self.separator_id in first:
            raise PairError(
                "separator_in_text", f"the first text holds {self.pieces[self.separator_id]}, which ends it"
            )
        return [*before, *first, *between, *second, *after]

    def _kept(self, first: int, second: int) -> tuple[int, int]:
        """Returns the numbers of ids that stay of both texts; of `longest_first` the shorter one is cut last."""
        room = first + second if self._options.max_length is None else self._options.max_length - self._added
        surplus = first + second - room
        if surplus <= 0:
            return first, second
        if self._options.truncate == "longest_first":
            shorter = min(first, second, room // 2)
            return (shorter, room - shorter) if first <= second else (room - shorter, shorter)
        cut, other = (first, second) if self._options.truncate == "only_first" else (second, first)
        if cut <= surplus:
            allowed = f"the other text has {other} ids, both may have {room}"
            raise PairError("uncuttable_pair", f"{allowed}: take `truncate: longest_first`")
        return (cut - surplus, other) if self._options.truncate == "only_first" else (other, cut - surplus)


def open_tokenizer(data: bytes, options: TextOptions, where: str = "the model") -> TextTokenizer:
    """Opens the tokenizer of texts or pairs. Raises: UserError: as these."""
    if isinstance(options, PairOptions):
        return PairTokenizer(data, options, where)
    return TextTokenizer(data, options, where)
