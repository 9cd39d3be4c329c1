"""Texts of the table where a record is no row: packed rows hold each window once."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.table.case import SPLITS
from tests.table.world import CASES, SPECS, Table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["windows", "packs"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    cases = {name: case for name, case in CASES.items() if case.dataset == request.param}
    return Table(tmp_path_factory.mktemp("texts") / "table", cases, **SPECS[request.param])


def records(table: Table, names: list[str], split: str) -> list[tuple[Any, ...]]:
    """Returns the windows of a split's rows, of all features."""
    rows = [zip(*(table.cases[name].in_records()[""][row] for name in names), strict=True) for row in range(8)]
    return [tuple(map(tuple, window)) for row in rows[SPLITS[split]] for window in row]


def segments(batch: Any, names: list[str], padding: list[int]) -> list[tuple[Any, ...]]:
    """Returns the documents of packed rows; checks numbers, positions and padding."""
    found = []
    for row in range(len(batch[names[0]])):
        numbers, positions = (batch[f"{names[0]}_{part}"][row] for part in ("segments", "positions"))
        for name, fill in zip(names, padding, strict=True):
            assert (batch[name].dtype, {*batch[name][row][numbers == 0]} <= {fill}) == (np.int64, True)
        assert not positions[numbers == 0].any()
        for number in range(1, numbers.max() + 1):
            assert positions[numbers == number].tolist() == [*range(np.count_nonzero(numbers == number))]
            found.append(tuple(tuple(batch[name][row][numbers == number].tolist()) for name in names))
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_packed_rows_hold_each_record_once(table: Table, split: str) -> None:
    for pack in table.spec().packs:
        names, length = [*pack.features], pack.length
        padding = [pack.padding.get(name, table.cases[name].padding[""]) for name in names]
        whole = [record for record in records(table, names, split) if record[0]]
        pieces = [
            tuple(each[start : start + length] for each in record)
            for record in whole
            for start in range(0, len(record[0]) if pack.split else 1, length)
        ]
        given = table.dataset.evaluation_input(split, batch_size=4, text="packed", text_length=length, label=None)
        batches = list(given.as_numpy())
        assert Counter(each for batch in batches for each in segments(batch, names, padding)) == Counter(pieces)
        assert {batch[name].shape[1] for batch in batches for name in names} == {length}
