"""Names of classes as a spec gives them: in place, or as a file of one name a line."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError

from recordmill.pipeline.safe_text import cut


def _one_line(name: str) -> str:
    if not name.strip() or "\n" in name or "\r" in name:
        raise ValueError(f"a class is one line and not blank, got {cut(repr(name))}")
    return name


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise ValueError(f"the class {cut(repr(name))} stands here {times} times")
    return names


ClassName = Annotated[str, AfterValidator(_one_line)]
Classes = Annotated[tuple[ClassName, ...], Field(min_length=1), AfterValidator(_distinct)]
"""Names of classes in the order of their ids."""


def _distinct_values(names: dict[str, str]) -> dict[str, str]:
    _distinct(tuple(names.values()))
    return names


DisplayedClasses = Annotated[dict[ClassName, ClassName], Field(min_length=1), AfterValidator(_distinct_values)]
"""Names of classes as the data has them in the order of their ids, each with the name that people are shown."""
FRESH = "fresh"
GivenClasses = Annotated[
    Annotated[Classes, Tag("names")]
    | Annotated[DisplayedClasses, Tag("names with those to show")]
    | Annotated[Literal["fresh"], Tag(FRESH)],
    Discriminator(lambda value: {dict: "names with those to show", str: FRESH}.get(type(value), "names")),
]


def read_classes(path: str | Path) -> tuple[str, ...]:
    r"""Reads a file of classes: UTF-8, one name a line, `\n` or `\r\n` at each line's end; no line is blank.

    Raises:
        ValueError: it cannot be read, or its names are not one a line and distinct; the message names the file.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    try:
        return TypeAdapter(Classes).validate_python(lines)
    except ValidationError as error:
        first = error.errors()[0]
        line = f", line {first['loc'][0] + 1}" if first["loc"] and isinstance(first["loc"][0], int) else ""
        raise ValueError(f"{path}{line}: {first['ctx']['error']}") from None
