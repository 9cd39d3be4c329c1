"""One version of a dataset: its splits, features, classes and vocabularies, read from its folder alone.

Vocabularies include the special entries. The public class, `recordmill.Dataset`, adds training inputs, records and
pictures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Json, Manifest
from recordmill.pipeline.dataset.paths import ADVICE, Location, read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import read_as
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import UNKNOWN, Description, StoredAs
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import KEY, Ragged, Stored, stored_features

PADDING = ""
BEGIN, END = "[BEGIN]", "[END]"
MOST_SPECIAL = 2 << 20  # a spec may request 1,048,576 ids for unknown words; manifests are untrusted
MOST_BYTES = 512 << 20  # 512 MiB: 32 bytes a word
MOST_WORDS = 16 << 20  # 16,777,216: a gigabyte of memory


class DatasetVersion:
    """One version of a dataset.

    Attributes:
        folder: the version's folder: an absolute `Path`, or for a URL a `RemotePath` (`str` returns the URL).
        manifest: its `dataset.json`.
    """

    def __init__(self, folder: Location, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._vocabularies: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return repr(self.manifest).replace("Manifest", type(self).__name__, 1)

    @property
    def name(self) -> str:
        """The dataset's name, as in the spec."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The version's name."""
        return self.manifest.version

    @property
    def splits(self) -> dict[str, int]:
        """The number of records of each split."""
        return {name: split.records for name, split in self.manifest.splits.items()}

    @property
    def features(self) -> Mapping[str, Json]:
        """The features' descriptions in `dataset.json`, including the label, in the spec's order."""
        return self.manifest.features

    @property
    def label(self) -> str | None:
        """The feature to predict, if any."""
        return self.manifest.label

    @property
    def classes(self) -> list[str]:
        """The names of the label's classes by id. Raises: DatasetError: the label is missing or not a category."""
        if self.label is None:
            raise DatasetError(f"{self.name} has no label; `class_names(feature)` gives the names of any category")
        return self.class_names(self.label)

    @property
    def num_classes(self) -> int:
        """The number of the label's classes. Raises: DatasetError as `classes`."""
        return len(self.classes)

    def class_names(self, feature: str) -> list[str]:
        """Returns the names of a category, or of labels of tokens, by id; if id 0 is for unknown names, it is `[UNK]`.

        Raises: DatasetError: the feature is unknown or not a category.
        """
        description = self._description(feature)
        if description.ids is None or not description.ids.are_classes:
            raise DatasetError(f"'{feature}' has no classes: its kind is {description.kind}, not category")
        return self.vocabulary(feature)

    def vocabulary(self, feature: str) -> list[str]:
        """Returns a feature's words by id: for a text, 0 is the padding `''` and 1 is `[UNK]`.

        Raises: DatasetError: the feature is unknown or lacks a vocabulary, or its file is damaged.
        """
        description = self._description(feature)
        if feature not in self._vocabularies:
            self._vocabularies[feature] = read_vocabulary(self.folder, description, feature)
        return list(self._vocabularies[feature])

    def vocabulary_size(self, feature: str) -> int:
        """Returns the number of ids, including special ones: the size of an embedding.

        Raises: DatasetError: the feature is unknown or lacks ids.
        """
        description = self._description(feature)
        if description.ids is None:
            raise DatasetError(f"'{feature}' has no ids: its kind is {description.kind}")
        return description.ids.size

    def to_words(self, feature: str, ids: Any) -> list[Any]:
        """Returns the words of ids without padding: a list for a row, a list of lists for a batch.

        Args:
            feature: a feature with a vocabulary.
            ids: a list, an array or an eager tensor of whole numbers; an empty one gives `[]`.

        Raises:
            DatasetError: as `vocabulary`, or an id is out of range.
        """
        words, table = self.vocabulary(feature), self._description(feature).ids
        return to_words(words, ids, table.padding if table else None)

    def _description(self, feature: str) -> Description:
        """Reads one feature's description, so others may have unknown kinds."""
        return read_descriptions({feature: self.manifest.feature(feature)})[feature]

    def label_counts(self, split: str) -> dict[str, int]:
        """Returns the number of records of each class in a split, in the order of `classes`.

        Raises: DatasetError: the split is unknown, or the label is not a category.
        """
        classes, counts = self.classes, self.manifest.split(split).label_counts
        if counts is None or len(counts) != len(classes):
            raise DatasetError(f"{self.folder / MANIFEST_FILE} has no count for each class of '{split}': build again")
        return dict(zip(classes, counts, strict=True))


