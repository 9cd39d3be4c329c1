"""The parts of features as they lie in a record, by name, with their types; read by both engines of the reader.

>>> from recordmill.transforms.contract.kinds.number import NumberDescription
>>> price = NumberDescription(stored="float32", normalize="none", indicator=True)
>>> stored_features({"price": price})
{'price': Stored(dtype='float32', shape=()), 'price_missing': Stored(dtype='int64', shape=())}
"""

from collections.abc import Mapping

from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.base import Stored as Stored

KEY = "key"
"""The Example's feature that holds the row's key; no feature of the spec has this name."""

UNENCODED = "@pixels"
"""The end of the name by which the transform graph gives a feature's images before they are encoded as JPEG."""

IMAGES = ("image", "image_sequence")
"""The kinds whose column is images."""


def part_name(feature: str, part: str) -> str:
    """Returns the name of a part in a record: `caption` itself, `caption_length`; of `UNENCODED`, `photo@pixels`."""
    return f"{feature}_{part}" if part and part != UNENCODED else feature + part


def stored_features(features: Mapping[str, Description], *, with_key: bool = False) -> dict[str, Stored]:
    """Returns what the features store by the names in a record, and with `with_key` the row's key."""
    named = {
        part_name(name, part): stored
        for name, description in features.items()
        for part, stored in description.parts().items()
    }
    return {**named, KEY: Stored("bytes")} if with_key else named
