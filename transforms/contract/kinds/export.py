"""The columns of an export: their values, and the features of the spec that store them again.

A value that cannot be undone, such as a hashed name, is exported as it is stored, and goes back as a feature of kind
raw: the rows' stored values are equal, their meaning is what it was. A note says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recordmill.pipeline.errors import UserError

Options = dict[str, Any]
"""A feature of the spec that reads the export."""


class ExportError(UserError):
    """A version cannot be exported so; the message says which of its features, and what can be done."""


def as_it_is(value: Any) -> Any:
    """Returns the value: the cell of a column that holds decoded values themselves."""
    return value


@dataclass(frozen=True)
class Column:
    """A column of an export."""

    name: str
    type: str
    """`image`, `string`, or the NumPy name of numbers; of the innermost values where `depth` is above 0."""
    feature: str
    """The feature whose value it holds."""
    cell: Callable[[Any], Any] = as_it_is
    """Makes the cell of a feature's decoded value; None where a row lacks it."""
    depth: int = 0
    """0 for a value a row, 1 for a list, 2 for lists in a list."""


class Export(Protocol):
    """The columns of a version as its features add them."""

    @property
    def label(self) -> str | None:
        """The feature that is the label."""

    @property
    def is_learned_elsewhere(self) -> bool:
        """Whether the statistics are not of the version's own rows, so that a build of these would learn others."""

    def vocabulary(self, feature: str) -> list[str]:
        """Returns a feature's words by id. Raises: DatasetError: the vocabulary is damaged."""

    def add(self, name: str, options: Options, *columns: Column) -> None:
        """Adds a feature of the spec with its columns."""

    def add_raw(self, name: str, column: Column) -> None:
        """Adds a feature of kind raw, which stores what its column holds."""

    def add_column(self, column: Column) -> None:
        """Adds a column that no feature reads."""

    def add_words(self, feature: str, words: Sequence[str]) -> str:
        """Adds a file of words, one a line; returns its path."""

    def read_as_stored(self, name: str, description: dict[str, Any]) -> None:
        """Reads a part of a record by a description of kind raw, in place of its feature's."""

    def note(self, name: str, sentence: str) -> None:
        """Adds a sentence on values that do not go back as they came."""
