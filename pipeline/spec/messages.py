"""Explains a wrong spec, a line for each problem: its place in the YAML, the problem, the nearest valid name."""

import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.yaml_document import Document, Path

LINE = r"^[^\r\n]+$"
WEB_PAGE = r"^https?://\S+$"
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$"
FORMS = {
    LINE: "one line of text",
    WEB_PAGE: "a URL that begins with http:// or https://, without blanks",
    LANGUAGE: "a language's code, such as `en` or `de-CH`",
}
"""The wanted value in words, by pattern."""
TAGS = ("kind", "format")
"""The keys that select a mapping's options."""
NAME = "a name: a letter, then letters, digits and underscores"
FUNCTION = "a function, written `module:function`"
WANTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "dict_type": lambda _: "a mapping",
    "finite_number": lambda _: "a finite number",
    "float_parsing": lambda _: "a number",
    "float_type": lambda _: "a number",
    "greater_than_equal": lambda context: f"{context['ge']:g} or more",
    "int_type": lambda _: "a whole number",
    "less_than_equal": lambda context: f"{context['le']:g} or less",
    "literal_error": lambda context: context["expected"],
    "model_attributes_type": lambda _: "a mapping",
    "model_type": lambda _: "a mapping",
    "none_required": lambda _: "left out: the format lacks this option",
    "string_pattern_mismatch": lambda context: FORMS.get(
        context["pattern"], FUNCTION if ":" in context["pattern"] else NAME
    ),
    "string_too_long": lambda context: f"text of at most {context['max_length']} characters",
    "string_type": lambda _: "text",
    "too_long": lambda context: f"a list of at most {context['max_length']} items",
    "tuple_type": lambda _: "a list",
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
        return f"should be {WANTED[kind](context)}, got {_got(problem, path, document)}"
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
