"""Features that a user states: in a spec's words, or as TensorFlow's parsing options; checked against all records."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recordmill.pipeline.adopt import describe
from recordmill.pipeline.adopt.describe import IMAGE, Held, Read
from recordmill.pipeline.adopt.facts import BYTES, FLOATS, INTS
from recordmill.pipeline.adopt.files import AdoptError, Said
from recordmill.pipeline.adopt.guess import STATED, Guessed, Guesser
from recordmill.pipeline.dataset.paths import check_name
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.array import DTYPES, ArrayLayout

OPTIONS: Mapping[str, Sequence[str]] = {
    "image": ("shape",),
    "image_sequence": (),
    "mask": ("image", "ignore"),
    "boxes": ("image", "order", "unit"),
    "category": ("classes", "classes_file"),
    "categories": ("classes", "classes_file"),
    "raw": ("type", "many", "length", "shape", "default"),
    "array": ("dtype", "shape"),
}
"""The kinds that adoption reads, with their options besides `kind`, `column`, `columns` and `optional`."""
FORMS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("column", "classes_file", "type", "dtype", "image"), (str,)),
    **dict.fromkeys(("columns", "classes", "shape"), (list, tuple)),
    **dict.fromkeys(("length", "ignore"), (int,)),
    "many": (bool,),
}
PARSED = ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature")
FIXED = {"order": "tensorflow", "unit": "relative"}  # options of boxes with the one value that records are read by


def read_features(path: str) -> dict[str, Any]:
    """Reads the `features` of a YAML file, as `recordmill adopt` prints them. Raises: AdoptError: it has none."""
    from recordmill.pipeline.yaml_document import load_yaml  # PyYAML, which a training machine lacks

    features = load_yaml(Path(path).read_text(encoding="utf-8"), path, "`features:`").value.get("features")
    if not isinstance(features, dict) or not features:
        raise AdoptError(f"{path} has no `features`: write them as `recordmill adopt` prints them")
    return {name: with_classes(given, Path(path).parent) for name, given in features.items()}


def with_classes(given: Any, folder: Path = Path()) -> Any:
    """Returns a feature's words with the names in its `classes_file`, relative to a folder. Raises: AdoptError."""
    if not isinstance(given, Mapping) or "classes_file" not in given or "classes" in given:
        return given
    try:
        names = (folder / str(given["classes_file"])).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise AdoptError(f"a `classes_file` cannot be read: {cut(str(error))}") from None
    return {option: value for option, value in given.items() if option != "classes_file"} | {"classes": names}


def read_as_stated(guesser: Guesser, features: Mapping[str, Any], label: str | None) -> Guessed:
    """Returns how records are read by stated features. Raises: AdoptError: one does not fit the records."""
    if not any(isinstance(given, Mapping) for given in features.values()):
        return _as_parsed(guesser, features, label)
    guesser.guessed.label = label
    for name, given in features.items():
        check_name("feature", name)
        kind = given.get("kind") if isinstance(given, Mapping) else given
        if not isinstance(given, Mapping) or not isinstance(kind, str) or kind not in OPTIONS:
            others = "a build with `source: {format: adopted}` makes the other kinds"
            raise AdoptError(f"'{name}' has the kind {cut(repr(kind))}: adoption reads {', '.join(OPTIONS)}; {others}")
        guesser.add(name, _Stated(guesser, name, given).read())
    return guesser.guessed


