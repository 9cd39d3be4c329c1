"""One version of a dataset: its splits, features, classes and vocabularies, read from its own folder alone.

A vocabulary has the special entries in their places. The public class is `recordmill.Dataset`, which adds the inputs of
a training, records and pictures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Json, Manifest
from recordmill.pipeline.dataset.paths import ADVICE, Location, read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import UNKNOWN, Description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.text import TextDescription


class DatasetVersion:
    """One version of a dataset.

    Attributes:
        folder: the version's folder: an absolute `Path`; of a URL a `RemotePath`, whose `str` is the URL.
        manifest: its `dataset.json`.
    """

    def __init__(self, folder: Location, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._vocabularies: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        """Shows the name, the version and the splits."""
        return f"<{type(self).__name__} {self.name} {self.version} {self.splits}>"

    @property
    def name(self) -> str:
        """The dataset's name, as in the spec."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The version that was opened."""
        return self.manifest.version

    @property
    def splits(self) -> dict[str, int]:
        """The number of records of each split."""
        return {name: split.records for name, split in self.manifest.splits.items()}

    @property
    def features(self) -> Mapping[str, Json]:
        """The features' descriptions as in `dataset.json`, in the order of the spec, the label among them."""
        return self.manifest.features

    @property
    def label(self) -> str | None:
        """The feature that is the target, if there is one."""
        return self.manifest.label

    @property
    def classes(self) -> list[str]:
        """The names of the label's classes by id. Raises: DatasetError: there is no label, or it is no category."""
        if self.label is None:
            raise DatasetError(f"{self.name} has no label; `class_names(feature)` gives the names of any category")
        return self.class_names(self.label)

    @property
    def num_classes(self) -> int:
        """The number of the label's classes. Raises: DatasetError as `classes`."""
        return len(self.classes)

    def class_names(self, feature: str) -> list[str]:
        """Returns a category's names by id; where 0 is the unknown one, its name is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, or it is no category.
        """
        description = self._description(feature)
        if not isinstance(description, CategoryDescription | CategoriesDescription):
            raise DatasetError(f"'{feature}' has no classes: its kind is {description.kind}, not category")
        return self.vocabulary(feature)

    def vocabulary(self, feature: str) -> list[str]:
        """Returns a feature's words by id: of a text, 0 is the padding `''` and 1 is `[UNK]`.

        Raises:
            DatasetError: there is no such feature, it has no vocabulary, or its file is not what it was.
        """
        description = self._description(feature)
        if feature not in self._vocabularies:
            self._vocabularies[feature] = read_vocabulary(self.folder, description, feature)
        return list(self._vocabularies[feature])

    def vocabulary_size(self, feature: str) -> int:
        """Returns the number of ids, special ones included: the size of an embedding.

        Raises:
            DatasetError: there is no such feature, or it has no ids.
        """
        description = self._description(feature)
        if not isinstance(description, Ids):
            raise DatasetError(f"'{feature}' has no ids: its kind is {description.kind}")
        return description.vocabulary_size

    def to_words(self, feature: str, ids: Any) -> list[Any]:
        """Returns the words of ids, without the padding: a list for a row, a list of lists for a batch.

        Args:
            feature: a feature with a vocabulary.
            ids: a list, an array or an eager tensor of whole numbers; no ids give `[]`.

        Raises:
            DatasetError: as `vocabulary`, or an id that the vocabulary does not have.
        """
        return to_words(self.vocabulary(feature), ids, padding_id(self._description(feature)))

    def _description(self, feature: str) -> Description:
        """Returns a feature's description, read alone: a feature of an unknown kind hinders no other."""
        return read_descriptions({feature: self.manifest.feature(feature)})[feature]

    def label_counts(self, split: str) -> dict[str, int]:
        """Returns the records of each class in a split, in the order of `classes`.

        Raises:
            DatasetError: there is no such split, or the label is no category.
        """
        classes, counts = self.classes, self.manifest.split(split).label_counts
        if counts is None or len(counts) != len(classes):
            raise DatasetError(f"{self.folder / MANIFEST_FILE} has no count for each class of '{split}': build again")
        return dict(zip(classes, counts, strict=True))


Ids: TypeAlias = TextDescription | CategoryDescription | CategoriesDescription
"""The features whose values are ids."""

PADDING = ""
BEGIN, END = "[BEGIN]", "[END]"
MOST_SPECIAL = 2 << 20  # a spec may ask for 1,048,576 ids of unknown words; a manifest may come from anywhere
MOST_BYTES = 512 << 20  # 512 MiB: 32 bytes a word
MOST_WORDS = 16 << 20  # 16,777,216: a gigabyte of memory


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
    data = read_inner(folder, file, MOST_BYTES)
    if (lines := data.count(b"\n")) > MOST_WORDS:
        raise DatasetError(f"{path} has {lines:,} lines, and a vocabulary at most {MOST_WORDS:,} words: {ADVICE}")
    try:
        text = data.decode("utf-8")
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
