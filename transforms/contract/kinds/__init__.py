"""The kinds of features, one module each: what the build and both engines of the reader agree on."""

from collections.abc import Mapping

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.array import ArrayDescription
from recordmill.transforms.contract.kinds.base import Description, Json
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.chat import ChatDescription
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription
from recordmill.transforms.contract.kinds.keypoints import KeypointsDescription
from recordmill.transforms.contract.kinds.mask import MaskDescription
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.pair import PairDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription
from recordmill.transforms.contract.kinds.token_labels import TokenLabelsDescription

DESCRIPTIONS: Mapping[str, type[Description]] = {
    kind.kind: kind
    for kind in (
        ImageDescription,
        ImageSequenceDescription,
        MaskDescription,
        BoxesDescription,
        KeypointsDescription,
        TextDescription,
        TextsDescription,
        PairDescription,
        ChatDescription,
        TokenLabelsDescription,
        CategoryDescription,
        CategoriesDescription,
        NumberDescription,
        NumbersDescription,
        ArrayDescription,
        RawDescription,
        OwnDescription,
    )
}


def read_description(description: Json) -> Description:
    """Reads a feature's description. Raises: DatasetError: an unknown kind; or as `Description.from_json`."""
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in DESCRIPTIONS:
        raise DatasetError(f"a feature has the kind {cut(repr(kind))}, unknown to this Recordmill: upgrade")
    return DESCRIPTIONS[kind].from_json(description)


def read_descriptions(features: Mapping[str, Json]) -> dict[str, Description]:
    """Reads descriptions by feature. Raises: DatasetError: as `read_description`, with the feature's name."""
    read: dict[str, Description] = {}
    for name, description in features.items():
        try:
            read[name] = read_description(description)
        except DatasetError as error:
            raise DatasetError(f"'{name}': {error}") from None
    return read