def read_vocabulary(folder: Location, description: Description, feature: str = "it") -> list[str]:
    """Returns a feature's words by id: first its special entries, then its file's lines; of bytes `<0x00>` to `<0xFF>`.

    Raises: DatasetError: the feature lacks a vocabulary, or its file is missing, not UTF-8, or has a wrong number of
    words.
    """
    ids = description.ids
    if ids is None or not ids.has_words:
        hashed = "its ids are hashes (hash_buckets)" if ids and ids.hashes is not None else None
        raise DatasetError(f"'{feature}' has no vocabulary: {hashed or 'its kind is ' + description.kind}")
    if (entries := max(ids.unknown_ids, ids.first)) > MOST_SPECIAL:
        raise DatasetError(f"{entries:,} special entries are too many for a vocabulary: {ADVICE}")
    special: dict[int | None, str] = {ids.begin: BEGIN, ids.end: END}
    if ids.unknown is not None:  # unknown words may have several ids
        special |= dict.fromkeys(range(ids.unknown, ids.unknown + ids.unknown_ids), UNKNOWN)
    words = [special.get(id_, PADDING) for id_ in range(ids.first)]
    words += ids.words or (read_words(folder, ids.file) if ids.file else ())
    if len(words) + 1 == ids.size and ids.padding == len(words):  # a given model without padding
        words.append(PADDING)
    if len(words) != ids.size:
        what = f"{folder / (ids.file or MANIFEST_FILE)} and its special ids are {len(words)} words"
        raise DatasetError(f"{what}, expected {ids.size}: {ADVICE}")
    return words


def read_words(folder: Location, file: str) -> list[str]:
    """Reads a vocabulary's file, a word a line. Raises: DatasetError: it is unreadable, or above the limits."""
    path = folder / file
    data = read_inner(folder, file, MOST_BYTES)
    if (lines := data.count(b"\n")) > MOST_WORDS:
        raise DatasetError(f"{path} has {lines:,} lines, more than a vocabulary's {MOST_WORDS:,} words: {ADVICE}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error}): {ADVICE}") from error
    # Only a newline ends a word: `splitlines` also cuts at characters such as U+0085, allowed in words.
    return text.removesuffix("\n").split("\n") if text else []


def without_blank(words: Iterable[str]) -> tuple[str, ...]:
    """Drops blank words: an empty vocabulary's file holds one."""
    return tuple(word for word in words if word.strip())


def to_words(vocabulary: Sequence[str], ids: Any, padding_id: int | None) -> list[Any]:
    """Replaces ids, of one or more dimensions, by words, and keeps the nesting of lists; drops padding.

    Raises: DatasetError: `ids` is a single number, or an id is out of range.
    """
    nested = _to_list(ids)
    if not isinstance(nested, list):
        raise DatasetError(f"expected a list or an array of ids, got {cut(repr(ids))}: use `vocabulary(feature)[id]`")
    words = list[Any]()
    for inner in nested:
        if isinstance(inner, list):
            words.append(to_words(vocabulary, inner, padding_id))
        elif inner == padding_id:
            continue
        elif isinstance(inner, int) and 0 <= inner < len(vocabulary):
            words.append(vocabulary[inner])
        else:
            raise DatasetError(f"the id {inner!r} is not in the vocabulary: its ids are 0 to {len(vocabulary) - 1}")
    return words


def _to_list(ids: Any) -> Any:
    """Converts NumPy arrays, eager and ragged tensors to plain lists without importing their libraries."""
    if isinstance(ids, Ragged):
        return [_to_list(ids.row(number)) for number in range(len(ids.splits) - 1)]
    for method in ("to_list", "tolist", "numpy"):  # PyTorch has `numpy` for the CPU alone
        if hasattr(ids, method):
            return _to_list(getattr(ids, method)())
    return [_to_list(inner) for inner in ids] if isinstance(ids, list | tuple) else ids


def parts_to_parse(
    manifest: Manifest, features: Mapping[str, Description], *, with_key: bool = True
) -> dict[str, Stored]:
    """Returns the parts of features in a record, with its key unless adopted records do not hold it."""
    if not manifest.adopted:
        return stored_features(features, with_key=with_key)
    parts, key = stored_features(features), manifest.adopted.get("key")
    return {**parts, KEY: Stored("bytes", (), read_as(key, StoredAs, "key"))} if key and with_key else parts
