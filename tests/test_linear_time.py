"""Text of strangers costs time in proportion to its length: every regular expression is measured by its steps."""

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

from tests.regex_steps import Counter, TooManyStepsError, steps

ROOT = Path(__file__).parents[1]
FILES = [*sorted((ROOT / "pipeline").rglob("*.py")), *sorted((ROOT / "transforms").rglob("*.py"))]
ANCHORED = {"match", "fullmatch"}
FUNCTIONS = {"compile", "search", "sub", "subn", "split", "findall", "finditer", *ANCHORED}
MADE_OF_VALUES = {
    ("pipeline/build/disk_failures.py", "search"),  # of the words for an error's number
    ("pipeline/sources/globs.py", "compile"),  # below: `test_a_glob_is_linear`
    ("pipeline/sources/templates.py", "compile"),
    ("pipeline/sources/templates.py", "sub"),
    ("transforms/contract/image_formats.py", "compile"),  # of our own table; some bytes of a file are looked at
    ("transforms/contract/image_formats.py", "match"),
}


class Found(NamedTuple):
    """A regular expression of the package."""

    file: str
    line: int
    pattern: re.Pattern[Any]
    anchored: bool
    """Whether it is tried from the beginning of a text alone."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def methods() -> dict[str, set[str]]:
    """The methods that are called on each name of the package, such as `URL.sub`."""
    used: dict[str, set[str]] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in FUNCTIONS:
                used.setdefault(node.value.id, set()).add(node.attr)
    return used


def patterns() -> Iterator[Found]:
    used = methods()
    for file in FILES:
        name, tree = str(file.relative_to(ROOT)), ast.parse(file.read_bytes())
        names = {id(node.value): ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"re.{each}" for each in FUNCTIONS}:
                function = node.func.attr
                if (name, function) not in MADE_OF_VALUES:
                    calls = used.get(names.get(id(node), ""), {"search"}) if function == "compile" else {function}
                    yield Found(name, node.lineno, compiled(node, name), calls <= ANCHORED)


def compiled(call: ast.Call, file: str) -> re.Pattern[Any]:
    flags = call.args[1:2] if call.func.attr == "compile" else [one.value for one in call.keywords if one.arg == "flags"]
    arguments = ", ".join(map(ast.unparse, [call.args[0], *flags]))
    try:
        return eval(f"re.compile({arguments})", {"re": re})  # noqa: S307  # our own source
    except NameError:
        module = importlib.import_module("recordmill." + file.removesuffix(".py").replace("/", "."))
        return eval(f"re.compile({arguments})", vars(module))  # noqa: S307


def witness(tree: Any) -> str:
    """A short text that a pattern matches, or nearly so."""
    text = ""
    for kind, value in tree:
        match kind:
            case op.LITERAL:
                text += chr(value)
            case op.IN:
                text += (characters([(kind, value)]) + ["~"])[0]
            case op.NOT_LITERAL | op.ANY:
                text += "~"
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                text += witness(value[2]) * max(1, value[0])
            case op.SUBPATTERN:
                text += witness(value[3])
            case op.ATOMIC_GROUP:
                text += witness(value)
            case op.BRANCH:
                text += witness(value[1][0])
    return text


def characters(tree: Any) -> list[str]:
    """A character of each literal, range and class of a pattern."""
    found: dict[str, None] = {}
    for kind, value in tree:
        match kind:
            case op.LITERAL | op.NOT_LITERAL:
                found[chr(value)] = None
            case op.RANGE:
                found[chr(value[0])] = None
            case op.CATEGORY:
                found[{op.CATEGORY_DIGIT: "0", op.CATEGORY_SPACE: " "}.get(value, "a")] = None
            case op.IN:
                found |= dict.fromkeys(characters(value))
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                found |= dict.fromkeys(characters(value[2]))
            case op.SUBPATTERN:
                found |= dict.fromkeys(characters(value[3]))
            case op.ATOMIC_GROUP:
                found |= dict.fromkeys(characters(value))
            case op.BRANCH:
                found |= dict.fromkeys(char for branch in value[1] for char in characters(branch))
            case op.ASSERT | op.ASSERT_NOT:
                found |= dict.fromkeys(characters(value[1]))
    return [*found]


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Texts to repeat, each with what stands before and behind: of the pattern's own characters and of its matches."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = list(parser.parse(source, pattern.flags & ~re.UNICODE))
    chars, whole = [*characters(tree)[:7], "~"], witness(tree)
    starts = [whole[:end] for end in sorted({*range(0, min(len(whole), 4)), len(whole) // 2, len(whole)})]
    for start, char, end in itertools.product(starts, chars, ("", "\n~")):
        yield start, char, end
    for pair, end in itertools.product(itertools.permutations(chars, 2), ("", "\n~")):
        yield "", "".join(pair), end
    for start, end in itertools.product(starts[1:], ("", "\n~")):
        yield "", start, end
        yield "", f"{start} ", end


def grows(found: Found, attack: tuple[str, str, str], length: int) -> bool:
    """Whether four times the text costs more than about four times the steps."""
    before, unit, behind = attack
    short, long = (before + unit * (times * length // len(unit) + 1) + behind for times in (1, 4))
    few = steps(found.pattern, short, anchored=found.anchored)
    try:
        steps(found.pattern, long, anchored=found.anchored, most=5 * few + 100)
    except TooManyStepsError:
        return True
    return False


@pytest.mark.parametrize("found", [*patterns()], ids=str)
def test_a_regular_expression_takes_linear_time(found: Found) -> None:
    slow = [attack for attack in attacks(found.pattern) if grows(found, attack, 24)]
    slow = [attack for attack in slow if grows(found, attack, 1_000)]  # what is bounded levels off
    assert slow == []
