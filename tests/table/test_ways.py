"""Each way of the table gives each kind's values, or says in a line why not; `docs/kinds.md` is made from it."""

import pytest

from tests.table import ways_of_building, ways_of_reading, ways_of_texts, ways_of_using  # noqa: F401 - they add their ways
from tests.table.test_table import KINDS
from tests.table.ways import REFUSED, WAYS, World
from tests.table.world import CASES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("table"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=getattr(pytest.mark, way.mark)) if way.mark else name for name, way in WAYS.items()],
)
def test_a_way_gives_what_the_cases_say(name: str, world: World) -> None:
    way = WAYS[name]
    found = way.run(world)
    wrong = []
    for case, outcome in found.items():
        wanted = way.refused.get(CASES[case].kind)
        if wanted is None and outcome:
            wrong.append(outcome)
        if wanted is not None and not (outcome.startswith(REFUSED) and wanted in outcome):
            wrong.append(f"{case}: should be refused, with '{wanted}': {outcome or 'went through'}")
    assert not wrong, "\n".join(wrong)
    assert {CASES[case].kind for case in found} | way.absent.keys() == KINDS.keys(), "cells of kinds are empty"
