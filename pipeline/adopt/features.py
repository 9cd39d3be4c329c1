"""Features of adopted records as ours: a spec's words, stated or guessed, checked against what all records hold."""

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.adopt.files import AdoptError
from recordmill.pipeline.adopt.scanned import BYTES, FLOATS, INTS, FeatureFacts
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.arrays import DTYPES, ArrayDescription, ArrayLayout
from recordmill.transforms.base.description import Description, StoredAs
from recordmill.transforms.images import image_stored as images
from recordmill.transforms.images.places_stored import BoxesDescription
from recordmill.transforms.values import values_stored as values

READ = frozenset({"JPEG", "PNG", "WebP", "BMP"})  # the formats that the reader decodes
IMAGE = "image"
FORMS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("column", "classes_file", "type", "dtype", "image"), (str,)),
    **dict.fromkeys(("columns", "classes", "shape"), (list, tuple)),
    **dict.fromkeys(("length", "ignore"), (int,)),
    "many": (bool,),
}
FIXED = {"order": "tensorflow", "unit": "relative"}  # options of boxes with the one value that records are read by


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
    def counts(self) -> str:
        """The numbers of values of a record, in words."""
        fewest = 0 if self.lacking else self.facts.fewest
        return f"{self.facts.most} values" if fewest == self.facts.most else f"{fewest} to {self.facts.most} values"

    @property
    def range(self) -> str:
        """The smallest and the largest number, or number of bytes, in words."""
        low, high = self.facts.low, self.facts.high
        return "none" if low is None or high is None else f"{low:g} to {high:g}"

    @property
    def pixel(self) -> str | None:
        """The type of a pixel of grey PNGs, possibly masks; None: other files."""
        facts = self.facts
        deep = "uint16" if facts.losses == {"16 bits": facts.values} else None
        return (deep if facts.losses else "uint8") if facts.is_grey and facts.formats.keys() == {"PNG"} else None

    def fields(self, *, may_lack: bool = False, **more: StoredAs) -> dict[str, Any]:
        """Returns a description's fields about how records hold the value, and whether it may be missing."""
        optional = may_lack and self.lacking > 0
        missing = {"missing": StoredAs((self.name,), self.stored, is_missing=True)} if optional else {}
        value = StoredAs((self.name,), self.stored, optional or bool(self.default), default=self.default)
        return {"stored_as": {"": value, **missing, **more}} | ({"optional": optional} if may_lack else {})

    @property
    def list_fields(self) -> dict[str, Any]:
        """A description's fields of a list."""
        return {"length": self.length or "varying", "max_length": None, **self.fields()}


@dataclass(frozen=True)
class Read:
    """A feature as adopted records are read."""

    description: Description
    spec: Mapping[str, Any]  # the spec's words, without the column
    columns: tuple[str, ...]  # the records' features
    words: Sequence[str] | None = None  # the names of classes by id


