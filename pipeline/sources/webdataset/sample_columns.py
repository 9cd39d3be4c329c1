"""From samples of a WebDataset to typed columns.

A column is a member by its extension: `jpg`; or the first that is there of several, `jpg;png;webp`; or a field of one
that holds a JSON object, `json.caption`, `meta.json.author.name`; or `__key__`, the sample's key. Extensions are
compared in small letters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.image_refs import inline, to_piece
from recordmill.pipeline.sources.typing.arrays import arrow_type, in_groups, lists_of_one, strings
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.pipeline.sources.typing.fields import python_field
from recordmill.pipeline.sources.typing.image_cells import ImageBase
from recordmill.pipeline.sources.typing.json_objects import json_object
from recordmill.pipeline.sources.typing.python_values import typed_objects
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.pipeline.sources.webdataset.tar_samples import Member, Sample

KEY = "__key__"


@dataclass(frozen=True)
class Part:
    """The part of a sample that a column is: a member, or a field of the JSON object in it."""

    extension: str
    field: str | None = None


def parts(name: str) -> list[Part]:
    """Lists the parts that a column may be, the first that is there.

    >>> parts("jpg;json.url")
    [Part(extension='jpg', field=None), Part(extension='json.url', field=None), Part(extension='json', field='url')]
    """
    result = []
    for alternative in name.split(";"):
        words = alternative.strip().split(".")
        result.append(Part(".".join(words).lower()))
        for end in range(1, len(words)):
            if words[end - 1].lower() == "json":
                result.append(Part(".".join(words[:end]).lower(), ".".join(words[end:])))
    return result


def wanted(columns: Columns, *, images: bool) -> frozenset[str]:
    """Lists the extensions of which the bytes are read; those of images only where `images`."""
    return frozenset(
        part.extension
        for name, column in columns.items()
        for part in parts(name)
        if images or part.field is not None or column.type is not ColumnType.IMAGE
    )


def object_in(sample: Sample, extension: str) -> dict[str, Any] | Fault:
    """Parses the JSON object that a member holds, once."""
    if extension not in sample.objects:
        data = sample.members[extension].data or b""
        sample.objects[extension] = json_object(data, f"the member .{extension}")
    return sample.objects[extension]


class SampleColumn:
    """One column of some samples."""

    def __init__(self, name: str, column: Column, file: str | None, base: ImageBase) -> None:
        """Takes the column.

        Args:
            name: its name.
            column: its type.
            file: the tar file, relative to the source's root, where images can stay in it.
            base: what paths of images in JSON are relative to.
        """
        self._name, self._column, self._parts = name, column, parts(name)
        self._file, self._base = file, base

    def typed(self, samples: Sequence[Sample], faults: Faults) -> pa.Array:
        """Gives the column in its Arrow type, shape [samples], null where a sample has none; faults are added."""
        members, values = dict[int, Member](), dict[int, Any]()
        for row, sample in enumerate(samples):
            value = sample.key if self._name == KEY else self._value(sample)
            if isinstance(value, Fault):
                faults.setdefault(row, value)
            elif isinstance(value, Member):
                members[row] = value
            else:
                values[row] = value
        of_values = partial(typed_objects, self._name, self._column, list(values.values()), self._base)
        groups = [(list(members), partial(self._of_members, list(members.values()))), (list(values), of_values)]
        return in_groups(len(samples), arrow_type(self._column), groups, faults)

    def _value(self, sample: Sample) -> Any:
        """The member, or the value of the field, that the column is; None where the sample has neither."""
        for part in self._parts:
            member = sample.members.get(part.extension)
            if member is None:
                continue
            if part.field is None and self._column.type is ColumnType.IMAGE and self._file is not None:
                return member
            if member.data is None:
                return Fault("too_large", f"the member .{part.extension} is longer than 64 MiB", self._name)
            if part.field is None:
                return member
            value = self._field(sample, part.extension, part.field)
            if value is not None:
                return value
        return None

    def _field(self, sample: Sample, extension: str, name: str) -> Any:
        row = object_in(sample, extension)
        return replace(row, column=self._name) if isinstance(row, Fault) else python_field(row, name)

    def _of_members(self, members: list[Member], faults: Faults) -> pa.Array:
        if self._column.type is ColumnType.IMAGE:
            references = pa.array([self._reference(member) for member in members], pa.binary())
            return lists_of_one(references) if self._column.many else references
        cells = [(member.data or b"").decode("utf-8", "surrogateescape") for member in members]
        if self._column.type is not ColumnType.TEXT or self._column.many:
            cells = [cell.rstrip("\r\n") for cell in cells]
        return typed_values(self._name, self._column, strings(cells), self._base, faults, as_cells=True)

    def _reference(self, member: Member) -> bytes | None:
        if not member.size:
            return None
        return (
            to_piece(self._file, member.offset, member.size) if self._file is not None else inline(member.data or b"")
        )