class _Stated:
    def __init__(self, guesser: Guesser, name: str, given: Mapping[str, Any]) -> None:
        self._guesser, self._name, self._given = guesser, name, given
        known = ("kind", "column", "columns", "optional", *OPTIONS[given["kind"]])
        for option in given.keys() - {*known}:
            knows = f"{did_you_mean(str(option), known)}; of {given['kind']} adoption knows {listed(known)}"
            raise self._error(f"has the unknown option '{cut(str(option))}'{knows}")
        for option, forms in FORMS.items():
            if given.get(option) is not None and not isinstance(given[option], forms):
                raise self._error(f"has `{option}: {cut(repr(given[option]))}`, wanted a {forms[0].__name__}")
        if not all(side is None or (isinstance(side, int) and side > 0) for side in given.get("shape") or ()):
            raise self._error(f"has `shape: {cut(repr(given['shape']))}`, wanted whole numbers from 1 on")

    def _error(self, what: str) -> AdoptError:
        return AdoptError(f"'{self._name}' {what}")

    def read(self) -> Read:
        """Returns how the feature is read. Raises: AdoptError: it does not fit the records."""
        kind, given = self._given["kind"], self._given
        if kind in ("boxes", "mask") and given.get("image") not in self._guesser.guessed.read:
            raise self._error(f"needs `image`, an image stated before it, got {cut(repr(given.get('image')))}")
        if kind == "boxes":
            return self._boxes()
        held = self._held(given.get("column", self._name))
        if kind == "raw":
            return self._raw(held)
        if kind in ("category", "categories"):
            return self._category(held, is_list=kind == "categories")
        if kind != "image_sequence" and held.facts.most > 1:
            raise self._error(f"states one value a record, the records hold {_counts(held)}: `kind: raw` reads them")
        if kind == "array":
            return self._array(held)
        if kind == "mask":
            if held.pixel is None:
                raise self._error("needs PNGs of one channel, all of 8 or all of 16 bits: a build reads others")
            return describe.image(held, of=given["image"], ignore=given.get("ignore"))
        return self._pixels(held) if given.get("shape") is not None else self._images(held)

    def _images(self, held: Held) -> Read:
        if held.kind != IMAGE:
            raise self._error(f"is stated as images, the records hold {held.kind}: give `shape` for bytes of pixels")
        is_list, sides = self._given["kind"] == "image_sequence", held.facts.sides
        if is_list and sides[::2] != sides[1::2]:
            have = "{} to {} x {} to {} pixels".format(*sides)
            raise self._error(f"needs images of one size, they have {have}: `kind: raw` with `many: true`")
        return describe.image(held, is_list=is_list)

    def _pixels(self, held: Held) -> Read:
        shape = self._given["shape"]
        if len(shape) != 3 or None in shape or shape[2] not in (1, 3):
            raise self._error(f"has `shape: {cut(repr(shape))}`, wanted height, width, and 1 or 3 channels")
        self._check_bytes(held, ArrayLayout("uint8", tuple(shape)))
        if held.lacking:
            raise self._error(f"has no pixels in {held.lacking:,} records: `kind: raw` reads them")
        return describe.pixels(held, tuple(shape))

    def _array(self, held: Held) -> Read:
        dtype, shape = self._given.get("dtype", FLOATS), self._given.get("shape") or ()
        if dtype not in DTYPES or not shape or None in shape[1:]:
            raise self._error(
                f"is an array of {cut(repr(dtype))}, {cut(repr(shape))}: name a `dtype` of {listed(DTYPES)}, and "
                "all sides of the `shape` but the first"
            )
        self._check_bytes(held, ArrayLayout(dtype, tuple(shape)))
        return describe.array(held, dtype, tuple(shape))

    def _check_bytes(self, held: Held, layout: ArrayLayout) -> None:
        ends = int(held.facts.low or 0), int(held.facts.high or 0)
        if held.stored != BYTES or any(map(layout.fault, ends)):
            found = f"{_range(held)} bytes" if held.stored == BYTES else held.stored
            raise self._error(f"states {layout}, {layout.unit} bytes, the records hold {found}: `kind: raw` reads any")

    def _held(self, column: str) -> Held:
        held = self._guesser.held.get(column)
        if held is None:
            known = self._guesser.held
            near = did_you_mean(column, known)
            raise self._error(f"reads '{cut(column)}', which no record holds{near}; they hold: {listed(known)}")
        if self._name == self._guesser.guessed.label or self._given.get("default") is not None:
            return self._guesser.present(column, self._given.get("default"))
        return held

    def _raw(self, held: Held) -> Read:
        given = self._given
        wanted, many, length, shape, _ = (given.get(option) for option in OPTIONS["raw"])
        if wanted not in (None, held.stored):
            raise self._error(f"is stated as {cut(str(wanted))}, the records hold {held.stored}")
        size = math.prod(shape) if shape is not None else length
        if size is not None and held.length != size:
            raise self._error(f"states {size} values a record, they hold {_counts(held)}: `many: true` takes any")
        if shape is not None:
            return describe.tensor(held, tuple(shape))
        if not many and held.facts.most > 1:
            raise self._error(f"states one value a record, the records hold {_counts(held)}: add `many: true`")
        return describe.raw(held, many=bool(many), length=length)

    def _category(self, held: Held, *, is_list: bool) -> Read:
        given, facts = self._given, held.facts
        words = given.get("classes")
        if held.kind != INTS or (held.facts.most > 1 and not is_list) or (held.lacking and not is_list):
            what = f"{held.kind}, {_counts(held)} a record, {held.lacking:,} records without"
            raise self._error(f"is stated as one class a record, they hold {what}: take `kind: raw` or `categories`")
        if not isinstance(words, list) or not words or not 0 <= (facts.low or 0) <= (facts.high or 0) < len(words):
            names = len(words) if isinstance(words, list) else 0
            raise self._error(f"has {names} `classes`, the records hold the ids {_range(held)}: name all, from id 0 on")
        if twice := [word for word, times in Counter(map(str, words)).items() if times > 1]:
            raise self._error(f"has the class {cut(repr(twice[0]))} twice: give each id a name of its own")
        return describe.category(held, self._name, list(map(str, words)), is_list=is_list)

    def _boxes(self) -> Read:
        given = self._given
        for option, only in FIXED.items():
            if given.get(option, only) != only:
                stated = f"`{option}: {cut(str(given[option]))}`"
                raise self._error(f"has {stated}, here it is `{option}: {only}`: a build reads others")
        columns = given.get("columns", [given.get("column", self._name)])
        held = [self._held(column) for column in columns]
        are_floats, lengths = all(each.kind == FLOATS for each in held), {each.facts.lengths for each in held}
        if len(held) not in (1, 4) or not are_floats or len(lengths) > 1:
            four = "four float32 lists of one length: y_min, x_min, y_max, x_max"
            raise self._error(f"needs one list of four numbers a box, or {four}")
        return describe.boxes(columns, given["image"])


