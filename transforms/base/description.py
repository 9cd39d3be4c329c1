"""The contract of a kind of feature: what a build learns for it, and its description in the manifest.

A kind stores one or several parts: the part "" is the feature itself; any other part, such as `length`, is stored and
read as `<feature>_length`. `Description.parts_of` declares them once, for every reader and writer. A description is
the only source of facts about its kind for people and other tools: no other room has a table by kind.
"""

import functools
import keyword
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, read_as
from recordmill.pipeline.safe_text import cut

TFDS = "tensorflow_datasets.core.features"
DTYPES = ("bytes", "int64", "float32")
Json = Mapping[str, Any]
Value = TypeVar("Value")
UNKNOWN = "[UNK]"  # the name of an unknown word or class
OF_FORM = frozenset(
    """stored stored_as encoding dtype shape options length max_length texts_per_row max_texts packed
    window keep_length optional indicator impute train""".split()
)
"""Fields of descriptions that do not change what a read value means; a batch's structure may."""
OF_WORDS = frozenset(
    """vocabulary vocabulary_size shown unknown_id first_id begin_id end_id oov_buckets tokenizer model
    joins cross""".split()
)
"""Fields that say no more about ids than their words do."""


@dataclass(frozen=True)
class Stored:
    """The type of a part, `bytes`, `int64` or `float32`, and the shape of a row's values; None for a list."""

    dtype: str
    shape: tuple[int, ...] | None = ()
    held: "StoredAs | None" = None  # its place in adopted records; None: the part's own name
    of: "Description | None" = field(default=None, compare=False, repr=False)  # of adopted records

    def __post_init__(self) -> None:
        """Refuses an unknown type. Raises: DatasetError."""
        if self.dtype not in DTYPES:
            shown = cut(repr(self.dtype), 50)
            raise DatasetError(f"a feature is stored as {shown} in dataset.json: copy the version again")


def argument_name(feature: str) -> str:
    """Returns a feature's name as a serving input: `class_` for `class`; signatures take no Python keywords."""
    return f"{feature}_" if keyword.iskeyword(feature) else feature


def tfds_stored(stored: Stored) -> dict[str, Any]:
    """Describes a stored part: a scalar, a tensor, or a sequence of scalars."""
    dtype = "string" if stored.dtype == "bytes" else stored.dtype
    scalar = {"pythonClassName": f"{TFDS}.scalar.Scalar", "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"}}
    if stored.shape is None:
        return tfds_sequence(scalar)
    return tfds_tensor(dtype, stored.shape, "none") if stored.shape else scalar


def tfds_sequence(feature: dict[str, Any]) -> dict[str, Any]:
    """Describes any number of a feature."""
    return {"pythonClassName": f"{TFDS}.sequence_feature.Sequence", "sequence": {"feature": feature, "length": "-1"}}


def tfds_tensor(dtype: str, shape: Sequence[int], encoding: str) -> dict[str, Any]:
    """Describes a tensor; -1 is a varying side."""
    tensor = {"shape": tfds_shape(shape), "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": f"{TFDS}.tensor_feature.Tensor", "tensor": tensor}


def tfds_shape(shape: Sequence[int]) -> dict[str, list[str]]:
    """Describes a shape."""
    return {"dimensions": [str(side) for side in shape]}


