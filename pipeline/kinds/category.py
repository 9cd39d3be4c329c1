"""Categories: one name a row, stored as its id."""

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pipeline.columns import ColumnType
from pipeline.kinds.base import Description, Feature


def _one_line(name: str) -> str:
    if not name.strip() or "\n" in name or "\r" in name:
        raise ValueError(f"a class is one line and not blank, got {name!r:.80}")
    return name


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise ValueError(f"the class {name!r:.80} stands here {times} times")
    return names


Classes = Annotated[
    tuple[Annotated[str, AfterValidator(_one_line)], ...], Field(min_length=1), AfterValidator(_distinct)
]


class Category(Feature):
    """A name as an id: for the label 0 to n-1 in the order of the classes; for any other feature 0 is unknown."""

    kind: Literal["category"]
    classes: Classes | None = None
    """The names in the order of their ids; where none are given, those of the data, the most frequent first: of all
    splits for the label, of the train split for any other feature."""

    @property
    def analyzed(self) -> bool:
        """The analysis counts the names, unless they are given."""
        return self.classes is None

    def column_type(self) -> ColumnType:
        """A name."""
        return ColumnType.CATEGORY

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Where the names lie, and the ids."""
        is_label = statistics["is_label"]
        first = 0 if is_label else 1
        return {
            "kind": self.kind,
            "stored": "int64",
            "vocabulary": statistics["vocabulary"],
            "vocabulary_size": statistics["words"] + first,
            "unknown_id": None if is_label else 0,
            "first_id": first,
        }

    def tfds(self, description: Description) -> dict[str, Any]:
        """A class label; the unknown id has a name of its own."""
        return {
            "pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(description["vocabulary_size"])},
        }
