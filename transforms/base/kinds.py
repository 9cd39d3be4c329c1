"""The kinds of features by name, and their descriptions as a manifest has them."""

from collections.abc import Mapping
from importlib import import_module

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Description, Json

DESCRIPTIONS: Mapping[str, str] = {
    "image": "images.image_stored.ImageDescription", "image_sequence": "images.image_stored.ImageSequenceDescription",
    "mask": "images.image_stored.MaskDescription", "masks": "images.image_stored.MasksDescription",
    "boxes": "images.places_stored.BoxesDescription", "keypoints": "images.places_stored.KeypointsDescription",
    "text": "texts.text_stored.TextDescription", "texts": "texts.text_stored.TextsDescription",
    "pair": "texts.text_stored.PairDescription", "chat": "texts.text_stored.ChatDescription",
    "token_labels": "texts.text_stored.TokenLabelsDescription",
    "category": "values.values_stored.CategoryDescription", "categories": "values.values_stored.CategoriesDescription",
    "number": "values.values_stored.NumberDescription", "numbers": "values.values_stored.NumbersDescription",
    "array": "base.arrays.ArrayDescription", "raw": "values.values_stored.RawDescription",
    "own": "values.values_stored.OwnDescription",
}  # fmt: skip
"""The classes of kinds, loaded when a dataset has one."""


def read_description(description: Json) -> Description:
    """Reads a feature's description. Raises: DatasetError: an unknown kind; or as `Description.from_json`."""
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in DESCRIPTIONS:
        raise DatasetError(f"a feature has the kind {cut(repr(kind))}, unknown to this Recordmill: upgrade")
    return description_of(kind).from_json(description)


def description_of(kind: str) -> type[Description]:
    """Returns the class of a kind's descriptions."""
    module, _, name = DESCRIPTIONS[kind].rpartition(".")
    found: type[Description] = getattr(import_module(f"recordmill.transforms.{module}"), name)
    return found


def read_descriptions(features: Mapping[str, Json]) -> dict[str, Description]:
    """Reads descriptions by feature. Raises: DatasetError: as `read_description`, with the feature's name."""
    read: dict[str, Description] = {}
    for name, description in features.items():
        try:
            read[name] = read_description(description)
        except DatasetError as error:
            raise DatasetError(f"'{name}': {error}") from None
    return read
