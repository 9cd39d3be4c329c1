r"""YAML with the line of every value, so that messages can point at it.

>>> document = load_yaml("name: a\nsplits:\n  train: 80\n", "dataset.yaml")
>>> document.line(("splits", "train")), document.text(("splits", "train"))
(3, '80')
"""

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut

Path = tuple[str | int, ...]
WHOLE_NUMBER = re.compile("0|[1-9][0-9]*")
STRING, INTEGER, FLOAT, MERGE = (f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "merge"))
NUMBERS = (INTEGER, FLOAT)
MOST_DIGITS = 100  # to read `1:1:1:…`, a number to the base of 60, costs the square of its length
MOST_COPIES = 100_000
"""Values that aliases may add: ten lines of aliases of aliases are a billion."""
YAML_TYPES = {
    "bool": "a boolean",
    "float": "a number",
    "int": "a number",
    "map": "a mapping",
    "null": "nothing",
    "seq": "a list",
    "str": "text",
    "timestamp": "a date",
}


_merger = yaml.constructor.SafeConstructor()


class SpecError(UserError):
    """A spec, or another file of YAML, is wrong; the message is one line or more for the user."""


@dataclass(frozen=True)
class Document:
    """A YAML document: its value, and the node and the 1-based line of every value in it, by path."""

    where: str
    value: Any
    nodes: dict[Path, yaml.Node]
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Returns the line of a value, or of the nearest one above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def text(self, path: Path) -> str | None:
        """Returns a value as it is written; None where it is a list, a mapping, empty or absent."""
        node = self.nodes.get(path)
        return node.value or None if isinstance(node, yaml.ScalarNode) else None

    def type(self, path: Path) -> str:
        """Names the type that YAML gives a value: `a date`, `nothing`."""
        return yaml_type(self.nodes[path]) if path in self.nodes else "nothing"


def yaml_type(node: yaml.Node | None) -> str:
    """Names the type that YAML gives a node."""
    return "nothing" if node is None else YAML_TYPES.get(node.tag.rpartition(":")[2], "a value")


def load_yaml(text: str, where: str, keys: str = "`name:` and `source:`") -> Document:
    """Parses YAML (plain values alone, aliases and merge keys too); messages name it `where`, and keys that it has.

    Raises:
        SpecError: not YAML, not a mapping, a key given twice, a key that is no text, a tag of an object or a function,
            or aliases that expand to more values than a file has.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            _count(node, where, {})
        value = None if node is None else yaml.SafeLoader("").construct_document(deepcopy(node))
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(f"{where}: wanted a mapping of keys such as {keys}, got {yaml_type(node)}")
        document = Document(where, value, {}, {})
        _note_places(document, node, ())
    except yaml.YAMLError as error:
        raise SpecError(f"{where}{_line(error, text)}: not valid YAML: {_reason(error)}") from None
    except RecursionError:
        raise SpecError(f"{where}: nested too deep, or an alias stands inside what it is an alias of") from None
    return document


def _count(node: yaml.Node, where: str, counted: dict[int, int]) -> int:
    """Counts the values of a node with its aliases expanded, and checks its keys; `counted`: the nodes seen."""
    if id(node) in counted:
        return counted[id(node)]
    line = node.start_mark.line + 1
    if node.tag not in yaml.SafeLoader.yaml_constructors and node.tag != MERGE:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise SpecError(f"{where}:{line}: the tag `{cut(tag)}` is refused: plain values alone are read")
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, f"{where}:{line}")
    inner = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        inner = [part for entry in node.value for part in entry]
        for key in inner[::2]:
            if key.tag == INTEGER and WHOLE_NUMBER.fullmatch(key.value):  # such as the classes 0, 1, 2
                key.tag = STRING
    total = 1 + sum(_count(part, where, counted) for part in inner)
    if total - len(counted) > MOST_COPIES:
        raise SpecError(f"{where}:{line}: aliases make {total:,} values of this: write out what is meant")
    if isinstance(node, yaml.MappingNode):
        _check_keys([key for key, _ in node.value if key.tag != MERGE], where)
    counted[id(node)] = total
    return total


def _check_scalar(node: yaml.ScalarNode, where: str) -> None:
    """Refuses a number of too many digits, and a value that does not fit the type that YAML reads it as."""
    if node.tag in NUMBERS and len(node.value) > MOST_DIGITS:
        raise SpecError(
            f"{where}: YAML reads `{cut(node.value)}` as a number, of {len(node.value):,} characters: put it in quotes"
        )
    if node.tag in (STRING, MERGE) or (node.tag == INTEGER and WHOLE_NUMBER.fullmatch(node.value)):
        return
    try:
        yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, KeyError, AttributeError, OverflowError):  # PyYAML's own, of `2026-99-99`, `0b_`, `!!int a`
        raise SpecError(f"{where}: `{cut(node.value)}` is not {yaml_type(node)}: put it in quotes") from None


def _check_keys(keys: list[yaml.Node], where: str) -> None:
    """Refuses a key that YAML reads as something else than text, or that stands twice."""
    lines: dict[str, int] = {}
    for key in [key for key in keys if isinstance(key, yaml.ScalarNode)]:  # PyYAML refuses others by itself
        line = key.start_mark.line + 1
        if key.tag != STRING:
            raise SpecError(
                f"{where}:{line}: YAML reads the key `{cut(key.value)}` as {yaml_type(key)}: put it in quotes"
            )
        if key.value in lines:
            first = lines[key.value]
            raise SpecError(
                f"{where}:{line}: `{cut(key.value)}` stands here a second time; the first is in line {first}"
            )
        lines[key.value] = line


def _line(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f":{mark.line + 1}"
    position = getattr(error, "position", None)
    return "" if position is None else f":{text.count(chr(10), 0, position) + 1}"


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"a file holds no character {error.character:#x}"
    problem, context = getattr(error, "problem", None), getattr(error, "context", None)
    if problem and r"'\t'" in problem:
        return "a tab cannot indent a line: use spaces"
    begin = getattr(error, "context_mark", None)
    since = f" that begins in line {begin.line + 1}" if begin else ""
    return f"{context}{since}, {problem}" if context else str(problem or error)


def _note_places(document: Document, node: yaml.Node, path: Path) -> None:
    inner: dict[str | int, tuple[yaml.Node, yaml.Node]] = {}
    if isinstance(node, yaml.MappingNode):
        _merger.flatten_mapping(node)  # the entries merged in by `<<` come first: its own replace them
        inner = {key.value: (key, value) for key, value in node.value}
    elif isinstance(node, yaml.SequenceNode):
        inner = {index: (value, value) for index, value in enumerate(node.value)}
    for part, (start, value) in inner.items():
        document.lines[*path, part] = start.start_mark.line + 1
        document.nodes[*path, part] = value
        _note_places(document, value, (*path, part))
