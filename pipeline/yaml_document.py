r"""The bases of `dataset.yaml`: YAML with the line of every value, groups of options, and lines that say what is wrong.

A line has a problem's place in the YAML, the problem, and the nearest valid name.

>>> document = load_yaml("name: a\nsplits:\n  train: 80\n", "dataset.yaml")
>>> document.line(("splits", "train")), document.text(("splits", "train"))
(3, '80')
"""

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue

from recordmill.pipeline.errors import UserError, did_you_mean
from recordmill.pipeline.safe_text import cut

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

Path = tuple[str | int, ...]
WHOLE_NUMBER = re.compile("0|[1-9][0-9]*")
STRING, INTEGER, FLOAT, MERGE = (f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "merge"))
NUMBERS = (INTEGER, FLOAT)
MOST_DIGITS = 100  # reading `1:1:1:…`, a number to the base 60, takes quadratic time
MOST_COPIES = 100_000  # values added by aliases: ten lines of nested aliases make a billion
YAML_TYPES = {
    "bool": "a boolean", "float": "a number", "int": "a number", "map": "a mapping", "null": "nothing",
    "seq": "a list", "str": "text", "timestamp": "a date",
}  # fmt: skip
_merger = yaml.constructor.SafeConstructor()


class SpecError(UserError):
    """A spec or another YAML file is wrong; the message has one or more lines."""


@dataclass(frozen=True)
class Document:
    """A YAML document: its value, and every inner value's node and line (from 1), by path."""

    where: str
    value: Any
    nodes: dict[Path, yaml.Node]
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Returns the line of a value, or of its nearest parent with one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def text(self, path: Path) -> str | None:
        """Returns a value's source text; None for a list, a mapping, or an empty or missing value."""
        node = self.nodes.get(path)
        return node.value or None if isinstance(node, yaml.ScalarNode) else None

    def type(self, path: Path) -> str:
        """Names a value's YAML type: `a date`, `nothing`."""
        return yaml_type(self.nodes[path]) if path in self.nodes else "nothing"


def yaml_type(node: yaml.Node | None) -> str:
    """Names a node's YAML type."""
    return "nothing" if node is None else YAML_TYPES.get(node.tag.rpartition(":")[2], "a value")


def load_yaml(text: str, where: str, keys: str = "`name:` and `source:`") -> Document:
    """Parses YAML of plain values, aliases and merge keys; `where` and `keys` name the file and its keys in messages.

    Raises: SpecError: not YAML, not a mapping, a duplicate or non-text key, a tag of an object or a function, or
    aliases that expand to too many values.
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
        mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
        before = None if mark is position is None else text.count("\n", 0, position) if mark is None else mark.line
        line = "" if before is None else f":{before + 1}"
        raise SpecError(f"{where}{line}: not valid YAML: {_reason(error)}") from None
    except RecursionError:
        raise SpecError(f"{where}: nested too deep, or an alias contains itself") from None
    return document


def _count(node: yaml.Node, where: str, counted: dict[int, int]) -> int:
    """Counts a node's values with its aliases expanded, and checks its keys; `counted` caches the visited nodes."""
    if id(node) in counted:
        return counted[id(node)]
    line = node.start_mark.line + 1
    if node.tag not in yaml.SafeLoader.yaml_constructors and node.tag != MERGE:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise SpecError(f"{where}:{line}: the tag `{cut(tag)}` is not allowed: write a plain value")
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
        raise SpecError(f"{where}:{line}: aliases make {total:,} values of this: write out the values")
    if isinstance(node, yaml.MappingNode):
        _check_keys([key for key, _ in node.value if key.tag != MERGE], where)
    counted[id(node)] = total
    return total


def _check_scalar(node: yaml.ScalarNode, where: str) -> None:
    """Refuses a number with too many digits, and a value invalid for its YAML type."""
    if node.tag in NUMBERS and len(node.value) > MOST_DIGITS:
        number = f"`{cut(node.value)}` as a number, of {len(node.value):,} characters"
        raise SpecError(f"{where}: YAML reads {number}: put it in quotes")
    if node.tag in (STRING, MERGE) or (node.tag == INTEGER and WHOLE_NUMBER.fullmatch(node.value)):
        return
    try:
        yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, KeyError, AttributeError, OverflowError):  # PyYAML's, for `2026-99-99`, `0b_`, `!!int a`
        raise SpecError(f"{where}: `{cut(node.value)}` is not {yaml_type(node)}: put it in quotes") from None


