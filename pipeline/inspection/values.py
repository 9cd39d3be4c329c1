"""The values of records as plain Python: names instead of ids, texts, numbers in their own units.

>>> Decoder(dataset).decode(columns, 0)  # doctest: +SKIP
{'image': StoredImage(PNG, 32x32, 2,311 bytes), 'label': 'cat', 'price': 12.5, 'caption': DecodedText(…)}
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.pipeline.inspection.images import StoredImage
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Decoding, Description
from recordmill.transforms.contract.ragged import Column, Ragged
from recordmill.transforms.contract.stored import part_name

Value: TypeAlias = Any
"""`str` of a category (`int` where ids are hashes), `float`, `Bucket`, `DecodedText`, `StoredImage`, `Box`,
`bytes`, `int`, a list of these, or None where the row lacks the value."""


class Decoder:
    """Decodes the rows of parsed columns."""

    def __init__(self, dataset: DatasetVersion, features: Sequence[str] | None = None) -> None:
        """Takes the dataset, and the features to decode; None: all.

        Raises:
            DatasetError: a feature or its kind is unknown, or a vocabulary's file is damaged.
        """
        wanted = {name: dataset.manifest.feature(name) for name in features or dataset.features}
        self.descriptions = read_descriptions(wanted)
        statistics = dataset.manifest.statistics
        self._decoding = {
            name: Decoding(_vocabulary(dataset, name, description), statistics.get(name, {}), StoredImage)
            for name, description in self.descriptions.items()
        }

    def decode(self, columns: Mapping[str, Column], row: int) -> dict[str, Value]:
        """Returns a row's values by feature, of columns as `parse` gives them."""
        values = {}
        for name, description in self.descriptions.items():
            parts = {part: _cell(columns[part_name(name, part)], row) for part in description.parts()}
            values[name] = description.value(parts, self._decoding[name])
        return values


def _vocabulary(dataset: DatasetVersion, name: str, description: Description) -> list[str] | None:
    if not isinstance(description, Ids) or description.hash_buckets is not None:
        return None
    has_words = description.vocabulary is not None or getattr(description, "tokenizer", "") == "bytes"
    return dataset.vocabulary(name) if has_words else None


def _cell(column: Column, row: int) -> Any:
    if isinstance(column, Ragged):
        return column.values[int(column.splits[row]) : int(column.splits[row + 1])]
    return column[row]