@dataclass(frozen=True)
class SpecialIds:
    """The ids that are not tokens."""

    padding: int
    unknown: int | None  # the first of `oov_buckets` ids for unknown tokens; None if all tokens are known
    begin: int | None
    end: int | None
    first: int  # first token id

    @property
    def added(self) -> int:
        """The number of ids added around a text's tokens."""
        return (self.begin is not None) + (self.end is not None)

    def described(self) -> dict[str, int | None]:
        """Returns the fields of a description."""
        return {f"{name}_id": id_ for name, id_ in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The facts that a build learns or resolves for a feature, beside its options."""

    is_label: bool = False
    kept: tuple[str, ...] = ()  # names of the previous version by id; learned names keep these ids
    words: tuple[str, ...] | None = None  # the given vocabulary, once read
    model: bytes | None = None  # the tokenizer's model, once trained or read
    special: SpecialIds | None = None  # the model's
    separator_id: int | None = None  # ends the first text of a pair
    types: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1,), (1,))
    """The types of a pair's ids: before, of the first text, between, of the second text, after."""
    template: str | None = None  # a chat's, Jinja
    tokens: Mapping[str, str] = field(default_factory=dict)  # of the chat's config, such as `bos_token`

    @property
    def padding(self) -> str | None:
        """The token that pads, by the chat's config."""
        return self.tokens.get("pad_token")


NOTHING = Learned()


def left_out(default: Value) -> Value:
    """Declares a field that the manifest omits at its default."""
    return field(default=default, metadata={"left_out": True})


@dataclass(frozen=True)
class StoredAs:
    """A part's place in adopted records: the names and the type of their own features."""

    names: tuple[str, ...]
    """One; the four lists of boxes, in the order y_min, x_min, y_max, x_max; none for the constant 1."""
    dtype: str
    optional: bool = left_out(False)  # whether a record may lack it; then the part is `default`, or the kind's blank
    is_missing: bool = left_out(False)  # whether the part is 1 for a record that lacks the feature, else 0
    default: tuple[str | int | float, ...] = left_out(())  # bytes as text; empty: the kind's blank

    def __post_init__(self) -> None:
        """Refuses an unknown type or number of names. Raises: DatasetError."""
        if self.dtype not in DTYPES or len(self.names) not in (0, 1, 4):
            shown = f"{len(self.names)} features of type {cut(repr(self.dtype), 50)}"
            raise DatasetError(f"a feature is stored as {shown} in dataset.json: adopt its files again")


@dataclass(frozen=True, kw_only=True)
class Ids:
    """A feature's table of ids: special entries, then a word or a name for each id."""

    size: int
    are_classes: bool  # names for people; words of texts are values of rows, and not shown
    file: str | None = None  # path of the words in the version
    words: tuple[str, ...] | None = None  # in place of the file's, or without a file
    hashes: int | None = None  # the number of hash buckets, whose ids these are
    first: int = 0  # the first id with a word
    unknown: int | None = None  # the first id of unknown words
    unknown_ids: int = 1
    begin: int | None = None
    end: int | None = None
    padding: int | None = None
    ignored: int | None = None  # stored in place of an id

    @property
    def has_words(self) -> bool:
        """Whether ids stand for words."""
        return self.file is not None or self.words is not None


class Decoding(NamedTuple):
    """Inputs for decoding a feature's stored values."""

    vocabulary: Sequence[str] | None  # words by id; None without ids or for hashes
    statistics: Json
    image: Callable[..., Any]  # makes an image to show from stored bytes, description and orientation


@dataclass(frozen=True, kw_only=True)
class Description:
    """A feature as `dataset.json` describes it, complete for a reader."""

    kind: ClassVar[str]
    is_served: ClassVar[bool] = True  # whether the serving model takes and makes it: a model predicts others
    stored_as: Mapping[str, StoredAs] | None = left_out(None)
    """By part, how adopted records hold it; None: as Recordmill writes records."""

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Returns the stored parts of a description in JSON; the first is "", the feature itself."""
        return {"": Stored(description["stored"])}

    @classmethod
    def from_json(cls, description: Json) -> Self:
        """Reads a description, ignoring unknown keys. Raises: DatasetError: a missing key, or a wrong type."""
        try:
            return typing.cast(Self, read_as(description, cls, f"a feature of kind {cls.kind}"))
        except DatasetError as error:
            raise DatasetError(f"{error} in dataset.json: restore the manifest from a copy") from None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **_written(self)}

    @functools.cached_property
    def parts(self) -> dict[str, Stored]:
        """The stored parts."""
        parts = self.parts_of(self.to_json())
        if self.stored_as is None:
            return parts
        if lacking := parts.keys() - self.stored_as.keys():
            raise DatasetError(f"`stored_as` lacks {sorted(lacking)} in dataset.json: adopt the files again")
        return {part: replace(stored, held=self.stored_as[part], of=self) for part, stored in parts.items()}

    @property
    def padding(self) -> Any:
        """The value around a row's values in a batch; other parts than "" are padded with 0."""
        return getattr(self, "padding_id", 0)

    def meaning(self, statistics: Json, words: Sequence[str] | None) -> dict[str, Any]:
        """Returns what decides a read value's meaning: fields, except `OF_FORM` and `OF_WORDS`, figures and words."""
        left_out = OF_FORM if words is None else OF_FORM | OF_WORDS
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in left_out}
        found |= {name: statistics.get(name) for name in getattr(self, "scaled_by", ())} | {"words": words}
        return {name: value for name, value in found.items() if value not in (None, "none")}  # unchanged is as raw

    @property
    def is_list(self) -> bool:
        """Whether a row stores any number of values."""
        return self.parts[""].shape is None

    @property
    def ids(self) -> Ids | None:
        """The table of ids, if the values are ids."""
        return None

    @property
    def class_count(self) -> int | None:
        """The number of classes, if a row is of one."""
        return self.ids.size if self.ids and self.ids.are_classes and not self.is_list else None

    @property
    def is_image_file(self) -> bool:
        """Whether the stored bytes are image files, not pixels."""
        return False

    @property
    def as_image(self) -> Any:
        """Itself, a `Pixels`, if it stores images or masks; else None."""
        return None

    @property
    def as_text(self) -> Any:
        """Itself, a `TextDescription`, if it stores the ids of texts; else None."""
        return None

    @property
    def as_places(self) -> Any:
        """Itself, a `PlacesDescription`, if it stores places on an image, which move with it; else None."""
        return None

    @property
    def lies_on(self) -> str | None:
        """The feature with the image on which the values lie."""
        return getattr(self, "image", None)

    @property
    def decoded(self) -> tuple[str, int]:
        """The type of decoded values, a NumPy name, `bytes` or `string`, and how deep lists hold them."""
        stored = self.parts[""]
        type_ = "string" if self.ids and self.ids.has_words else stored.dtype
        return type_, 1 if stored.shape is None else len(stored.shape)

    @property
    def blank(self) -> Any:
        """The value that stands for a missing one, to the serving model and in adopted records."""
        return b""

    def fault(self, stored: Any) -> str | None:
        """Says why a stored value of the right type is invalid, or returns None."""
        return None

    def type_words(self) -> str:
        """Describes the type of a value."""
        raise NotImplementedError

    def words(self) -> str:
        """Describes a row's stored value: the type and, for a list, the number of values."""
        return self.type_words()

    def decode(self, stored: Any, decoding: Decoding) -> Any:
        """Decodes a stored value for people."""
        raise NotImplementedError

    def value(self, parts: Mapping[str, Any], decoding: Decoding) -> Any:
        """Decodes a row's parts for people; None if the row lacks the feature."""
        return None if parts.get("missing") else self.decode(parts[""], decoding)

    def tfds(self) -> dict[str, Any]:
        """Describes the feature as TensorFlow Datasets' `features.json` does; by default, by its stored type."""
        return tfds_stored(self.parts[""])


