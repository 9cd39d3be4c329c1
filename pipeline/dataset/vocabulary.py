"""Ids and the words that they stand for: a feature's vocabulary, with the special entries in their places."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from recordmill.pipeline.dataset.paths import Location, read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.base import UNKNOWN, Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.text import TextDescription

Ids: TypeAlias = TextDescription | CategoryDescription | CategoriesDescription
"""The features whose values are ids."""

PADDING = ""
BEGIN, END = "[BEGIN]", "[END]"
MOST_SPECIAL = 2 << 20  # a spec may ask for 1,048,576 ids of unknown words; a manifest may come from anywhere
MOST_BYTES = 512 << 20  # 512 MiB: 32 bytes a word
MOST_WORDS = 16 << 20  # 16,777,216: a gigabyte of memory
ADVICE = "copy the version again, or build again"


def read_vocabulary(folder: Location, description: Description, feature: str = "it") -> list[str]:
    """Returns the words of a feature by id: first the special entries that the feature has, then its file's lines.

    The words of a text of bytes are `<0x00>` to `<0xFF>`. A given model's special entries are named in its file.

    Raises:
        DatasetError: there is no vocabulary, or its file is missing, is not UTF-8, or holds another number of words
            than the manifest says.
    """
    if not isinstance(description, Ids):
        raise DatasetError(f"'{feature}' has no vocabulary: its kind is {description.kind}")
    if isinstance(description, TextDescription) and description.tokenizer == "bytes":
        return _special(description) + [f"<0x{byte:02X}>" for byte in range(256)]
    if description.vocabulary is None:
        hashed = "its ids are hashes (hash_buckets)" if description.hash_buckets is not None else None
        raise DatasetError(f"'{feature}' has no vocabulary: {hashed or 'its kind is ' + description.kind}")
    path = folder / description.vocabulary
    shown = None if isinstance(description, TextDescription) else description.shown
    words = _special(description) + (list(shown) if shown else read_words(folder, description.vocabulary))
    if padding_id(description) == len(words):  # a given model without padding
        words.append(PADDING)
    expected = description.vocabulary_size
    if len(words) != expected:
        raise DatasetError(f"{path} and its special ids are {len(words)} words, expected {expected}: {ADVICE}")
    return words


def padding_id(description: Description) -> int | None:
    """Returns the id that fills up a feature's lists; None where it has none."""
    return description.padding_id if isinstance(description, TextDescription | CategoriesDescription) else None


def _special(description: Ids) -> list[str]:
    """Returns the entries below the first id of the words' own; unknown words may share several ids."""
    unknown, first = description.unknown_id, description.first_id or 0
    buckets = 1 if description.oov_buckets is None else description.oov_buckets
    if max(buckets, first) > MOST_SPECIAL:
        raise DatasetError(f"a vocabulary has no {max(buckets, first):,} special entries: {ADVICE}")
    names: dict[int | None, str] = {}
    if isinstance(description, TextDescription):
        names = {description.begin_id: BEGIN, description.end_id: END}
    if unknown is not None:
        names |= dict.fromkeys(range(unknown, unknown + buckets), UNKNOWN)
    return [names.get(id_, PADDING) for id_ in range(first)]


def read_words(folder: Location, file: str) -> list[str]:
    """Returns the words of a vocabulary's file, which has one on each line.

    Raises:
        DatasetError: it cannot be read, or holds more than 512 MiB or 16,777,216 lines.
    """
    path = folder / file
    try:
        data = read_inner(folder, file, MOST_BYTES)
        if (lines := data.count(b"\n")) > MOST_WORDS:
            raise DatasetError(f"{path} has {lines:,} lines, and a vocabulary at most {MOST_WORDS:,} words: {ADVICE}")
        text = data.decode("utf-8")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}): {ADVICE}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error}): {ADVICE}") from error
    # Only a newline ends a word: `splitlines` would also cut at characters such as U+0085 that a word may hold.
    return text.removesuffix("\n").split("\n") if text else []


def without_blank(words: Iterable[str]) -> tuple[str, ...]:
    """Leaves blank words out: the file of a vocabulary without words holds one."""
    return tuple(word for word in words if word.strip())


def to_words(vocabulary: Sequence[str], ids: Any, padding_id: int | None) -> list[Any]:
    """Replaces ids by words and leaves the padding out; lists in lists stay lists in lists.

    Args:
        vocabulary: the words by id.
        ids: a list, an array or an eager tensor of whole numbers, of any number of dimensions but 0.
        padding_id: the id that is left out, None for none.

    Raises:
        DatasetError: a single number, or an id that the vocabulary does not have.
    """
    nested = _to_list(ids)
    if not isinstance(nested, list):
        raise DatasetError(
            f"ids are a list or an array, got {cut(repr(ids))}: an id's word is `vocabulary(feature)[id]`"
        )
    return _words(vocabulary, nested, padding_id)


def _to_list(ids: Any) -> Any:
    """Plain lists of NumPy arrays, eager tensors and ragged tensors, without importing what makes them."""
    for method in ("to_list", "numpy", "tolist"):
        if hasattr(ids, method):
            return _to_list(getattr(ids, method)())
    return [_to_list(inner) for inner in ids] if isinstance(ids, list | tuple) else ids


def _words(vocabulary: Sequence[str], ids: list[Any], padding_id: int | None) -> list[Any]:
    return [
        _words(vocabulary, inner, padding_id) if isinstance(inner, list) else _word(vocabulary, inner)
        for inner in ids
        if isinstance(inner, list) or inner != padding_id
    ]


def _word(vocabulary: Sequence[str], id_: Any) -> str:
    if not isinstance(id_, int) or not 0 <= id_ < len(vocabulary):
        raise DatasetError(f"there is no word of id {id_!r}: the vocabulary has the ids 0 to {len(vocabulary) - 1}")
    return vocabulary[id_]
