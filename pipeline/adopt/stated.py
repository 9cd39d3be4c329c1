"""Features that a user states: in a spec's words, or as TensorFlow's parsing options; checked against all records."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recordmill.pipeline.adopt import describe
from recordmill.pipeline.adopt.beside import Said
from recordmill.pipeline.adopt.describe import IMAGE, Held, Read
from recordmill.pipeline.adopt.facts import BYTES, FLOATS, INTS
from recordmill.pipeline.adopt.files import AdoptError
from recordmill.pipeline.adopt.guess import STATED, Guessed, Guesser
from recordmill.pipeline.dataset.paths import check_name
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.safe_text import cut

OPTIONS: Mapping[str, Sequence[str]] = {
    "image": ("shape",),
    "image_sequence": (),
    "boxes": ("image", "order", "unit"),
    "category": ("classes", "classes_file"),
    "categories": ("classes", "classes_file"),
    "raw": ("type", "many", "length", "shape"),
    "array": ("dtype", "shape"),
}
"""The kinds that adoption reads, with their options besides `kind`, `column`, `columns` and `optional`."""
FIXED = {"order": "tensorflow", "unit": "relative"}
"""Options of boxes with the one value that records are read by."""


def read_features(path: str) -> dict[str, Any]:
    """Reads the `features` of a YAML file, as `recordmill adopt` prints them. Raises: AdoptError: it has none."""
    from recordmill.pipeline.yaml_document import load_yaml  # PyYAML, which a training machine lacks

    features = load_yaml(Path(path).read_text(encoding="utf-8"), path, "`features:`").value.get("features")
    if not isinstance(features, dict) or not features:
        raise AdoptError(f"{path} has no `features`: write them as `recordmill adopt` prints them")
    return {name: with_classes(given, Path(path).parent) for name, given in features.items()}


def with_classes(given: Any, folder: Path = Path()) -> Any:
    """Returns a feature's words with the names in its `classes_file`, relative to a folder."""
    if not isinstance(given, Mapping) or "classes_file" not in given or "classes" in given:
        return given
    names = (folder / str(given["classes_file"])).read_text(encoding="utf-8").splitlines()
    return {option: value for option, value in given.items() if option != "classes_file"} | {"classes": names}


def read_as_stated(guesser: Guesser, features: Mapping[str, Any], label: str | None) -> Guessed:
    """Returns how records are read by stated features. Raises: AdoptError: one does not fit the records."""
    if not any(isinstance(given, Mapping) for given in features.values()):
        return _as_parsed(guesser, features, label)
    for name, given in features.items():
        check_name("feature", name)
        if not isinstance(given, Mapping) or given.get("kind") not in OPTIONS:
            kind = given.get("kind") if isinstance(given, Mapping) else given
            raise AdoptError(
                f"'{name}' has the kind {cut(repr(kind))}: adoption reads {', '.join(OPTIONS)}; a build with "
                "`source: {format: adopted}` makes the other kinds"
            )
        guesser.add(name, _Stated(guesser, name, given).read())
    guesser.guessed.label = label
    return guesser.guessed


