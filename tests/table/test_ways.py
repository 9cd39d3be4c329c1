"""Each way of the table gives each kind's values, or says in a line why not; `docs/kinds.md` is made from it."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.table import ways_of_building, ways_of_reading, ways_of_texts, ways_of_using  # noqa: F401 - they add their ways
from tests.table.test_table import KINDS
from tests.table.ways import REFUSED, WAYS, World
from tests.table.world import CASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def cells() -> Iterator[Any]:
    """Yields each way with the table of a day or with the whole one, which is for the night."""
    for name, way in WAYS.items():
        if way.mark != "nightly":
            yield pytest.param(name, False, id=name, marks=getattr(pytest.mark, way.mark) if way.mark else ())
        if way.mark != "frameworks":
            yield pytest.param(name, True, id=f"{name}-whole", marks=pytest.mark.nightly)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], World]:
    return cache(lambda whole: World(tmp_path_factory.mktemp("table"), whole=whole))


@pytest.mark.parametrize(("name", "whole"), cells())
def test_a_way_gives_what_the_cases_say(name: str, whole: bool, worlds: Callable[[bool], World]) -> None:
    way = WAYS[name]
    found = way.run(worlds(whole))
    refused = {case for case, outcome in found.items() if outcome.startswith(REFUSED) and case in outcome}
    wrong = [
        outcome
        for case, outcome in found.items()
        if outcome and (case not in refused or CASES[case].kind not in way.refused)
    ]
    assert not wrong, "\n".join(wrong)
    assert not whole or {CASES[case].kind for case in refused} == way.refused.keys(), "no case is refused any more"
    kinds = {CASES[case].kind for case in found} | way.absent.keys()
    assert kinds == KINDS.keys() or (not whole and kinds < KINDS.keys()), "cells of kinds are empty"
