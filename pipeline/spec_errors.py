"""From a wrong spec to lines that a person can act on: where in the YAML, what, and the nearest right name."""

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.errors import UserError

Path = tuple[str | int, ...]


class SpecError(UserError):
    """The spec is wrong; the message is one line or more for the user."""


@dataclass(frozen=True)
class Document:
    """A YAML document: its value, and the 1-based line of each of its places."""

    where: str
    value: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of a place, or of the nearest place above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def load_yaml(text: str, where: str) -> Document:
    """Parses YAML (safe tags only).

    Raises:
        SpecError: not YAML, not a mapping, or a key given twice.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise SpecError(f"{where}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(value, dict):
        raise SpecError(f"{where}: a spec is a mapping of keys such as `name:` and `source:`, got {_yaml_type(value)}")
    lines: dict[Path, int] = {}
    for path, line in _places(node, ()):
        if path in lines and path and isinstance(path[-1], str):
            raise SpecError(
                f"{where}:{line}: `{path[-1]}` stands here a second time; the first is in line {lines[path]}"
            )
        lines[path] = line
    return Document(where, value, lines)


def _places(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value), key.start_mark.line + 1
            yield from _places(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark.line + 1
            yield from _places(value, (*path, index))


def explain(error: ValidationError, document: Document, model: type[BaseModel]) -> Iterator[str]:
    """One line for each thing that is wrong: `dataset.yaml:7: features.image: …`."""
    for problem in error.errors():
        path = _yaml_path(problem["loc"], document.value)
        message = _message(problem, path, document, model)
        place = ".".join(map(str, path))
        yield f"{document.where}:{document.line(path)}: {place + ': ' if place else ''}{message}"


def _yaml_path(location: tuple[str | int, ...], value: Any) -> Path:
    """Leaves out what pydantic puts into a location that the YAML does not hold: a union's tag, a single source's 0."""
    path: list[str | int] = []
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(value, dict) and (part in value or (last and not _is_tag(part, value))):
            path.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path.append(part)
            value = value[part]
    return tuple(path)


def _is_tag(part: str | int, value: dict[str, Any]) -> bool:
    return part == 0 or part in (value.get("kind"), value.get("format"))


def _message(problem: Any, path: Path, document: Document, model: type[BaseModel]) -> str:
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = _known_keys(model, problem["loc"][:-1])
        return f"unknown key{_nearest(str(path[-1]), known)}; known here: {', '.join(sorted(known))}"
    if kind == "missing":
        return "is needed and is not there"
    if kind == "union_tag_invalid":
        context = problem["ctx"]
        tag, known = context["tag"], [tag.strip("' ") for tag in context["expected_tags"].split(",")]
        return f"{_discriminator(context)} '{tag}' is unknown{_nearest(tag, known)}; known: {', '.join(known)}"
    if kind == "union_tag_not_found":
        return f"needs a `{_discriminator(problem['ctx'])}`"
    if kind == "value_error":
        return str(problem["ctx"]["error"])
    return f"{problem['msg'][:1].lower()}{problem['msg'][1:]}, got {problem['input']!r:.80}"


def _discriminator(context: dict[str, Any]) -> str:
    return str(context["discriminator"]).strip("'")


def _known_keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys of the options at a location of pydantic's (which names the union's member by its tag)."""
    models: list[type[BaseModel]] = [model]
    for part in location:
        following = [
            member
            for current in models
            for field, info in current.model_fields.items()
            if field == part
            for member in _models(info.annotation)
        ]
        tagged = [m for m in models if any(part in typing.get_args(i.annotation) for i in m.model_fields.values())]
        models = following or tagged or models
    return sorted({field for member in models for field in member.model_fields})


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, types.GenericAlias) or typing.get_origin(annotation) is not None:
        return [model for part in typing.get_args(annotation) for model in _models(part)]
    return []


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _yaml_type(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