def _as_parsed(guesser: Guesser, features: Mapping[str, Any], label: str | None) -> Guessed:
    """Reads features of `tf.io` by the records' names: `FixedLenFeature`, `VarLenFeature`, `RaggedFeature`."""
    for name, given in features.items():
        form, column = type(given).__name__, getattr(given, "value_key", None) or name
        held = guesser.held.get(column)
        if held is None or form not in PARSED or getattr(given, "partitions", None):
            what = f"as {cut(form)}: of tf.io adoption reads {listed(PARSED)}" if held else "which no record holds"
            raise AdoptError(f"'{cut(name)}' reads '{cut(column)}', {what}; the records hold: {listed(guesser.held)}")
        dtype = {"string": BYTES}.get(given.dtype.name, given.dtype.name)
        if dtype != held.stored:
            raise AdoptError(f"'{cut(name)}' is stated as {dtype}, the records hold {held.stored}")
        outer = () if form == "FixedLenFeature" else (None,)
        shape: tuple[int | None, ...] = (*outer, *(given.shape if hasattr(given, "shape") else ()))
        if form == "FixedLenFeature":
            _check_fixed(name, held, math.prod(given.shape), has_default=given.default_value is not None)
            if given.default_value or held.kind != IMAGE:  # an image is blank
                guesser.present(column, given.default_value)
        elif getattr(given, "default_value", None):
            raise AdoptError(f"'{cut(name)}' has a `default_value`, and lists are padded with 0: leave it out")
        guesser.said[column] = Said(STATED, shape, "", "none")
    guesser.keep({getattr(given, "value_key", None) or name for name, given in features.items()})
    return guesser.guess(label)


def _check_fixed(name: str, held: Held, size: int, *, has_default: bool) -> None:
    if held.lacking and not has_default:
        raise AdoptError(f"'{cut(name)}' has no `default_value`, and {held.lacking:,} records lack it: give one")
    if (held.facts.fewest, held.facts.most) != (size, size):
        states = f"'{cut(name)}' states {size} values a record"
        raise AdoptError(f"{states}, the records hold {_counts(held)}: take a VarLenFeature")


def _counts(held: Held) -> str:
    fewest = 0 if held.lacking else held.facts.fewest
    return f"{held.facts.most} values" if fewest == held.facts.most else f"{fewest} to {held.facts.most} values"


def _range(held: Held) -> str:
    low, high = held.facts.low, held.facts.high
    return "none" if low is None or high is None else f"{low:g} to {high:g}"
