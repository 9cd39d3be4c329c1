"""Ways of ids: joined to packed rows, and made by a client."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from recordmill.transforms.texts.text_stored import LIBRARY_TOKENIZERS
from tests.table.case import ROWS, SPLITS, Case, Windows, named
from tests.table.texts import NAMES, spoken
from tests.table.ways import Found, World, judged, way
from tests.table.ways_of_reading import NO_IDS
from tests.table.world import Table

LISTS = ("", "token_types", "loss_mask")
"""The parts with a value for each id."""
NO_LIST = {**NO_IDS, "texts": "has several lists of ids"}
del NO_LIST["raw"]
Lists = tuple[tuple[int, ...], ...]


@way("joined to packed rows (`pack`)", absent=NO_LIST)
def packed(world: World) -> Found:
    """Packed rows hold each record's lists once, cut as the pack says, with numbers, positions and padding."""
    found: dict[str, str] = {}
    for table in world.tables:
        packs = table.spec().packs
        names = {name for pack in packs for name in pack.features}
        found |= judged(names, (line for pack in packs for line in _wrong_rows(table, pack)))
    return found


def _wrong_rows(table: Table, pack: Any) -> Iterator[str]:
    cases = {name: table.cases[name] for name in pack.features}
    parts = [(name, part) for name, case in cases.items() for part in case.in_records() if part in LISTS]
    fills = {
        named(name, part): 0 if part else pack.padding.get(name, cases[name].padding.get("", 0)) for name, part in parts
    }
    for split in SPLITS:
        options = {"features": [*cases], "text": "packed", "text_length": pack.length, "label": None}
        given = list(table.dataset.evaluation_input(split, batch_size=4, **options).as_numpy())
        pieces = [
            tuple(each[start : start + pack.length] for each in record)
            for record in _records(table, parts, split)
            for start in range(0, len(record[0]) if pack.split else min(1, len(record[0])), pack.length)
        ]
        found, padding = _documents(given, [*fills])
        if Counter(found) != Counter(pieces):
            yield f"{pack.features[0]}: rows of {pack.length} hold {found}, not {pieces}"
        for name, values in padding.items():
            if values - {fills[name]}:
                yield f"{name.removesuffix('_token_types')}: rows of {pack.length} are padded by {values}"


def _records(table: Table, parts: list[tuple[str, str]], split: str) -> Iterator[Lists]:
    """Yields the lists of a split's records: a row's values at its only place, or in each of its windows."""
    for row in range(len(ROWS))[SPLITS[split]]:
        whole = [case.in_records()[""][row] for case in table.cases.values()]
        stated = [table.cases[name].in_records()[part][row] for name, part in parts]
        for window in range(max(len(each) if isinstance(each, Windows) else 1 for each in whole)):
            yield tuple(tuple(each[window] if isinstance(each, Windows) else each) for each in stated)


def _documents(batches: list[Any], names: list[str]) -> tuple[list[Lists], dict[str, set[int]]]:
    """Returns the documents of packed rows, and what stands behind them by name."""
    found, padding = list[Lists](), {name: set[int]() for name in names}
    for batch in batches:
        numbers, positions = (batch[f"{names[0]}_{part}"] for part in ("segments", "positions"))
        for row, number in ((place, each) for place in range(len(numbers)) for each in range(numbers[place].max() + 1)):
            at = numbers[row] == number
            if number and positions[row][at].tolist() == [*range(np.count_nonzero(at))]:
                found.append(tuple(tuple(batch[name][row][at].tolist()) for name in names))
            for name in () if number else names:
                padding[name] |= {*batch[name][row][at].tolist()}
    return found, padding


@way(
    "made by a client (`Dataset.tokenizer`)",
    absent={
        **dict.fromkeys([*NO_IDS], "the serving model takes its raw values"),
        "token_labels": "is no input of a model",
    },
)
def client(world: World) -> Found:
    """The tokenizer of a version makes the ids that it stores; of a chat from its rendered text."""
    table, lines = world.table(), []
    cases = {name: case for name, case in table.cases.items() if case.feature.get("tokenizer") in LIBRARY_TOKENIZERS}
    cases |= {name: case for name, case in table.cases.items() if case.kind in ("chat", "pair")}
    for name, case in cases.items():
        tokenizer = table.dataset.tokenizer(name)
        for key, wanted, texts in zip(ROWS, case.in_records()[""], _raw(case), strict=True):
            ids = [id_ for text in texts for id_ in tokenizer.encode(text).tolist()]
            if ids != wanted.tolist():
                lines.append(f"{name}: {key} gets {ids}, not {wanted.tolist()}")
    return judged(cases, lines)


def _raw(case: Case) -> list[Any]:
    """Returns the texts of each row as a client has them."""
    if case.kind == "chat":
        return [[text.replace(" ##", "")] for text in spoken(case.in_records()[""], NAMES, "")]
    if case.kind == "pair":
        columns = (case.columns[case.feature[field]] for field in ("first", "second"))
        return [[pair] for pair in zip(*columns, strict=True)]
    if case.kind == "texts":
        rows = [row.split("\n") if isinstance(row, str) else row for row in case.raw]
        return [row[: case.feature.get("max_texts")] for row in rows]
    return [[row.split(" ") if isinstance(row, str) and case.feature.get("pretokenized") else row] for row in case.raw]
