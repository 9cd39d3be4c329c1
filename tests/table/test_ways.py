"""Each way of the table gives each kind's values, or says in a line why not; `docs/kinds.md` is made from it."""

import pytest

from tests.table import ways_of_building, ways_of_reading, ways_of_texts, ways_of_using  # noqa: F401 - they add their ways
from tests.table.test_table import KINDS
from tests.table.ways import REFUSED, WAYS, World
from tests.table.world import CASES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["of a day", pytest.param("whole", marks=pytest.mark.nightly)])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("table"), whole=request.param == "whole")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=getattr(pytest.mark, way.mark)) if way.mark else name for name, way in WAYS.items()],
)
def test_a_way_gives_what_the_cases_say(name: str, world: World) -> None:
    way = WAYS[name]
    found = way.run(world)
    refused = {case for case, outcome in found.items() if outcome.startswith(REFUSED) and case in outcome}
    wrong = [
        outcome
        for case, outcome in found.items()
        if outcome and (case not in refused or CASES[case].kind not in way.refused)
    ]
    assert not wrong, "\n".join(wrong)
    assert {CASES[case].kind for case in refused} == way.refused.keys(), "no case is refused any more"
    assert {CASES[case].kind for case in found} | way.absent.keys() == KINDS.keys(), "cells of kinds are empty"
