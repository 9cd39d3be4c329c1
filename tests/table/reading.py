"""What a version of the table holds, read in the ways that the project does not decide, and compared with the cases."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.table.case import ROWS, Case, difference, named

Values = Mapping[str, Mapping[str, Any]]
"""Values by row and name."""
PROTO = {"bytes_list": object, "int64_list": np.int64, "float_list": np.float32}


def records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Returns a version's records by key, as TensorFlow's own classes read them: one flat array a name."""
    found = {}
    for file in sorted(Path(folder).glob("*.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            example = tf.train.Example.FromString(record).features.feature
            held = {name: _held(feature) for name, feature in example.items()}
            found[held.pop("key")[0].decode()] = held
    return found


def _held(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    return np.array(getattr(feature, kind).value, PROTO[kind]) if kind else np.array([])


def wrong_rejects(cases: Mapping[str, Case], folder: str | Path) -> Iterator[str]:
    """Yields rejects of a version that no case states, and those that are missing."""
    files = sorted(Path(folder).glob("rejects/rejected-*"))
    given = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    found = {(each["id"], each["code"]) for each in given}
    expected = {(key, code): name for name, case in cases.items() for key, code in case.rejects().items()}
    yield from (
        f"{name}: {key} is no reject as {code}" for (key, code), name in expected.items() if (key, code) not in found
    )
    yield from (
        f"{each['column']}: {each['id']} is a reject: {each['message']}"
        for each in given
        if (each["id"], each["code"]) not in expected
    )


def wrong_descriptions(cases: Mapping[str, Case], described: Mapping[str, Any]) -> Iterator[str]:
    """Yields fields of dataset.json's features that differ from the cases'."""
    for name, case in cases.items():
        for option, wanted in case.described.items():
            if (found := described[name].get(option)) != wanted:
                yield f"{name}: dataset.json says {option}: {found!r}, not {wanted!r}"


def wrong_records(cases: Mapping[str, Case], found: Values) -> Iterator[str]:
    """Yields what records hold wrongly; each line begins with the case."""
    for key, held in found.items():
        row, expected = ROWS.index(key), set()
        for name, case in cases.items():
            for part, values in case.in_records().items():
                expected.add(named(name, part))
                if wrong := _wrong_record(values[row], held.get(named(name, part)), case.within):
                    yield f"{name}: {part or 'value'} of {key} is stored as {wrong}"
        for more in sorted(held.keys() - expected):
            yield f"{more}: is stored, and no case says so"


def _wrong_record(expected: Any, found: Any, within: float) -> str | None:
    if found is None:
        return "nothing"
    flat = expected if not isinstance(expected, np.ndarray) else expected.reshape(-1)
    if not isinstance(flat, np.ndarray | list):
        flat, found = flat, found[0] if len(found) == 1 else found
    if len(found) == 0 and isinstance(flat, np.ndarray | list) and len(flat) == 0:
        return None  # an empty list of a record has no type
    return difference(flat, found, within=within)


def wrong_values(cases: Mapping[str, Case], found: Values, *, padded: bool = False) -> Iterator[str]:
    """Yields what a model gets wrongly; `padded`: a row stands in a batch of others, and may be longer at its ends."""
    for key, given in found.items():
        row = ROWS.index(key)
        for name, case in cases.items():
            for part, values in case.model_ready().items():
                if named(name, part) not in given:
                    yield f"{name}: {part or 'value'} of {key} is missing"
                    continue
                value = given[named(name, part)]
                fill = case.padding.get(part, 0 if np.asarray(value).dtype != object else b"") if padded else None
                if wrong := difference(values[row], value, within=case.within, fill=fill):
                    yield f"{name}: {part or 'value'} of {key} is {wrong}"


def by_key(batches: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Returns the rows of batches of features by key."""
    found = {}
    for batch in batches:
        keys = [bytes(key).decode() for key in np.asarray(batch["key"]).tolist()]
        for place, key in enumerate(keys):
            found[key] = {name: np.asarray(values)[place] for name, values in batch.items() if name != "key"}
    return found