@dataclass(frozen=True)
class Wanted:
    """A feature in a spec's words."""

    name: str
    words: Mapping[str, Any]
    held: Mapping[str, Held]  # the records' features
    known: Container[str]  # our features so far
    present: Callable[[str, Any], Held]  # `Guesser.present`
    label: str | None

    def read(self) -> Read:
        """Returns how the feature is read. Raises: AdoptError: its words are wrong, or do not fit the records."""
        kind = self.words["kind"]
        options, make = KINDS[kind]
        known = ("kind", "column", "columns", "optional", *options)
        for option in self.words.keys() - {*known}:
            knows = f"{did_you_mean(str(option), known)}; of {kind} adoption knows {listed(known)}"
            raise self._error(f"has the unknown option '{cut(str(option))}'{knows}")
        for option, forms in FORMS.items():
            if self.words.get(option) is not None and not isinstance(self.words[option], forms):
                raise self._error(f"has `{option}: {cut(repr(self.words[option]))}`, wanted a {forms[0].__name__}")
        if not all(side is None or (isinstance(side, int) and side > 0) for side in self.words.get("shape") or ()):
            raise self._error(f"has `shape: {cut(repr(self.words['shape']))}`, wanted whole numbers from 1 on")
        if "image" in options and self.words.get("image") not in self.known:
            raise self._error(f"needs `image`, an image stated before it, got {cut(repr(self.words.get('image')))}")
        columns = (self.words.get("columns") if kind == "boxes" else None) or [self.words.get("column", self.name)]
        for column in (column for column in columns if column not in self.held):
            near = did_you_mean(column, self.held)
            raise self._error(f"reads '{cut(column)}', which no record holds{near}; they hold: {listed(self.held)}")
        default = self.words.get("default")
        is_needed = self.name == self.label or default is not None
        held = [self.present(column, default) if is_needed else self.held[column] for column in columns]
        if kind in ("image", "mask", "array") and held[0].facts.most > 1:
            raise self._error(f"states one value a record, the records hold {held[0].counts}: `kind: raw` reads them")
        description = make(self, *held)
        words = {**FIXED, "dtype": FLOATS, **self.words, "type": held[0].stored}
        kept = (each for each in ("kind", *options) if each not in ("default", "classes_file"))
        spec = {each: words[each] for each in kept if words.get(each)}
        spec |= {"shape": list(spec["shape"])} if "shape" in spec else {}
        spec |= {"classes": list(map(str, spec["classes"]))} if "classes" in spec else {}
        spec |= {"ignore": self.words.get("ignore")} if kind == "mask" else {}
        spec |= {"optional": True} if getattr(description, "optional", False) else {}
        return Read(description, spec, tuple(each.name for each in held), spec.get("classes"))

    def _error(self, what: str) -> AdoptError:
        return AdoptError(f"'{self.name}' {what}")

    def _image(self, held: Held) -> Description:
        """Image files, or the bytes of pixels, uint8, of one shape."""
        shape, facts, is_list = self.words.get("shape"), held.facts, self.words["kind"] == "image_sequence"
        if shape is not None:
            if len(shape) != 3 or None in shape or shape[2] not in (1, 3):
                raise self._error(f"has `shape: {cut(repr(shape))}`, wanted height, width, and 1 or 3 channels")
            self._check_bytes(held, ArrayLayout("uint8", tuple(shape)))
            if held.lacking:
                raise self._error(f"has no pixels in {held.lacking:,} records: `kind: raw` reads them")
            scale: dict[str, Any] = {"offset": (0.0,) * shape[2], "scale": (1.0,) * shape[2], **held.fields()}
            return images.ImageDescription(stored=BYTES, encoding="raw", shape=tuple(shape), dtype="uint8", **scale)
        if self.words["kind"] == "mask" and (held.kind != IMAGE or held.pixel is None):
            raise self._error("needs PNGs of one channel, all of 8 or all of 16 bits: a build reads others")
        if held.kind != IMAGE:
            raise self._error(f"is stated as images, the records hold {held.kind}: give `shape` for bytes of pixels")
        if is_list and facts.sides[::2] != facts.sides[1::2]:
            have = "{} to {} x {} to {} pixels".format(*facts.sides)
            raise self._error(f"needs images of one size, they have {have}: `kind: raw` with `many: true`")
        low_height, height, low_width, width = facts.sides
        sides = (height if low_height == height else None, width if low_width == width else None)
        channels, is_plain = 1 if facts.is_grey else 3, facts.formats.keys() <= {"JPEG", "PNG"}
        is_plain &= "alpha" not in facts.losses
        pixels: dict[str, Any] = {
            "stored": BYTES, "encoding": "auto" if is_plain else "original", "shape": (*sides, channels),
            "dtype": "uint8", "offset": (0.0,) * channels, "scale": (1.0,) * channels,
            "options": None if is_plain else images.PixelOptions(channels=channels),
        }  # fmt: skip
        if is_list:
            return images.ImageSequenceDescription(**pixels, **held.list_fields)
        if self.words["kind"] == "mask":
            pixels |= {"encoding": "png", "dtype": held.pixel, "pixel": held.pixel, **held.fields(may_lack=True)}
            return images.MaskDescription(**pixels, image=self.words["image"], ignore=self.words.get("ignore"))
        orientation = {} if is_plain else {"orientation": StoredAs((), INTS)}
        return images.ImageDescription(**pixels, **held.fields(may_lack=True, **orientation))

    def _array(self, held: Held) -> Description:
        """The bytes of an array, little-endian and in C order."""
        dtype, shape = self.words.get("dtype", FLOATS), tuple(self.words.get("shape") or ())
        if dtype not in DTYPES or not shape or None in shape[1:]:
            wanted = f"a `dtype` of {listed(DTYPES)}, and all sides of the `shape` but the first"
            raise self._error(f"is an array of {cut(repr(dtype))}, {cut(repr(shape))}: name {wanted}")
        self._check_bytes(held, ArrayLayout(dtype, shape))
        return ArrayDescription(dtype=dtype, shape=shape, **held.fields(may_lack=True))

    def _check_bytes(self, held: Held, layout: ArrayLayout) -> None:
        ends = int(held.facts.low or 0), int(held.facts.high or 0)
        if held.stored != BYTES or any(map(layout.fault, ends)):
            found = f"{held.range} bytes" if held.stored == BYTES else held.stored
            raise self._error(f"states {layout}, {layout.unit} bytes, the records hold {found}: `kind: raw` reads any")

    def _raw(self, held: Held) -> Description:
        """Unchanged values: one a record, a list, or a list of one length as a tensor."""
        wanted, many, length, shape = (self.words.get(option) for option in ("type", "many", "length", "shape"))
        if wanted not in (None, held.stored):
            raise self._error(f"is stated as {cut(str(wanted))}, the records hold {held.stored}")
        size = math.prod(shape) if shape is not None else length
        if size is not None and held.length != size:
            raise self._error(f"states {size} values a record, they hold {held.counts}: `many: true` takes any")
        if shape is not None:
            return values.OwnDescription(stored=held.stored, shape=tuple(shape), **held.fields())
        if not many and held.facts.most > 1:
            raise self._error(f"states one value a record, the records hold {held.counts}: add `many: true`")
        if many:
            return values.RawDescription(stored=held.stored, length=length or "varying", **held.fields())
        return values.RawDescription(stored=held.stored, length=None, **held.fields(may_lack=True))

    def _category(self, held: Held) -> Description:
        """Ids of classes: one a record, or a list."""
        facts, words, is_list = held.facts, self.words.get("classes"), self.words["kind"] == "categories"
        if held.kind != INTS or ((facts.most > 1 or held.lacking) and not is_list):
            what = f"{held.kind}, {held.counts} a record, {held.lacking:,} records without"
            raise self._error(f"is stated as one class a record, they hold {what}: take `kind: raw` or `categories`")
        if not isinstance(words, list) or not words or not 0 <= (facts.low or 0) <= (facts.high or 0) < len(words):
            names = len(words) if isinstance(words, list) else 0
            raise self._error(f"has {names} `classes`, the records hold the ids {held.range}: name all, from id 0 on")
        if twice := [word for word, times in Counter(map(str, words)).items() if times > 1]:
            raise self._error(f"has the class {cut(repr(twice[0]))} twice: give each id a name of its own")
        ids: dict[str, Any] = {"vocabulary": f"vocabularies/{self.name}.vocabulary.txt", "vocabulary_size": len(words)}
        if is_list:
            return values.CategoriesDescription(stored=INTS, **ids, **held.list_fields, padding_id=-1, read="ids")
        return values.CategoryDescription(**ids, **held.fields())

    def _boxes(self, *held: Held) -> Description:
        """Boxes of an image: one list of four numbers a box, or four lists: y_min, x_min, y_max, x_max."""
        for option, only in FIXED.items():
            if self.words.get(option, only) != only:
                stated = f"`{option}: {cut(str(self.words[option]))}`"
                raise self._error(f"has {stated}, here it is `{option}: {only}`: a build reads others")
        are_floats, lengths = all(each.kind == FLOATS for each in held), {each.facts.lengths for each in held}
        if len(held) not in (1, 4) or not are_floats or len(lengths) > 1:
            four = "four float32 lists of one length: y_min, x_min, y_max, x_max"
            raise self._error(f"needs one list of four numbers a box, or {four}")
        as_held = {"": StoredAs(tuple(each.name for each in held), FLOATS)}
        of = self.words["image"]
        return BoxesDescription(stored=FLOATS, image=of, length="varying", max_length=None, stored_as=as_held)


KINDS: Mapping[str, tuple[Sequence[str], Callable[..., Description]]] = {
    "image": (("shape",), Wanted._image),
    "image_sequence": ((), Wanted._image),
    "mask": (("image", "ignore"), Wanted._image),
    "boxes": (("image", "order", "unit"), Wanted._boxes),
    "category": (("classes", "classes_file"), Wanted._category),
    "categories": (("classes", "classes_file"), Wanted._category),
    "raw": (("type", "many", "length", "shape", "default"), Wanted._raw),
    "array": (("dtype", "shape"), Wanted._array),
}
"""The kinds that adoption reads, each with its options besides `kind`, `column`, `columns` and `optional`."""
