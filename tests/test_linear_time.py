"""Foreign text costs linear time: every regular expression is measured by its steps."""

import ast
import difflib
import importlib
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipeline import safe_text
from recordmill.pipeline.errors import MOST_MESSAGE, UserError, did_you_mean, listed
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.globs import glob_pattern
from tests.regex_steps import Counter, TooManyStepsError, steps

ROOT = Path(__file__).parents[1]
FILES = [*sorted((ROOT / "pipeline").rglob("*.py")), *sorted((ROOT / "transforms").rglob("*.py"))]
ANCHORED = {"match", "fullmatch"}
FUNCTIONS = {"compile", "search", "sub", "subn", "split", "findall", "finditer", *ANCHORED}
MADE_OF_VALUES = {
    ("pipeline/build/attempt/failures.py", "search"),  # of the words for an error's number
    ("pipeline/sources/formats/csv.py", "compile"),  # of a column in the spec, `pixel*`, for names of columns
    ("pipeline/sources/formats/image_fields.py", "compile"),  # of a pattern in the spec, for the parts of a path
    ("pipeline/sources/globs.py", "compile"),  # below: `test_a_glob_is_linear`
    ("pipeline/sources/globs.py", "sub"),
    ("transforms/images/image_header.py", "compile"),  # of our own table; some bytes of a file are looked at
    ("transforms/images/image_header.py", "match"),
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


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Returns the parts of modules that call a method of regular expressions, each with its file."""
    may_call = re.compile(rb"\w\.(?:%b)\b" % "|".join(FUNCTIONS).encode())
    texts = [(str(file.relative_to(ROOT)), file.read_bytes()) for file in FILES]
    trees = [(file, ast.parse(text)) for file, text in texts if may_call.search(text)]
    return [(file, node) for file, tree in trees for node in ast.walk(tree)]


def methods() -> dict[str, set[str]]:
    """Lists the methods called on each name of the package, such as `URL.sub`."""
    used: dict[str, set[str]] = {}
    for _, node in nodes():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in FUNCTIONS:
            used.setdefault(node.value.id, set()).add(node.attr)
    return used


@cache
def patterns() -> list[Found]:
    used, names, found = methods(), dict[int, str](), list[Found]()
    for file, node in nodes():
        if isinstance(node, ast.Assign):
            names[id(node.value)] = ast.unparse(node.targets[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
            function = node.func.attr
            if ast.unparse(node.func.value) == "re" and (file, function) not in MADE_OF_VALUES:
                called = used.get(names.get(id(node), ""), {"search"}) if function == "compile" else {function}
                found.append(Found(file, node.lineno, compiled(node, file), called <= ANCHORED))
    return found


def compiled(call: ast.Call, file: str) -> re.Pattern[Any]:
    named = [one.value for one in call.keywords if one.arg == "flags"]
    flags = call.args[1:2] if call.func.attr == "compile" else named
    arguments = ", ".join(map(ast.unparse, [call.args[0], *flags]))
    try:
        return eval(f"re.compile({arguments})", constants(file))  # noqa: S307  # our own source
    except NameError:
        module = importlib.import_module("recordmill." + file.removesuffix(".py").replace("/", "."))
        return eval(f"re.compile({arguments})", vars(module))  # noqa: S307


@cache
def constants(file: str) -> dict[str, Any]:
    """Evaluates a module's constants of literals and patterns, without importing it."""
    names: dict[str, Any] = {"re": re}
    for node in ast.parse((ROOT / file).read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with suppress(Exception):
                names[node.targets[0].id] = eval(ast.unparse(node.value), dict(names))  # noqa: S307
    return names


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
            case op.IN | op.ATOMIC_GROUP:
                found |= dict.fromkeys(characters(value))
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                found |= dict.fromkeys(characters(value[2]))
            case op.SUBPATTERN:
                found |= dict.fromkeys(characters(value[3]))
            case op.BRANCH:
                found |= dict.fromkeys(char for branch in value[1] for char in characters(branch))
            case op.ASSERT | op.ASSERT_NOT:
                found |= dict.fromkeys(characters(value[1]))
    return [*found]


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yields texts to repeat, with a prefix and suffix: from the pattern's own characters and its matches."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = list(parser.parse(source, pattern.flags & ~re.UNICODE))
    chars, whole = [*characters(tree)[:5], "~"], witness(tree)
    starts = [whole[:end] for end in sorted({0, min(len(whole), 2), len(whole) // 2, len(whole)})]
    for start, char, end in itertools.product(starts, chars, ("", "\n~")):
        yield start, char, end
    for pair in itertools.permutations(chars, 2):
        yield "", "".join(pair), ""
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


@pytest.mark.parametrize("found", patterns(), ids=str)
def test_a_regular_expression_takes_linear_time(found: Found) -> None:
    suspects = (attack for attack in attacks(found.pattern) if grows(found, attack, 16))
    assert [attack for attack in itertools.islice(suspects, 3) if grows(found, attack, 400)] == []  # or it levels off


@pytest.mark.parametrize("found", [each for each in patterns() if each.file == "pipeline/safe_text.py"], ids=str)
@given(st.text(alphabet="sS3:/@%4025fA?#=;.a \\n'[]", max_size=30))
@settings(max_examples=50)
def test_the_counter_matches_as_python_does(found: Found, text: str) -> None:
    counter = Counter(str(found.pattern.pattern), found.pattern.flags, text, 1e6)
    assert counter.search() == [match.end() for match in found.pattern.finditer(text) if match[0]]


class Counting:
    """Counts the steps of a pattern's searches and matches."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern = pattern
        self._counter = Counter(pattern.pattern, pattern.flags, text, 1e7)

    def search(self, text: str, position: int = 0) -> re.Match[str] | None:
        self._counter.text = text
        self._counter.find(position)
        return self._pattern.search(text, position)

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        self._counter.text = text
        self._counter.match(position)
        return self._pattern.match(text, position)

    @property
    def steps(self) -> int:
        return self._counter.steps


UNITS = ["a", "/", "a:/", "a://", "a:/b:", "://x:y ", "//a b:c", "a:@"]
UNITS += ["@", "s3://x y:z'", "%40", "a://b@", "[", "a:/[a]"]


@pytest.mark.parametrize("behind", ["", " @", "@"])
@pytest.mark.parametrize("unit", UNITS)
def test_users_are_looked_for_once(unit: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names, taken = ("USER_BEGINS", "PASSWORD", "AT", "MORE_OF_IT", "BLANK"), []
    own = [getattr(safe_text, name) for name in names]
    for times in (100, 400):  # more than the characters in which a password with blanks may lie
        text = unit * times + behind
        patterns = [Counting(pattern, text) for pattern in own]
        for name, pattern in zip(names, patterns, strict=True):
            monkeypatch.setattr(safe_text, name, pattern)
        list(safe_text._without_users(text))
        taken.append(sum(pattern.steps for pattern in patterns))
    assert taken[1] <= 5 * taken[0] + 100


@pytest.mark.parametrize("glob", ["*a" * 30 + "b", "**/a/" * 30 + "b", "**/" * 30 + "b", "a/**/*b*c/" * 5 + "*d*e"])
@pytest.mark.parametrize("unit", ["a", "a/", "a/bc/"])
def test_a_glob_of_many_wildcards_is_linear(glob: str, unit: str) -> None:
    pattern = glob_pattern(glob)
    few = steps(pattern, unit * 20 + "~", anchored=True)
    assert steps(pattern, unit * 80 + "~", anchored=True, most=5 * few + 1000) < 50_000


PARTS = st.sampled_from(["**", "*", "a", ".h", "a*b", "?", "a*b*a", "*.*", ".*", "[ab]*a", "***"])
NAMES = st.sampled_from(["a", "b", ".h", "ab", "aba", "abab", ".a", "a.b"])


@given(st.lists(PARTS, min_size=1, max_size=6), st.lists(NAMES, min_size=1, max_size=7))
def test_a_glob_means_what_it_says_part_by_part(parts: list[str], names: list[str]) -> None:
    assert bool(glob_pattern("/".join(parts)).fullmatch("/".join(names))) == matches(parts, names)


def matches(parts: list[str], names: list[str]) -> bool:
    """The meaning of a glob, tried in every way."""
    if parts == ["**"]:
        return bool(names) and not any(name.startswith(".") for name in names)
    if not parts or not names:
        return parts == names
    if parts[0] == "**":
        return matches(parts[1:], names) or (not names[0].startswith(".") and matches(parts, names[1:]))
    is_hidden = names[0].startswith(".") and not parts[0].startswith(".")
    return not is_hidden and fnmatchcase(names[0], parts[0]) and matches(parts[1:], names[1:])


def test_a_message_is_cut_in_its_middle_behind_its_secrets() -> None:
    message = str(UserError("s3://key:secret@bucket/" + "a" * 1_000_000 + " is gone"))
    assert message.startswith("s3://***@bucket/aaa")
    assert message.endswith("aaa is gone")
    assert "… [990," in message
    assert len(message) <= MOST_MESSAGE
    assert cut("s3://key:" + "secret" * 20 + "@bucket", 40) == "s3://***@bucket"  # a cut URL is none to be hidden


def test_near_names_are_looked_for_among_some_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[str]()
    near = difflib.get_close_matches
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda *args, **options: compared.extend(args[1]) or near(*args, **options)
    )
    assert did_you_mean("labl", ["l" * 1_000_000, "label"]) == "; did you mean `label`?"
    assert did_you_mean("l" * 1_000_000, ["label"]) == ""
    assert did_you_mean("labl", map(str, range(1_000_000))) == ""
    assert len(compared) == 1 + 1_000


def test_names_in_a_message_are_a_few() -> None:
    assert listed([f"split{number}" for number in range(10_000)], 2) == "split0, split1 and 9,998 more"
    assert len(listed(["a" * 10_000] * 30)) < 2_000