def _check_keys(keys: list[yaml.Node], where: str) -> None:
    """Refuses non-text and duplicate keys."""
    lines: dict[str, int] = {}
    for key in [key for key in keys if isinstance(key, yaml.ScalarNode)]:  # PyYAML refuses the others
        line = key.start_mark.line + 1
        if key.tag != STRING:
            raise SpecError(f"{where}:{line}: the key `{cut(key.value)}` is {yaml_type(key)} in YAML: put it in quotes")
        if key.value in lines:
            first = lines[key.value]
            raise SpecError(f"{where}:{line}: the key `{cut(key.value)}` is a duplicate of line {first}: remove one")
        lines[key.value] = line


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"the character {error.character:#x} is not allowed"
    problem, context = getattr(error, "problem", None), getattr(error, "context", None)
    if problem and r"'\t'" in problem:
        return "a tab cannot indent a line: use spaces"
    begin = getattr(error, "context_mark", None)
    since = f" that begins in line {begin.line + 1}" if begin else ""
    return f"{context}{since}, {problem}" if context else str(problem or error)


def _note_places(document: Document, node: yaml.Node, path: Path) -> None:
    inner: dict[str | int, tuple[yaml.Node, yaml.Node]] = {}
    if isinstance(node, yaml.MappingNode):
        _merger.flatten_mapping(node)  # puts entries merged by `<<` first: the mapping's own replace them
        inner = {key.value: (key, value) for key, value in node.value}
    elif isinstance(node, yaml.SequenceNode):
        inner = {index: (value, value) for index, value in enumerate(node.value)}
    for part, (start, value) in inner.items():
        document.lines[*path, part] = start.start_mark.line + 1
        document.nodes[*path, part] = value
        _note_places(document, value, (*path, part))


class Options(BaseModel):
    """A group of options in `dataset.yaml`: frozen, validated when made, without unknown keys.

    Docstrings of options describe them in the JSON Schema, and are parsed only for it: pydantic's
    `use_attribute_docstrings` takes a third of the time to load a spec.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: "CoreSchema", handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for base in reversed(cls.__mro__):
            if issubclass(base, Options):
                for name, text in _docstrings(base).items():
                    if name in properties:
                        properties[name]["description"] = text
        return described


def one_or_list(value: Any) -> Any:
    """Reads a single value as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


def number_or_list(value: Any, copies: int = 1) -> Any:
    """Reads a whole number as a list of `copies` of it. Raises: ValueError: neither a whole number nor a list."""
    if type(value) is int:
        return (value,) * copies
    if not isinstance(value, list | tuple):
        raise ValueError(f"should be a whole number, or a list of them, got {cut(repr(value))}")
    return value


def _docstrings(options: type[Options]) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    texts = {}
    for before, statement in pairwise(getattr(tree, "body", [])):
        match before, statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts


LINE = r"^[^\r\n]+$"
WEB_PAGE = r"^https?://\S+$"
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$"
FORMS = {  # the wanted value in words, by pattern
    LINE: "one line of text",
    WEB_PAGE: "a URL that begins with http:// or https://, without blanks",
    LANGUAGE: "a language's code, such as `en` or `de-CH`",
}
TAGS = ("kind", "format")  # the keys that select a mapping's options
NAME = "a name: a letter, then letters, digits and underscores"
FUNCTION = "a function, written `module:function`"
WANTED = {  # by the kind of a problem, or the place of a wrong type
    "label": "a feature's name, such as `label: category`",
    "features": "a mapping, such as `{{text: {{kind: text}}}}`",
    "features.*": "a mapping, such as `{{kind: text}}`",
    "splits": "a mapping, such as `{{train: 80, test: 20}}`",
    **dict.fromkeys(("dict_type", "model_attributes_type", "model_type"), "a mapping"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "finite_number": "a finite number",
    "greater_than_equal": "{ge:g} or more",
    "int_type": "a whole number",
    "less_than_equal": "{le:g} or less",
    "literal_error": "{expected}",
    "none_required": "left out: the format lacks this option",
    "string_pattern_mismatch": "{form}",
    "string_too_long": "text of at most {max_length} characters",
    "string_type": "text",
    "too_long": "a list of at most {max_length} items",
    "tuple_type": "a list",
}
"""The wanted value in words, by pydantic's error type."""


def explain(error: ValidationError, document: Document, model: type[BaseModel]) -> Iterator[str]:
    """Yields a line for each problem: `dataset.yaml:7: features.image: …`."""
    seen = set()
    for problem in error.errors():
        path = (*_yaml_path(problem["loc"], document.value), *getattr(problem.get("ctx", {}).get("error"), "path", ()))
        if problem["type"] == "too_short" and problem["input"]:
            continue  # its items are wrong, and have a line each
        name = ".".join(map(str, path[:-1] if problem["type"] == "extra_forbidden" else path))
        message = _message(problem, path, document, model)
        line = f"{document.where}:{document.line(path)}: {name + ': ' if name else ''}{message}"
        if line not in seen:
            seen.add(line)
            yield line


def _yaml_path(location: tuple[str | int, ...], value: Any) -> Path:
    """Removes from pydantic's location what the YAML lacks: a union's tag, the 0 of a single source."""
    path: list[str | int] = []
    for position, part in enumerate(location):
        last = position == len(location) - 1
        is_tag = isinstance(value, dict) and part in (0, "[key]", *map(value.get, TAGS))
        if isinstance(value, dict) and (part in value or (last and not is_tag)):
            path.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path.append(part)
            value = value[part]
    return tuple(path)


def _message(problem: Any, path: Path, document: Document, model: type[BaseModel]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known_keys(model, problem["loc"][:-1])
        return f"unknown key `{path[-1]}`{did_you_mean(str(path[-1]), known)}; known here: {', '.join(known)}"
    if kind == "missing":
        too_few = isinstance(problem["loc"][-1], int)
        return f"too few items, got {problem['input']}" if too_few else "is needed but missing"
    if kind == "union_tag_invalid":
        tag, known = context["tag"], re.findall(r"'(.*?)'", context["expected_tags"])
        name = context["discriminator"].strip("'")
        return f"{name} '{tag}' is unknown{did_you_mean(tag, known)}; known: {', '.join(known)}"
    if kind == "union_tag_not_found":
        keys = ", ".join(f"`{_one_line(str(key))}`" for key in problem["input"])
        return f"needs a `{context['discriminator'].strip(chr(39))}: …`, got {keys or 'nothing'}"
    if kind == "too_short":
        return "should not be empty"
    if kind == "value_error":
        return str(context["error"])
    if kind in WANTED:
        pattern = context.get("pattern", "")
        form = FORMS.get(pattern, FUNCTION if ":" in pattern else NAME)
        place = ".".join([*map(str, path[:1]), *"*" * (len(path) - 1)]) if kind.endswith("_type") else kind
        wanted = WANTED.get(place, WANTED[kind]).format(form=form, **context)
        return f"should be {wanted}, got {_got(problem, path, document)}"
    return f"{problem['msg'][:1].lower()}{problem['msg'][1:]}, got {_got(problem, path, document)}"


def _got(problem: Any, path: Path, document: Document) -> str:
    if problem["loc"][-1] == "[key]":
        return f"`{path[-1]}`"
    text, taken, more = document.text(path), document.type(path), ""
    if path[:1] == ("source",) and "options" in path:
        return taken  # they may be secret
    if text is None:
        return f"{problem['input']}" if isinstance(problem["input"], list | tuple) else taken
    if problem["type"] == "string_type":
        more = f", which YAML reads as {taken}: put it in quotes"
    if problem["type"] == "literal_error":
        more = did_you_mean(text, re.findall("'(.*?)'", problem["ctx"]["expected"]))
    return f"`{_one_line(text)}`{more}"


def _one_line(text: str) -> str:
    return cut(text if text.isprintable() else ascii(text)[1:-1])


def _known_keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Lists the valid keys at pydantic's location; its last part may be a union's tag."""
    models = [model]
    for part in location:
        inner = [_models(current.model_fields[part].annotation) for current in models if part in current.model_fields]
        models = [member for members in inner for member in members] or models
    tagged = [member for member in models if location and location[-1] in _tags(member)]
    return sorted({field for member in tagged or models for field in member.model_fields})


def _tags(model: type[BaseModel]) -> list[Any]:
    fields = [model.model_fields[tag] for tag in TAGS if tag in model.model_fields]
    return [tag for field in fields for tag in typing.get_args(field.annotation)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, types.GenericAlias) or typing.get_origin(annotation) is not None:
        return [model for part in typing.get_args(annotation) for model in _models(part)]
    return []
