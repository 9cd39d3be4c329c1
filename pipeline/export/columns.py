"""The columns of an export, kind by kind: their values, and the features of the spec that store them again.

A value that cannot be undone, such as a hashed name, is exported as it is stored, and goes back as a feature of kind
raw: the rows' stored values are equal, their meaning is what it was. A note says so.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.build.frozen import ANALYSIS
from recordmill.pipeline.dataset.paths import safe_name
from recordmill.pipeline.dataset.vocabulary import UNKNOWN
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.export.image_files import image_file
from recordmill.pipeline.inspection.values import Value
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.pipeline.spec.features.base import Feature
from recordmill.pipeline.spec.features.registry import AnyFeature
from recordmill.pipeline.versions.forgotten import ENTRY, LEARNED_OF
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Description, Json
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription
from recordmill.transforms.contract.stored import KEY, part_name

SHORT = 40
"""Classes that stand in the spec itself; more are a file."""
EXACT_TOKENIZERS = ("words", "whitespace")
"""The tokenizers whose words a cut at white space gives again."""

Options = dict[str, Any]
"""A feature of the spec that reads the export."""


class ExportError(UserError):
    """A version cannot be exported so; the message says which of its features, and what can be done."""


@dataclass(frozen=True)
class Column:
    """A column of the export."""

    name: str
    type: Literal["image", "images", "string", "strings", "int64", "int64s", "float32", "float32s", "boxes"]
    cell: Callable[[Value], Any]
    """Makes the cell of a feature's decoded value; None where a row lacks it. An image is an `ImageFile`."""
    feature: str
    """The feature whose value it holds."""


