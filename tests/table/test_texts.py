"""Texts of the table where a record is no row: packed rows hold each window once."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.table.case import ROWS, SPLITS, Windows, named
from tests.table.world import CASES, SPECS, Table

pytestmark = pytest.mark.slow
LISTS = ("", "token_types", "loss_mask")
"""The parts with a value for each id."""


@pytest.fixture(scope="module", params=["windows", "packs"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    cases = {name: case for name, case in CASES.items() if case.dataset == request.param}
    return Table(tmp_path_factory.mktemp("texts") / "table", cases, **SPECS[request.param])


def records(table: Table, parts: list[tuple[str, str]], split: str) -> list[tuple[tuple[int, ...], ...]]:
    """Returns lists of a split's records: a row's values at its only place, or in each of its windows."""
    found = []
    for row in range(len(ROWS))[SPLITS[split]]:
        whole = [case.in_records()[""][row] for case in table.cases.values()]
        stated = [table.cases[name].in_records()[part][row] for name, part in parts]
        for window in range(max(len(each) if isinstance(each, Windows) else 1 for each in whole)):
            found.append(tuple(tuple(each[window] if isinstance(each, Windows) else each) for each in stated))
    return found


def documents(batch: Any, names: list[str], padding: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Returns the documents of packed rows; checks numbers, positions and padding."""
    found = []
    for row in range(len(batch[names[0]])):
        numbers, positions = (batch[f"{names[0]}_{part}"][row] for part in ("segments", "positions"))
        for name, fill in zip(names, padding, strict=True):
            assert ({*batch[name][row][numbers == 0].tolist()} <= {fill}, batch[name].dtype) == (True, np.int64)
        assert not positions[numbers == 0].any()
        for number in range(1, numbers.max() + 1):
            assert positions[numbers == number].tolist() == [*range(np.count_nonzero(numbers == number))]
            found.append(tuple(tuple(batch[name][row][numbers == number].tolist()) for name in names))
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_packed_rows_hold_each_record_once(table: Table, split: str) -> None:
    for pack in table.spec().packs:
        length, cases = pack.length, {name: table.cases[name] for name in pack.features}
        parts = [(name, part) for name, case in cases.items() for part in case.in_records() if part in LISTS]
        padding = [0 if part else pack.padding.get(name, cases[name].padding[""]) for name, part in parts]
        pieces = [
            tuple(each[start : start + length] for each in record)
            for record in records(table, parts, split)
            for start in range(0, len(record[0]) if pack.split else min(1, len(record[0])), length)
        ]
        given = table.dataset.evaluation_input(
            split, batch_size=4, text="packed", text_length=length, label=None, features=[*cases]
        )
        names, batches = [named(*part) for part in parts], list(given.as_numpy())
        assert Counter(each for batch in batches for each in documents(batch, names, padding)) == Counter(pieces)
        assert {batch[name].shape[1] for batch in batches for name in names} == {length}
