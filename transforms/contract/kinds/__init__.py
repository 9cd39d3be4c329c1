"""The kinds of features, a module for those alike: what the build and both engines of the reader agree on."""

from collections.abc import Mapping
from importlib import import_module

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.base import Description, Json

DESCRIPTIONS: Mapping[str, str] = {
    "image": "image.ImageDescription", "image_sequence": "image.ImageSequenceDescription",
    "mask": "image.MaskDescription", "masks": "image.MasksDescription",
    "boxes": "places.BoxesDescription", "keypoints": "places.KeypointsDescription",
    "text": "text.TextDescription", "texts": "text.TextsDescription", "pair": "text.PairDescription",
    "chat": "text.ChatDescription", "token_labels": "text.TokenLabelsDescription",
    "category": "values.CategoryDescription", "categories": "values.CategoriesDescription",
    "number": "values.NumberDescription", "numbers": "values.NumbersDescription",
    "array": "array.ArrayDescription", "raw": "values.RawDescription", "own": "values.OwnDescription",
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
