"""Every option of every kind has a case of the table at a value other than its default."""

import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from recordmill.pipeline.spec.features import AnyFeature
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests.table.page import PAGE, page
from tests.table.world import CASES

KINDS = {
    str(typing.get_args(model.model_fields["kind"].annotation)[0]): model
    for model in typing.get_args(typing.get_args(AnyFeature)[0])
}
"""The models of all kinds, by name."""


def choices(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the options of a model by path, also those inside of an option, each with a value that it takes.

    The value is one of the names that the option chooses from, but its default; None: any but the default.
    """
    for option, field in model.model_fields.items():
        if option == "kind" or field.annotation is type(None):
            continue
        inner = list(_models(field.annotation))
        for each in inner:
            yield from choices(each, (*path, option))
        names = {name for name in _names(field.annotation) if name != field.default}
        yield from (((*path, option), name) for name in sorted(names, key=str))
        if not names and not inner:
            yield (*path, option), None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _names(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is Literal:
        yield from typing.get_args(annotation)
    else:
        for inner in typing.get_args(annotation):
            yield from _names(inner)


CHOICES = [(kind, path, name) for kind, model in KINDS.items() for path, name in choices(model)]


REFUSED = {
    ("pair", (option,)): "{name: x, source: {format: jsonl, path: x}, features: {x: {kind: pair, first: a, second: b,"
    f" model: m.json, {option}: {value}}}}}}}"
    for option, value in (("column", "c"), ("optional", "true"))
}
"""Specs with options of all kinds that a kind refuses."""


@pytest.mark.parametrize(
    ("kind", "path", "name"), CHOICES, ids=lambda value: ".".join(value) if isinstance(value, tuple) else str(value)
)
def test_every_option_has_a_case(kind: str, path: tuple[str, ...], name: Any) -> None:
    given = [_at(case.feature, path) for case in CASES.values() if case.kind == kind]
    default = KINDS[kind].model_fields[path[0]].default if len(path) == 1 else None
    if (kind, path) in REFUSED:
        with pytest.raises(SpecError, match=path[0]):
            parse_spec(REFUSED[kind, path])
    else:
        assert any(name in _each(value) if name is not None else value not in (None, default) for value in given)


def _each(value: Any) -> Iterable[Any]:
    return [*value, *value.values()] if isinstance(value, Mapping) else [value]


def _at(feature: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = feature
    for option in path:
        value = value.get(option) if isinstance(value, Mapping) else None
    return value


def test_the_page_of_kinds_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.table.page"