@dataclass(frozen=True, kw_only=True)
class ListDescription(Description):
    """A feature with several values a row."""

    stored: str
    length: Count | str  # number of values of every row, or `varying`
    max_length: Count | None

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        return {"": Stored(description["stored"], None)}

    def words(self) -> str:
        return counted_words(self.type_words(), self.length, self.max_length)

    def value(self, parts: Mapping[str, Any], decoding: Decoding) -> list[Any]:
        return [self.decode(each, decoding) for each in parts[""]]


def counted_words(words: str, length: int | str, most: int | None) -> str:
    """Appends the number of values of a row to words: `length`, or at most `most` if it varies."""
    if isinstance(length, int):
        return f"{words}, {length:,} each"
    return f"{words}, any number" if most is None else f"{words}, at most {most:,}"


def sides_words(shape: Sequence[int | None]) -> str:
    """Describes a shape: `2×3`."""
    return "×".join(map(str, shape))


def short(number: float) -> float:
    """Returns the shortest decimal with the same float32: 0.1 instead of 0.10000000149011612."""
    return float(str(np.float32(number)))


def _written(item: Any) -> Any:
    """Returns a value as in JSON, without fields left out at their default."""
    if is_dataclass(item):
        kept = [each for each in fields(item) if not each.metadata or getattr(item, each.name) != each.default]
        return {each.name: _written(getattr(item, each.name)) for each in kept}
    if isinstance(item, Mapping):
        return {name: _written(each) for name, each in item.items()}
    return [_written(each) for each in item] if isinstance(item, tuple) else item
