"""The language rule over docstrings: open with a verb in the third person or a plain noun phrase; name who acts; stop.

CONTRIBUTING.md has the rule. `ALLOWED` says how many docstrings of each room still break it; a number may only fall,
and a room without a line breaks nothing. To see a room's sentences, remove its line and run this test. `SECOND_HALF`
has the words that make the second half of a sentence hard to read, and how often all docstrings may hold them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPENERS = {"What", "Who", "Whose", "Where", "Which", "How", "Of"}
WORDS = re.compile(r"\b(told|tells of|is none)\b")
PREDICATE = re.compile(r"^(bool|TypeGuard|TypeIs)\b")

ALLOWED: dict[str, int] = {}
SECOND_HALF = {
    r"\b(that|which) (is|are|was|were)\b": 45,
    r"\bof (its|their) own\b": 6,
    r"\bwhere (it|there|they) (is|are)\b": 2,
    r"\b(is|are) no\b": 12,
    r"\b(anew|whose)\b": 10,
}

Sentence = tuple[int, str, str]
"""A docstring: its line, its text, and the annotation of what it stands for."""


@cache
def all_docstrings() -> list[tuple[Path, Sentence]]:
    files = [file for folder in ("pipeline", "transforms", "recordmill") for file in (ROOT / folder).rglob("*.py")]
    return [(file, each) for file in sorted(files) for each in docstrings(ast.parse(file.read_text()))]


def docstrings(tree: ast.Module) -> Iterator[Sentence]:
    """Yields the docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text, annotation(getattr(node, "returns", None))
            yield from attribute_docstrings(node.body)


def attribute_docstrings(body: list[ast.stmt]) -> Iterator[Sentence]:
    """Yields the strings that follow an assignment."""
    for assignment, node in zip(body, body[1:], strict=False):
        if isinstance(assignment, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.lineno, node.value.value.strip(), annotation(getattr(assignment, "annotation", None))


def annotation(node: ast.expr | None) -> str:
    return ast.unparse(node) if node else ""


def broken_rule(text: str, annotated: str) -> str | None:
    """Names the rule that a docstring breaks, if any."""
    opener = text.split(maxsplit=1)[0].strip(",.:;")
    if opener in OPENERS:
        return f"opens with {opener}"
    if opener == "Whether" and not PREDICATE.match(annotated):
        return "opens with Whether and returns no bool"
    if words := WORDS.search(text):
        return f"says '{words[1]}'"
    return None


def room_of(file: Path) -> str:
    """Names the folder that a module belongs to: `pipeline/reader`, `pipeline`, `recordmill`."""
    return "/".join(file.relative_to(ROOT).parent.parts[:2])


def broken_by_room() -> dict[str, list[str]]:
    """Lists the docstrings that break the rule, by room."""
    rooms = defaultdict[str, list[str]](list)
    for file, (line, text, annotated) in all_docstrings():
        if rule := broken_rule(text, annotated):
            rooms[room_of(file)].append(f"{file.relative_to(ROOT)}:{line} {rule}: {text.splitlines()[0]}")
    return rooms


def test_docstrings_keep_the_language_rule() -> None:
    above = {room: lines for room, lines in broken_by_room().items() if len(lines) > ALLOWED.get(room, 0)}
    summary = [f"{room}: {len(lines)}, of which {ALLOWED.get(room, 0)} may stay" for room, lines in above.items()]
    assert not above, "\n".join([*summary, *(line for lines in above.values() for line in lines)])


def test_sentences_end_as_plainly_as_they_begin() -> None:
    texts = [text for _, (_, text, _) in all_docstrings()]
    found = {pattern: sum(len(re.findall(pattern, text)) for text in texts) for pattern in SECOND_HALF}
    assert {pattern: count for pattern, count in found.items() if count > SECOND_HALF[pattern]} == {}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def f() -> int:\n    """Returns one."""', None),
        ('"""What this is."""', "opens with What"),
        ('class A:\n    """Of all, the first."""', "opens with Of"),
        ('class A:\n    x: int\n    """How many there are."""', "opens with How"),
        ('class A:\n    x: bool\n    """Whether it is so."""', None),
        ('def f() -> bool:\n    """Whether it is so."""', None),
        ('def f() -> int:\n    """Whether it is so."""', "opens with Whether and returns no bool"),
        ('def f(x: object) -> TypeGuard[int]:\n    """Whether it is an int."""', None),
        ('def f() -> None:\n    """Prints what it was told."""', "says 'told'"),
        ('def f() -> None:\n    """Tells of a version that is none."""', "says 'is none'"),
        ('def f() -> None:\n    """Prints a line where x is None."""', None),
    ],
)
def test_the_rule_finds_what_breaks_it(source: str, rule: str | None) -> None:
    assert [broken_rule(text, annotated) for _, text, annotated in docstrings(ast.parse(source))] == [rule]
