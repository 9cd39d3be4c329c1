"""The graphs of the kinds of features: one line each."""

from collections.abc import Mapping

from recordmill.transforms.tensorflow import boxes, category, image, lists, number, raw, text, texts
from recordmill.transforms.tensorflow.kind import Kind

KINDS: Mapping[str, Kind] = {
    "image": Kind(image.prepare, image.features),
    "image_sequence": Kind(lists.each(image.prepare), image.sequence_features),
    "boxes": Kind(boxes.prepare, boxes.features),
    "text": Kind(text.prepare, text.features),
    "texts": Kind(texts.prepare, texts.features),
    "category": Kind(category.prepare),
    "categories": Kind(lists.each(category.prepare), category.list_features),
    "number": Kind(number.prepare),
    "numbers": Kind(lists.each(number.prepare), lists.features),
    "raw": Kind(raw.prepare, raw.features),
    "own": Kind(raw.prepare_own, raw.own_features),
}
