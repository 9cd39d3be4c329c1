"""The kinds of features, one module each: what the build and both engines of the reader agree on."""

from collections.abc import Mapping
from importlib import import_module

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.base import Description, Json

DESCRIPTIONS: Mapping[str, str] = {
    "image": "image.ImageDescription",
    "image_sequence": "image.ImageSequenceDescription",
    "mask": "mask.MaskDescription",
    "masks": "mask.MasksDescription",
    "boxes": "boxes.BoxesDescription",
    "keypoints": "keypoints.KeypointsDescription",
    "text": "text.TextDescription",
    "texts": "text.TextsDescription",
    "pair": "pair.PairDescription",
    "chat": "chat.ChatDescription",
    "token_labels": "token_labels.TokenLabelsDescription",
    "category": "category.CategoryDescription",
    "categories": "category.CategoriesDescription",
    "number": "number.NumberDescription",
    "numbers": "number.NumbersDescription",
    "array": "array.ArrayDescription",
    "raw": "raw.RawDescription",
    "own": "raw.OwnDescription",
}
"""The classes of kinds, loaded when a dataset has one."""


def read_description(description: Json) -> Description:
    """Reads a feature's description. Raises: DatasetError: an unknown kind; or as `Description.from_json`."""
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in DESCRIPTIONS:
        raise DatasetError(f"a feature has the kind {cut(repr(kind))}, unknown to this Recordmill: upgrade")
    return description_of(kind).from_json(description)


def description_of(kind: str) -> type[Description]:
    """Returns the class of a kind's descriptions."""
    module, name = DESCRIPTIONS[kind].split(".")
    found: type[Description] = getattr(import_module(f"{__name__}.{module}"), name)
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
