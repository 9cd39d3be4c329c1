"""A build with more rejects than the spec allows publishes nothing, and says why."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.results import TooManyRejectsError, _check_rejects

FIRST = {"file": "rows.jsonl", "line": 4, "column": "price", "message": "wanted a number, found a string"}


def results(limit: float | None, rejected: int) -> Any:
    """A finished job of 200 rows."""
    return SimpleNamespace(
        plan=SimpleNamespace(spec=SimpleNamespace(rejects=SimpleNamespace(max_share=limit))),
        chunks=[{"read": 150}, {"read": 50}],
        rejects=[None] * rejected,
        reasons={"wrong_type": rejected},
        published_rejects=lambda: iter([FIRST]),
    )


@pytest.mark.parametrize(("limit", "rejected"), [(None, 200), (0.01, 2), (0, 0), (1, 200)])
def test_as_many_as_are_allowed_are_taken(limit: float | None, rejected: int) -> None:
    _check_rejects(results(limit, rejected))


@pytest.mark.parametrize(("limit", "rejected"), [(0.01, 3), (0, 1)])
def test_more_are_not(limit: float, rejected: int) -> None:
    message = (
        rf"of 200 rows {rejected} were rejected, .*allows {limit:.1%} \(wrong_type: {rejected}\).*rows.jsonl, line 4"
    )
    with pytest.raises(TooManyRejectsError, match=message):
        _check_rejects(results(limit, rejected))