class _Stated:
    """One stated feature."""

    def __init__(self, guesser: Guesser, name: str, given: Mapping[str, Any]) -> None:
        self._guesser, self._name, self._given = guesser, name, given
        known = ("kind", "column", "columns", "optional", *OPTIONS[given["kind"]])
        for option in given.keys() - {*known}:
            near = did_you_mean(str(option), known)
            raise self._error(
                f"has the unknown option '{cut(str(option))}'{near}; of {given['kind']} adoption knows {listed(known)}"
            )

    def _error(self, what: str) -> AdoptError:
        return AdoptError(f"'{self._name}' {what}")

    def read(self) -> Read:
        """Returns how the feature is read. Raises: AdoptError: it does not fit the records."""
        kind, given = self._given["kind"], self._given
        if kind == "boxes":
            return self._boxes()
        held = self._held(given.get("column", self._name))
        if kind == "raw":
            return self._raw(held)
        if kind in ("category", "categories"):
            return self._category(held, is_list=kind == "categories")
        shape = given.get("shape")
        sides = [side for side in shape or () if side is not None]
        if (
            shape is not None
            and (held.facts.low != held.facts.high or held.facts.low != math.prod(sides))
            and kind == IMAGE
        ):
            raise self._error(f"states {math.prod(sides)} bytes of pixels, the records hold {_range(held)}")
        if kind == IMAGE and shape is not None:
            return describe.pixels(held, tuple(shape))
        if kind == "array":
            return describe.array(held, given.get("dtype", FLOATS), tuple(shape or ()))
        if held.kind != IMAGE:
            raise self._error(
                f"is stated as images, the records hold {held.kind}: give `shape` for the bytes of pixels"
            )
        return describe.image(held, is_list=kind == "image_sequence")

    def _held(self, column: str) -> Held:
        held = self._guesser.held.get(column)
        if held is None:
            known = self._guesser.held
            near = did_you_mean(column, known)
            raise self._error(f"reads '{cut(column)}', which no record holds{near}; they hold: {listed(known)}")
        return held

    def _raw(self, held: Held) -> Read:
        given = self._given
        wanted, many, length, shape = (given.get(option) for option in OPTIONS["raw"])
        if wanted not in (None, held.stored):
            raise self._error(f"is stated as {cut(str(wanted))}, the records hold {held.stored}")
        size = math.prod(shape) if shape is not None else length
        if size is not None and held.length != size:
            raise self._error(
                f"states {size} values a record, the records hold {_counts(held)}: `many: true` takes any"
            )
        if shape is not None:
            return describe.tensor(held, tuple(shape))
        if not many and held.facts.most > 1:
            raise self._error(f"states one value a record, the records hold {_counts(held)}: add `many: true`")
        return describe.raw(held, many=bool(many), length=length)

    def _category(self, held: Held, *, is_list: bool) -> Read:
        given, facts = self._given, held.facts
        words = given.get("classes")
        if held.kind != INTS or (held.facts.most > 1 and not is_list) or (held.lacking and not is_list):
            what = f"{held.kind}, {_counts(held)} a record, and {held.lacking:,} records without"
            raise self._error(
                f"is stated as one class a record, the records hold {what}: `kind: raw` or `categories` reads them"
            )
        if not isinstance(words, list) or not words or not 0 <= (facts.low or 0) <= (facts.high or 0) < len(words):
            names = len(words) if isinstance(words, list) else 0
            raise self._error(f"has {names} `classes`, the records hold the ids {_range(held)}: name all, from id 0 on")
        return describe.category(held, self._name, list(map(str, words)), is_list=is_list)

    def _boxes(self) -> Read:
        given = self._given
        for option, only in FIXED.items():
            if given.get(option, only) != only:
                raise self._error(
                    f"has `{option}: {cut(str(given[option]))}`, here it is `{option}: {only}`: a build reads others"
                )
        columns = given.get("columns", [given.get("column", self._name)])
        held = [self._held(column) for column in columns]
        if (
            len(held) not in (1, 4)
            or any(each.kind != FLOATS for each in held)
            or len({each.facts.lengths for each in held}) > 1
        ):
            raise self._error(
                "needs one list of four numbers a box, or four float32 lists of one length: y_min, x_min, y_max, x_max"
            )
        if given.get("image") not in self._guesser.guessed.read:
            raise self._error(f"needs `image`, an image stated before it, got {cut(repr(given.get('image')))}")
        return describe.boxes(columns, given["image"])


def _as_parsed(guesser: Guesser, features: Mapping[str, Any], label: str | None) -> Guessed:
    """Reads features of `tf.io` by the records' names: `FixedLenFeature`, `VarLenFeature`, `RaggedFeature`."""
    for name, given in features.items():
        form, column = type(given).__name__, getattr(given, "value_key", None) or name
        held = guesser.held.get(column)
        if held is None or not form.endswith("Feature"):
            what = "which no record holds" if held is None else f"which is {cut(form)}, no feature of tf.io"
            raise AdoptError(f"'{cut(name)}' reads '{cut(column)}', {what}; the records hold: {listed(guesser.held)}")
        dtype = {"string": BYTES}.get(given.dtype.name, given.dtype.name)
        if dtype != held.stored:
            raise AdoptError(f"'{cut(name)}' is stated as {dtype}, the records hold {held.stored}")
        shape = tuple(given.shape) if form == "FixedLenFeature" else (None,)
        if form == "FixedLenFeature":
            _check_fixed(name, held, math.prod(shape), has_default=given.default_value is not None)
        guesser.said[column] = Said(STATED, shape, dtype, "none")
    guesser.keep({getattr(given, "value_key", None) or name for name, given in features.items()})
    return guesser.guess(label)


def _check_fixed(name: str, held: Held, size: int, *, has_default: bool) -> None:
    if held.lacking and not has_default:
        raise AdoptError(f"'{cut(name)}' has no `default_value`, and {held.lacking:,} records lack it: give one")
    if (held.facts.fewest, held.facts.most) != (size, size):
        raise AdoptError(
            f"'{cut(name)}' states {size} values a record, the records hold {_counts(held)}: take a VarLenFeature"
        )


def _counts(held: Held) -> str:
    fewest = 0 if held.lacking else held.facts.fewest
    return f"{held.facts.most} values" if fewest == held.facts.most else f"{fewest} to {held.facts.most} values"


def _range(held: Held) -> str:
    return (
        f"{held.facts.low:g} to {held.facts.high:g}"
        if held.facts.low is not None and held.facts.high is not None
        else "none"
    )
