"""A feature of adopted records as one of ours: its description, how records hold it, and a spec's words for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.adopt.facts import BYTES, FLOATS, INTS, FeatureFacts
from recordmill.transforms.contract.kinds.array import ArrayDescription
from recordmill.transforms.contract.kinds.base import Description, StoredAs
from recordmill.transforms.contract.kinds.image import (
    ImageDescription,
    ImageSequenceDescription,
    MaskDescription,
    PixelOptions,
)
from recordmill.transforms.contract.kinds.places import BoxesDescription
from recordmill.transforms.contract.kinds.values import (
    CategoriesDescription,
    CategoryDescription,
    OwnDescription,
    RawDescription,
)

READ = frozenset({"JPEG", "PNG", "WebP", "BMP"})  # the formats that the reader decodes
IMAGE = "image"


@dataclass(frozen=True)
class Held:
    """A feature of the records."""

    name: str
    kind: str  # `int64`, `float32`, `bytes` or `image`
    facts: FeatureFacts
    lacking: int  # the records without it, unless they get `default` or are left out
    default: tuple[str | float, ...] = ()  # as `StoredAs.default`

    @property
    def stored(self) -> str:
        """The type of its values."""
        return self.kind if self.kind in (INTS, FLOATS) else BYTES

    @property
    def length(self) -> int | None:
        """The number of values of every record; None if it varies."""
        return self.facts.most if self.facts.fewest == self.facts.most and not self.lacking else None

    @property
    def pixel(self) -> str | None:
        """The type of a pixel of grey PNGs, possibly masks; None: other files."""
        facts = self.facts
        deep = "uint16" if facts.losses == {"16 bits": facts.values} else None
        return (deep if facts.losses else "uint8") if facts.is_grey and facts.formats.keys() == {"PNG"} else None

    def parts(self, *, optional: bool = False, **more: StoredAs) -> dict[str, StoredAs]:
        """Returns how records hold the value, and whether it is missing if it is optional."""
        missing = {"missing": StoredAs((self.name,), self.stored, is_missing=True)} if optional else {}
        value = StoredAs((self.name,), self.stored, optional or bool(self.default), default=self.default)
        return {"": value, **missing, **more}


@dataclass(frozen=True)
class Read:
    """A feature as adopted records are read."""

    description: Description
    spec: Mapping[str, Any]  # the spec's words, without the column
    columns: tuple[str, ...]  # the records' features
    words: Sequence[str] | None = None  # the names of classes by id


def image(held: Held, *, is_list: bool = False, of: str | None = None, ignore: int | None = None) -> Read:
    """Reads image files; masks `of` an image, padded with `ignore`."""
    facts, optional = held.facts, held.lacking > 0 and not is_list
    low_height, height, low_width, width = facts.sides
    sides = (height if low_height == height else None, width if low_width == width else None)
    channels = 1 if facts.is_grey else 3
    is_plain = facts.formats.keys() <= {"JPEG", "PNG"} and "alpha" not in facts.losses
    pixels: dict[str, Any] = {
        "stored": BYTES, "encoding": "auto" if is_plain else "original", "shape": (*sides, channels), "dtype": "uint8",
        "offset": (0.0,) * channels, "scale": (1.0,) * channels,
        "options": None if is_plain else PixelOptions(channels=channels),
    }  # fmt: skip
    orientation = {} if is_plain else {"orientation": StoredAs((), INTS)}
    if is_list:
        lists: dict[str, Any] = {"length": held.length or "varying", "max_length": None}
        listed = ImageSequenceDescription(**pixels, **lists, stored_as=held.parts())
        return Read(listed, {"kind": "image_sequence"}, (held.name,))
    one: dict[str, Any] = {"optional": optional, "stored_as": held.parts(optional=optional, **orientation)}
    if of is not None:
        pixels |= {"encoding": "png", "options": None, "dtype": held.pixel, "pixel": held.pixel}
        masked = MaskDescription(**pixels, **one, image=of, ignore=ignore)
        return Read(masked, {"kind": "mask", "image": of, "ignore": ignore} | _optional(optional), (held.name,))
    return Read(ImageDescription(**pixels, **one), {"kind": IMAGE} | _optional(optional), (held.name,))


def pixels(held: Held, shape: tuple[int, int, int]) -> Read:
    """Reads the bytes of pixels, uint8, of one shape."""
    channels = shape[2]
    given: dict[str, Any] = {"offset": (0.0,) * channels, "scale": (1.0,) * channels}
    made = ImageDescription(stored=BYTES, encoding="raw", shape=shape, dtype="uint8", **given, stored_as=held.parts())
    return Read(made, {"kind": IMAGE, "shape": list(shape)}, (held.name,))


def boxes(columns: Sequence[str], of: str) -> Read:
    """Reads boxes of an image: one list of four numbers a box, or four lists: y_min, x_min, y_max, x_max."""
    as_held = {"": StoredAs(tuple(columns), FLOATS)}
    made = BoxesDescription(stored=FLOATS, image=of, length="varying", max_length=None, stored_as=as_held)
    return Read(made, {"kind": "boxes", "image": of, "order": "tensorflow", "unit": "relative"}, tuple(columns))


def category(held: Held, name: str, words: Sequence[str], *, is_list: bool = False) -> Read:
    """Reads ids of classes."""
    ids: dict[str, Any] = {"vocabulary": f"vocabularies/{name}.vocabulary.txt", "vocabulary_size": len(words)}
    spec = {"kind": "categories" if is_list else "category", "classes": list(words)}
    if is_list:
        lists: dict[str, Any] = {"stored": INTS, "length": held.length or "varying", "max_length": None}
        listed = CategoriesDescription(**ids, **lists, padding_id=-1, read="ids", stored_as=held.parts())
        return Read(listed, spec, (held.name,), words)
    return Read(CategoryDescription(**ids, stored_as=held.parts()), spec, (held.name,), words)


def raw(held: Held, *, many: bool, length: int | None = None) -> Read:
    """Reads values unchanged: one a record, or a list."""
    optional = held.lacking > 0 and not many
    size: int | str | None = (length or "varying") if many else None
    made = RawDescription(stored=held.stored, length=size, optional=optional, stored_as=held.parts(optional=optional))
    spec = {"kind": "raw", "type": held.stored} | ({"many": True} if many else {}) | _optional(optional)
    return Read(made, spec | ({"length": length} if many and length else {}), (held.name,))


def tensor(held: Held, shape: tuple[int, ...]) -> Read:
    """Reads a list of one length as a tensor."""
    made = OwnDescription(stored=held.stored, shape=shape, stored_as=held.parts())
    return Read(made, {"kind": "raw", "type": held.stored, "shape": list(shape)}, (held.name,))


def array(held: Held, dtype: str, shape: tuple[int | None, ...]) -> Read:
    """Reads the bytes of an array, little-endian and in C order."""
    optional = held.lacking > 0
    made = ArrayDescription(dtype=dtype, shape=shape, optional=optional, stored_as=held.parts(optional=optional))
    spec = {"kind": "array", "dtype": dtype, "shape": list(shape)} | _optional(optional)
    return Read(made, spec, (held.name,))


def _optional(optional: bool) -> dict[str, Any]:
    return {"optional": True} if optional else {}