@dataclass
class Columns:
    """The columns of a version, and the features that read them."""

    label: str | None = None
    is_by_span: bool = False
    """Whether a row's span is part of its key: two spans may hold one key."""
    columns: list[Column] = field(default_factory=list)
    features: dict[str, Options] = field(default_factory=dict)
    """The features of the spec that reads the export, by name."""
    files: dict[str, Sequence[str]] = field(default_factory=dict)
    """The lines of the files that the features name, by path."""
    notes: list[str] = field(default_factory=list)
    """Sentences on values that do not go back as they came."""
    as_stored: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Descriptions of kind raw, by which numbers are read as they are stored."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that are a row's key: `key`, after `span` where two spans may hold one key."""
        return (self._free("span"), KEY) if self.is_by_span else (KEY,)

    @property
    def split(self) -> str:
        """The column that holds a row's split."""
        return self._free("split")

    def _free(self, name: str) -> str:
        """Gives the name, with `_` after it while a feature's column has it."""
        taken = {column.name for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def add(self, name: str, options: Options, *columns: Column) -> None:
        """Adds a feature with its columns."""
        self.columns += columns
        self.features[name] = options

    def add_raw(self, name: str, column: Column) -> None:
        """Adds a feature of kind raw, which stores what its column holds."""
        many = {"many": True} if column.type.endswith("s") else {}
        stored = {"string": "bytes"}.get(column.type.removesuffix("s"), column.type.removesuffix("s"))
        other = {"column": column.name} if column.name != name else {}
        self.add(name, {"kind": "raw", "type": stored, **many, **other}, column)


def columns_of(dataset: Dataset) -> Columns:
    """Gives the columns of a version.

    Raises:
        ExportError: the records of packed texts hold several rows each; the version holds no spec; or two features
            would be columns of one name.
        DatasetError: a feature's kind is unknown, or a vocabulary is damaged.
    """
    manifest = dataset.manifest
    may_repeat = manifest.spec.get("key") is not None or manifest.spec.get("analysis") == "frozen"
    result = Columns(dataset.label, is_by_span=bool(manifest.spans) and may_repeat)
    for name, description in read_descriptions(dataset.features).items():
        options = _options(dataset, name, description)
        KINDS[type(description)](result, name, description, options, dataset)
        if options.get("normalize") == "dataset" and _is_learned_elsewhere(dataset):
            result.notes.append(f"{name}: {LEARNED_ELSEWHERE}, and are learned again")
    _check_names(result.columns)
    if result.is_by_span:
        result.notes.append(f"two spans may hold one key: a row's key is its {' and its '.join(result.key)}")
    return result


def _check_names(columns: Sequence[Column]) -> None:
    """Refuses two features' columns of one name."""
    owners: dict[str, str] = {}
    for column in columns:
        owner = owners.setdefault(column.name, column.feature)
        if owner != column.feature:
            raise ExportError(
                f"'{owner}' and '{column.feature}' would both be the column '{column.name}': build the dataset with "
                "another name for one of them"
            )


def _options(dataset: Dataset, name: str, description: Description) -> Options:
    """Gives the options of the spec that differ from their defaults, without those on the source's column."""
    if isinstance(description, OwnDescription):
        return {}
    given: Json = dataset.manifest.spec.get("features", {}).get(name, {})
    adapter: TypeAdapter[Feature] = TypeAdapter(AnyFeature)
    try:
        feature = adapter.validate_python(given)
    except ValidationError:
        raise ExportError(
            f"{dataset.version} does not hold the spec of '{name}', which an export needs: another Recordmill built it"
        ) from None
    options = feature.model_dump(mode="json", exclude_defaults=True)
    return {"kind": feature.kind} | {key: options[key] for key in options if key not in ("kind", "column", "separator")}


def _without(options: Options, *names: str) -> Options:
    return {name: value for name, value in options.items() if name not in names}


def _as_it_is(value: Value) -> Any:
    return value


def _image(result: Columns, name: str, description: ImageDescription, options: Options, dataset: Dataset) -> None:
    result.add(name, options, Column(name, "image", image_file, name))


def _images(
    result: Columns, name: str, description: ImageSequenceDescription, options: Options, dataset: Dataset
) -> None:
    result.add(name, options, Column(name, "images", lambda images: [image_file(image) for image in images], name))


def _boxes(result: Columns, name: str, description: BoxesDescription, options: Options, dataset: Dataset) -> None:
    options = {**_without(options, "oriented"), "order": "tensorflow", "unit": "relative"}
    result.add(name, options, Column(name, "boxes", lambda boxes: [list(box) for box in boxes], name))


def _text(result: Columns, name: str, description: TextDescription, options: Options, dataset: Dataset) -> None:
    if description.packed is not None:
        raise ExportError(
            f"'{name}' is packed: a record holds several rows, whose keys are not stored. Build it without `pack`"
        )
    many = isinstance(description, TextsDescription)
    texts: Callable[[Value], Any] = (lambda value: [text.text for text in value]) if many else (lambda text: text.text)
    if _goes_back(description, options):
        words = f"vocabularies/{safe_name(name)}.txt"
        result.files[words] = dataset.vocabulary(name)[description.first_id :]
        kept = {key: options[key] for key in KEPT_OF_TEXTS if key in options}
        again = {**kept, "tokenizer": "whitespace", "case": "keep", "vocabulary": words}
        result.add(name, again, Column(name, "strings" if many else "string", texts, name))
        return
    if description.hash_buckets is None:
        result.columns.append(Column(name, "strings" if many else "string", texts, name))
    if many:
        result.add_raw(name, Column(f"{name}_ids", "int64s", _all_ids, name))
        result.add_raw(f"{name}_lengths", Column(f"{name}_lengths", "int64s", _lengths, name))
    else:
        result.add_raw(name, Column(f"{name}_ids", "int64s", lambda text: list(text.ids), name))
    why = "its ids are hashes" if description.hash_buckets is not None else "its text does not give the same ids"
    lost = "; the number of its tokens before the cut is not exported" if description.keep_length else ""
    result.notes.append(f"{name}: {why}, which are the column {name}_ids and go back as kind raw{lost}")


KEPT_OF_TEXTS = ("kind", "begin", "end", "max_length", "max_texts", "texts_per_row", "optional")


def _goes_back(description: TextDescription, options: Options) -> bool:
    """Whether the words of a text, with spaces between, give its ids again."""
    return (
        description.tokenizer in EXACT_TOKENIZERS
        and description.hash_buckets is None
        and description.oov_buckets == 1
        and not description.keep_length
        and "ngrams" not in options
    )


def _all_ids(texts: Value) -> list[int]:
    return [id_ for text in texts for id_ in text.ids]


def _lengths(texts: Value) -> list[int]:
    return [len(text.ids) for text in texts]


def _category(result: Columns, name: str, description: CategoryDescription, options: Options, dataset: Dataset) -> None:
    if description.hash_buckets is not None:
        _hashed(result, name, Column(name, "int64", lambda id_: id_ or 0, name))
        return
    buckets = description.oov_buckets or 0
    is_open = name != dataset.label and not buckets
    again = _with_classes(result, name, description, options, dataset)
    again |= {"optional": True} if is_open else {}
    result.add(name, again, Column(name, "string", _known if is_open else _as_it_is, name))


def _known(name: Value) -> Value:
    """Gives None for an unknown name: unknown and missing ones have one id."""
    return None if name == UNKNOWN else name


def _categories(
    result: Columns, name: str, description: CategoriesDescription, options: Options, dataset: Dataset
) -> None:
    if description.hash_buckets is not None:
        _hashed(result, name, Column(name, "int64s", lambda ids: [id_ or 0 for id_ in ids], name))
        return
    again = _with_classes(result, name, description, options, dataset)
    result.add(name, again, Column(name, "strings", _as_it_is, name))


def _hashed(result: Columns, name: str, column: Column) -> None:
    result.add_raw(name, column)
    result.notes.append(f"{name}: its ids are hashes, whose names are not stored; they go back as kind raw")


def _with_classes(
    result: Columns,
    name: str,
    description: CategoryDescription | CategoriesDescription,
    options: Options,
    dataset: Dataset,
) -> Options:
    """Gives the options with the names in the order of their ids."""
    if (description.oov_buckets or 0) > 1:
        result.notes.append(f"{name}: an unknown name goes back as {UNKNOWN}, with one of its unknown ids")
    names = dataset.vocabulary(name)[description.first_id or 0 :]
    given: Options = {"classes": names}
    if len(names) > SHORT:
        path = f"vocabularies/{safe_name(name)}.txt"
        result.files[path], given = names, {"classes_file": path}
    return {**_without(options, "classes", "classes_file", "order", "max_classes", "minimum_count"), **given}


def _number(result: Columns, name: str, description: NumberDescription, options: Options, dataset: Dataset) -> None:
    if description.buckets is not None:
        _bucketed(result, name, Column(name, "int64", _bucket_id, name))
        if description.indicator:
            result.notes.append(f"{name}: which rows lacked the number is not exported")
        return
    is_hidden = description.impute is not None and not description.indicator
    is_scaled = description.normalize != "none"
    is_learned = is_scaled or (description.impute in ("mean", "median") and not is_hidden)
    if is_learned and _is_learned_elsewhere(dataset):
        _as_stored(result, name, description, LEARNED_ELSEWHERE)
    elif is_scaled and is_hidden:
        _as_stored(result, name, description, "a record does not say that its number was missing")
    else:
        _note_rounding(result, name, description)
        result.add(name, options, Column(name, "float32", _as_it_is, name))


def _numbers(result: Columns, name: str, description: NumbersDescription, options: Options, dataset: Dataset) -> None:
    if description.buckets is not None:
        _bucketed(result, name, Column(name, "int64s", lambda numbers: [_bucket_id(each) for each in numbers], name))
        return
    if description.normalize != "none" and _is_learned_elsewhere(dataset):
        _as_stored(result, name, description, LEARNED_ELSEWHERE)
        return
    _note_rounding(result, name, description)
    result.add(name, options, Column(name, "float32s", _as_it_is, name))


LEARNED_ELSEWHERE = "its statistics are those of other rows than the version's"


def _is_learned_elsewhere(dataset: Dataset) -> bool:
    """Whether the statistics are not of the version's own rows, so that a build of these would learn others."""
    provenance = dataset.manifest.provenance
    return ANALYSIS in provenance or LEARNED_OF in provenance.get(ENTRY, {})


def _as_stored(result: Columns, name: str, description: NumberDescription | NumbersDescription, why: str) -> None:
    """Adds what the records hold of a number or a list of them: each part as a feature of kind raw."""
    many = isinstance(description, NumbersDescription)
    for part, stored in description.parts().items():
        own = part_name(name, part)
        raw = RawDescription(stored=stored.dtype, length="varying" if many else None)
        result.as_stored[own] = raw.to_json()
        result.add_raw(own, _plain(own, stored.dtype, many=many))
    result.notes.append(f"{name}: {why}, so it is exported as it is stored, and goes back as kind raw")


def _bucket_id(bucket: Value) -> int:
    return 0 if bucket is None else bucket.id


def _bucketed(result: Columns, name: str, column: Column) -> None:
    result.add_raw(name, column)
    result.notes.append(f"{name}: the number of its bucket is stored, not its own; it goes back as kind raw")


def _note_rounding(result: Columns, name: str, description: NumberDescription | NumbersDescription) -> None:
    steps = [step for step in (description.transform, description.normalize) if step != "none"]
    if steps:
        result.notes.append(f"{name}: {' and '.join(steps)} undone, to the last digits of a float32")


def _raw(result: Columns, name: str, description: RawDescription, options: Options, dataset: Dataset) -> None:
    many = description.length is not None
    column = _plain(name, description.stored, many=many)
    is_float = description.stored == "float32" and not many
    again = options | ({"optional": True} if is_float else {})  # NaN stands for a missing one
    result.add(name, again, column)


def _own(result: Columns, name: str, description: OwnDescription, options: Options, dataset: Dataset) -> None:
    if description.shape is not None and len(description.shape) > 1:
        result.notes.append(f"{name}: a tensor of shape {list(description.shape)} is exported as one list")
    result.add_raw(name, _plain(name, description.stored, many=description.shape != ()))
    result.notes.append(f"{name}: your own function made it; it goes back as kind raw")


def _plain(name: str, stored: str, *, many: bool) -> Column:
    makes: Mapping[str, Callable[[Any], Any]] = {"bytes": _utf8, "float32": _or_missing, "int64": _as_it_is}
    kind: Any = {"bytes": "string"}.get(stored, stored)
    if not many:
        return Column(name, kind, makes[stored], name)
    each: Callable[[Any], Any] = _utf8 if stored == "bytes" else _as_it_is
    kinds: Any = f"{kind}s"
    return Column(name, kinds, lambda values: [each(value) for value in _flat(values)], name)


def _flat(values: Any) -> Iterator[Any]:
    """Flattens lists in lists."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _or_missing(number: float) -> float | None:
    return None if math.isnan(number) else number


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ExportError(f"it holds bytes that are no UTF-8 ({value[:16]!r}), which no source reads back") from None


KINDS: Mapping[type[Description], Callable[[Columns, str, Any, Options, Dataset], None]] = {
    ImageDescription: _image,
    ImageSequenceDescription: _images,
    BoxesDescription: _boxes,
    TextDescription: _text,
    TextsDescription: _text,
    CategoryDescription: _category,
    CategoriesDescription: _categories,
    NumberDescription: _number,
    NumbersDescription: _numbers,
    RawDescription: _raw,
    OwnDescription: _own,
}
"""The functions that add a feature of each kind; they take its name, its description, its options and the version."""
