"""Features that a user states: in a spec's words, or as TensorFlow's parsing options; checked against all records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recordmill.pipeline.adopt.facts import BYTES
from recordmill.pipeline.adopt.features import IMAGE, KINDS
from recordmill.pipeline.adopt.files import AdoptError, Said
from recordmill.pipeline.adopt.guess import STATED, Guessed, Guesser
from recordmill.pipeline.dataset.paths import check_name
from recordmill.pipeline.errors import listed
from recordmill.pipeline.safe_text import cut

PARSED = ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature")


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
        if not isinstance(given, Mapping) or not isinstance(kind, str) or kind not in KINDS:
            others = "a build with `source: {format: adopted}` makes the other kinds"
            raise AdoptError(f"'{name}' has the kind {cut(repr(kind))}: adoption reads {', '.join(KINDS)}; {others}")
        guesser.add(name, given)
    return guesser.guessed


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
            if held.lacking and given.default_value is None:
                lacking = f"{held.lacking:,} records lack it"
                raise AdoptError(f"'{cut(name)}' has no `default_value`, and {lacking}: give one")
            if (held.facts.fewest, held.facts.most) != (size := math.prod(given.shape), size):
                states = f"'{cut(name)}' states {size} values a record"
                raise AdoptError(f"{states}, the records hold {held.counts}: take a VarLenFeature")
            if given.default_value or held.kind != IMAGE:  # an image is blank
                guesser.present(column, given.default_value)
        elif getattr(given, "default_value", None):
            raise AdoptError(f"'{cut(name)}' has a `default_value`, and lists are padded with 0: leave it out")
        guesser.said[column] = Said(STATED, shape, "", "none")
    guesser.keep({getattr(given, "value_key", None) or name for name, given in features.items()})
    return guesser.guess(label)
