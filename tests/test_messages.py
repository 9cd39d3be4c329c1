"""Tests of messages hold facts: a value, a place, a remedy. A sentence may change without breaking any."""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
MOST_WORDS, MOST_WORDS_OF_A_FACT = 5, 8  # a fact may list values
MOST_PATTERNS = 40
"""Regular expressions that may remain in `pytest.raises(…, match=…)`."""
HELPERS = {"raises": 1, "assert_names": 1}
"""Functions of `tests.messages`, with the number of arguments before the facts."""


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Lists the calls of `raises` and `assert_names` in all tests, with their places."""
    trees = {file.name: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(TESTS.glob("*.py"))}
    found = ((name, node) for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [(f"{name}:{call.lineno}", call) for name, call in found if name_of(call) in HELPERS]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def text_of(node: ast.expr) -> str:
    """Returns a literal's text, without the values of an f-string."""
    constants = (each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return " ".join(str(each.value) for each in constants)


def test_few_messages_are_matched_by_short_patterns() -> None:
    patterns = {place: keyword.value for place, call in calls() for keyword in call.keywords if keyword.arg == "match"}
    assert len(patterns) <= MOST_PATTERNS
    assert [place for place, pattern in patterns.items() if len(text_of(pattern).split()) > MOST_WORDS] == []


def test_a_fact_is_no_sentence() -> None:
    facts = [
        (place, text_of(argument))
        for place, call in calls()
        if isinstance(call.func, ast.Name) and call.func.id in HELPERS
        for argument in call.args[HELPERS[call.func.id] :]
        if isinstance(argument, ast.Constant | ast.JoinedStr)
    ]
    assert len(facts) > 1000
    long = [fact for fact in facts if len(fact[1].split()) > MOST_WORDS_OF_A_FACT and "recordmill " not in fact[1]]
    assert long == []
