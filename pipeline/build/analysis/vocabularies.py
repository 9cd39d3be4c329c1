"""Chooses the words of a vocabulary, and their order, from counts that do not depend on any order."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import TextOptions

NO_WORD = b" "  # the only line of an empty vocabulary: TensorFlow opens no empty file, and no word is blank


@dataclass(frozen=True)
class VocabularyOptions:
    """Chooses the words of a feature that get an id."""

    name: str
    top_k: int | None = None
    minimum_count: int = 1
    given: tuple[str, ...] | None = None
    """The words themselves, in their order; then nothing is counted."""
    kept: tuple[bytes, ...] = ()
    """Words that stand first, in this order, whether they are counted or not."""
    order: str = "frequency"

    @classmethod
    def of(cls, name: str, options: TextOptions | NameOptions) -> "VocabularyOptions":
        """Returns those of a text, or of a feature whose values are names."""
        if isinstance(options, TextOptions):
            size = options.vocabulary if isinstance(options.vocabulary, int) else None
            return cls(name, size, options.minimum_count, options.words)
        kept = tuple(name.encode() for name in options.kept)
        return cls(name, options.max_classes, options.minimum_count, options.classes, kept, options.order)

    def words(self, counts: Mapping[bytes, int]) -> list[bytes]:
        """Returns the words that get an id, in the order of the ids, from all that may; never no words at all."""
        if self.given is not None:
            return [word.encode() for word in self.given] or [NO_WORD]
        frequent = [word for _, word in most_frequent(counts, self.top_k, self.minimum_count)]
        return class_names(frequent, self.kept, self.top_k, self.order) or [NO_WORD]

    def candidates(self, counts: Mapping[bytes, int]) -> list[tuple[int, bytes]]:
        """Returns the (count, word) pairs of a part of the words that can be in the vocabulary of all."""
        frequent = most_frequent(counts, self.top_k, self.minimum_count)
        return list(dict.fromkeys([*frequent, *((counts[word], word) for word in self.kept if word in counts)]))


def most_frequent(counts: Mapping[bytes, int], top_k: int | None, minimum_count: int) -> list[tuple[int, bytes]]:
    """The (count, word) pairs of a vocabulary: most frequent first, words of equal count in descending byte order.

    That is the order of tf.Transform's `tft.vocabulary`. Words that are blank or hold a line break are left out.
    """
    pairs = (
        (count, word)
        for word, count in counts.items()
        if count >= minimum_count and word.strip() and b"\n" not in word and b"\r" not in word
    )
    return sorted(pairs, reverse=True) if top_k is None else heapq.nlargest(top_k, pairs)


def class_names(frequent: Sequence[bytes], kept: Sequence[bytes], most: int | None, order: str) -> list[bytes]:
    """Returns the names of a category by id: those that are kept stay where they are, new ones follow.

    Args:
        frequent: the names of the data, the most frequent first.
        kept: the names of the version before, by id, whether the data still has them or not.
        most: the number of names that may have an id, where it is limited; new names take what `kept` leaves.
        order: `alphabetical`, which is that of Unicode's code points, or `frequency`: the order of the new names.
    """
    known = set(kept)
    new = [name for name in frequent if name not in known]
    new = new if most is None else new[: max(0, most - len(kept))]
    return [*kept, *(sorted(new) if order == "alphabetical" else new)]
