"""Reads versions of the table by TensorFlow's own classes, and compares them with the cases."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from recordmill import Ragged
from tests.table.case import ROWS, Case, Windows, difference, named

Values = Mapping[str, Mapping[str, Any]]
"""Values by key and name; the key of a row's further window has its number, `row-0#1`."""
PROTO = {"bytes_list": object, "int64_list": np.int64, "float_list": np.float32}


def records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Returns a version's records by key, as TensorFlow's own classes read them: one flat array a name."""
    found = {}
    for file in sorted(Path(folder).glob("*.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            example = tf.train.Example.FromString(record).features.feature
            held = {name: _held(feature) for name, feature in example.items()}
            found[key_of(held, held.pop("key")[0])] = held
    return found


def key_of(held: Mapping[str, Any], key: bytes) -> str:
    """Returns the key of what a record or a batch's row holds."""
    windows = [int(np.ravel(value)[0]) for name, value in held.items() if name.endswith("_window")]
    return bytes(key).decode() + "".join(f"#{number}" for number in windows if number)


def stated(values: Sequence[Any], key: str) -> Any:
    """Returns the value of a row, or of one of its windows."""
    row, _, window = key.partition("#")
    value = values[ROWS.index(row)]
    return value[int(window or 0)] if isinstance(value, Windows) else value


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
        expected = set()
        for name, case in cases.items():
            for part, values in case.in_records().items():
                expected.add(named(name, part))
                if wrong := _wrong_record(stated(values, key), held.get(named(name, part)), case.within):
                    yield f"{name}: {part or 'value'} of {key} is stored as {wrong}"
        for more in sorted(held.keys() - expected):
            yield f"{more}: is stored, and no case says so"


def _wrong_record(expected: Any, found: Any, within: float) -> str | None:
    if found is None:
        return "nothing"
    flat = expected if not isinstance(expected, np.ndarray) else expected.reshape(-1)
    if not isinstance(flat, np.ndarray | list):
        found = found[0] if len(found) == 1 else found
    elif len(flat) == len(found) == 0:
        return None  # an empty list of a record has no type
    return difference(flat, found, within=within)


def wrong_values(cases: Mapping[str, Case], found: Values, *, padded: bool = False) -> Iterator[str]:
    """Yields what a model gets wrongly; `padded`: a row stands in a batch of others, and may be longer at its ends."""
    for key, given in found.items():
        for name, case in cases.items():
            for part, values in case.model_ready().items():
                if named(name, part) not in given:
                    yield f"{name}: {part or 'value'} of {key} is missing"
                    continue
                value = given[named(name, part)]
                fill = case.padding.get(part, 0 if np.asarray(value).dtype != object else b"") if padded else None
                if wrong := difference(stated(values, key), value, within=case.within, fill=fill):
                    yield f"{name}: {part or 'value'} of {key} is {wrong}"
        known = {named(name, part) for name, case in cases.items() for part in case.model_ready()}
        yield from (f"{more}: is read, and no case says so" for more in sorted(given.keys() - known - {"key"}))


def by_key(batches: Iterable[Any], label: str | None = None) -> dict[str, dict[str, Any]]:
    """Returns the rows of batches by key; `label` names the target."""
    found = {}
    for batch in batches:
        features = batch if label is None else {**batch[0], label: batch[1]}
        for place, key in enumerate(np.asarray(features["key"]).tolist()):
            row = {name: each.row(place) if isinstance(each, Ragged) else np.asarray(each)[place]
                   for name, each in features.items() if name != "key"}  # fmt: skip
            found[key_of(row, key)] = row
    return found
