"""Masks as they are stored: each pixel's value of a file, or of drawn shapes, at the place of its image.

Without `colors`, a palette's pixels are its indices, and grey ones of 1 to 8 bits their values, never scaled. Formats
that blur edges, such as JPEG, are refused. The graph passes masks on: to scale them takes it five times as long.

`pycocotools`, COCO's own code, draws a row's shapes, a list of objects: `name`; `polygons`, lists of x and y in pixels,
or with `unit: relative` as shares of the sides; `rle`, COCO's run lengths, compressed or not, or `runs`, a text of
those; `crowd`, 1 for a group. An object without a shape keeps its number.

>>> values(png(np.array([[0, 15]], np.uint8), []), 9, None).tolist()
[[0, 15]]
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.pipeline.build.images.deep_files import npy, png
from recordmill.pipeline.build.images.transcode import naming_damage, open_image
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base import bounds
from recordmill.transforms.base.arrays import MAGIC
from recordmill.transforms.images.decode import upright
from recordmill.transforms.images.image_facts import BITS, KIND, PHOTOMETRIC, has_pages
from recordmill.transforms.images.image_header import NAMED, PNG, ImageError, check_header, check_pixels, read_header
from recordmill.transforms.images.image_rules import TAG, is_transposed
from recordmill.transforms.images.image_stored import levels_of
from recordmill.transforms.images.mask_spec import Mask, Masks
from recordmill.transforms.images.pixels import resize
from recordmill.transforms.images.shapes import Ints, ShapeError, counts_of_runs, polygons_of, read_runs, run_lengths

AnyMask: TypeAlias = Mask | Masks
Values: TypeAlias = npt.NDArray[np.uint8 | np.uint16]
Corners: TypeAlias = npt.NDArray[np.float64]  # x and y, [corners, 2]
Colors: TypeAlias = Sequence[tuple[tuple[int, int, int], int]]
EXACT = ("PNG", "TIFF", "BMP", "GIF")  # formats that keep values
BLURRED = ("jpeg", "tiff_jpeg", "webp")  # TIFF's compressions that do not
OPAQUE = 255
SPARSE = 8  # pixels between those that mostly tell
SHOWN = 3
MARGIN = 2  # sides around the image where corners may be
PAINTED, OUTLINED = 32, 8  # pixels painted in the time of one decoded; pixels decoded in that of one of an outline


def drawn(shapes: bytes, options: AnyMask, height: int, width: int, first: int = 1) -> tuple[Values, int]:
    """Draws a row's shapes, JSON, in order. `first` numbers the first.

    Returns: [height, width], 0 where no shape is; and the work, as pixels of an image that take as long to decode.
    Raises: ImageError: `malformed_row`: not shapes, or not of this size; `unknown_class`: a name without a value, or a
    crowd without the value `ignore`; `too_large`: too many objects for numbers; others as `bounds`: too much work.
    """
    if options.runs == "rows":  # the columns of the turned image
        values, work = drawn(shapes, options.model_copy(update={"runs": "columns"}), width, height, first)
        return values.T, work
    canvas = np.zeros(height * width, options.pixel)  # down its columns, as run lengths are counted
    painted, points, outlines, known = canvas.size, 0, 0, {name: value for value, name in options.named}
    try:
        objects = json.loads(shapes, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if v is not None})
    except (ValueError, RecursionError):
        raise ImageError("malformed_row", "the shapes are no JSON, or too deep") from None
    bounds.OBJECTS.check(len(objects))
    for number, shape in enumerate(objects, first):
        try:
            polygons = _polygons(shape, (width, height))
            points += sum(each.size for each in polygons)
            sides = (np.diff(each, axis=0, append=each[:1]) for each in polygons)
            outlines += sum(int(np.abs(each).max(1).sum()) for each in sides)  # pixels
            bounds.POINTS.check(points)
            bounds.OUTLINES.check(outlines)
            runs = _runs(shape, polygons, height, width)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            why = str(error) if isinstance(error, ShapeError) else "wanted `polygons`, `rle` or `runs` of whole numbers"
            raise ImageError("malformed_row", f"object {number} is no shape: {cut(why)}") from None
        value = _value(shape, number, known, options) if runs else 0
        for counts in runs:
            painted += int(counts[1::2].sum())
            bounds.ROW_PIXELS.check(painted // PAINTED)
            ends = counts.cumsum().tolist()
            for start, end in zip(ends[::2], ends[1::2], strict=False):
                canvas[start:end] = value
    return canvas.reshape(width, height).T, painted // PAINTED + OUTLINED * outlines


def _value(shape: Mapping[str, Any], number: int, known: Mapping[str, int], options: AnyMask) -> int:
    if isinstance(options, Masks):
        return 1
    name = str(shape.get("name", options.only_class))
    if shape.get("crowd") and options.crowd == "ignore":
        if options.ignore is None:
            what = f"object {number} is a crowd of {cut(repr(name))}"
            raise ImageError("unknown_class", f"{what}: give the value `ignore`, or `crowd: draw`")
        return options.ignore
    if options.draw == "instances":
        levels = levels_of(options.pixel)
        if number >= levels or number == options.ignore:
            most, more = options.ignore or levels, " of `dtype: uint8`" if options.pixel == "uint8" else ""
            raise ImageError("too_large", f"object {number} is one too many: numbers{more} are below {most}")
        return number
    if name not in known:
        raise ImageError("unknown_class", f"object {number} is of {cut(repr(name))}, which is not among `classes`")
    if not known[name]:
        what = f"object {number} is of {cut(repr(name))}, whose value 0 is where no object is"
        raise ImageError("unknown_class", f"{what}: begin `classes` with `background`")
    return known[name]


def _runs(shape: Mapping[str, Any], polygons: Sequence[Corners], height: int, width: int) -> list[Ints]:
    """Returns the run lengths of an object's parts, or of its polygons. Raises: ValueError and others."""
    if (runs := shape.get("runs")) is not None:
        return [counts_of_runs(runs, height * width)]
    if (rle := shape.get("rle")) is not None:
        size, counts = read_runs(rle)
        if size != (height, width):
            raise ShapeError(f"its size is {rle['size']}, of an image of {[height, width]}")
        return [counts]
    if not polygons:
        return []
    try:
        from pycocotools import mask
    except ImportError:
        raise UserError('the package pycocotools is missing: pip install "recordmill[masks]"') from None
    drawn = mask.frPyObjects([each.ravel() for each in polygons], height, width)
    return [run_lengths(each["counts"].decode()) for each in drawn]


def _polygons(shape: Mapping[str, Any], sides: tuple[int, int]) -> list[Corners]:
    """Returns an object's polygons in pixels, none of run lengths. Raises: ValueError: far outside the image."""
    given = {} if {"runs", "rle"} & shape.keys() else shape
    scale = sides if shape.get("unit") == "relative" else 1
    polygons = [np.array(each).reshape(-1, 2) * scale for each in polygons_of(given.get("polygons", []))]
    for points in polygons:
        far = points[(points < -MARGIN * np.array(sides)) | (points > (1 + MARGIN) * np.array(sides))]
        if len(far):
            raise ShapeError(f"the point {far[0]} is far outside the image of {sides[0]} x {sides[1]}")
    return polygons


class Frame(NamedTuple):
    """The sides of a mask in pixels, and the EXIF orientation that makes it upright."""

    height: int
    width: int
    turn: int

    @classmethod
    def of(cls, image: bytes, turn: int, oriented: str) -> "Frame":
        """Returns the frame of masks of an image, by its bytes for the graph and their orientation."""
        header = read_header(image)
        if oriented == "file":
            return cls(header.height, header.width, turn)
        sides = (header.width, header.height) if is_transposed(turn) else (header.height, header.width)
        return cls(*sides, 1)


def framed_values(data: bytes, options: AnyMask, frame: Frame, number: int = 1) -> tuple[Values, int]:
    """Returns the values of a mask's file, or of JSON shapes, of the row's object `number` and further ones; the work.

    Raises: ImageError: `unequal_sides`: another size than the frame; `unknown_class`; others as `values` and `drawn`.
    """
    if options.draw is not None:
        return drawn(data, options, frame.height, frame.width, number)
    found = file_values(data, options)
    if options.resize and found.shape != frame[:2]:
        sides = zip(frame[:2], found.shape, strict=True)
        return found[np.ix_(*((2 * np.arange(side) + 1) * of // (2 * side) for side, of in sides))], found.size
    if found.shape != frame[:2]:
        has, wanted = (f"{width} x {height}" for height, width in (found.shape, frame[:2]))
        turned = "; if EXIF turns the image, `oriented: file` turns the mask with it" * (found.shape == frame[1::-1])
        what = f"the mask has {has} pixels, its image '{options.image}' {wanted}"
        raise ImageError("unequal_sides", f"{what}{turned or '; `resize: nearest` scales it'}")
    return found, found.size


def stored_mask(found: Values, options: AnyMask, turn: int) -> bytes:
    """Makes a mask's stored bytes of its values: upright, of its image's size, as grey PNG or raw pixels."""
    pixels = resize(upright(found[..., np.newaxis], turn), options.pixel_options)[..., 0]
    if options.store == "raw":
        return pixels.astype(pixels.dtype.newbyteorder("<"), copy=False).tobytes()
    return png(pixels, [], 6, zlib.Z_RLE)  # a third of the time of searching for more than runs, and few more bytes


def is_unlearned(found: Values, options: AnyMask) -> bool:
    """Whether a file has ignored pixels and else only zeros, as if an object's value were given as `ignore`."""
    if options.ignore is None or options.draw is not None:
        return False
    for pixels in (found[::SPARSE, ::SPARSE], found):
        is_ignored = pixels == options.ignore
        if not (is_ignored | (pixels == 0)).all():
            return False
    return bool(is_ignored.any())


def file_values(data: bytes, options: AnyMask) -> Values:
    """Returns the checked value of each pixel of a file; of an object, 1. Raises: ImageError: as `framed_values`."""
    if isinstance(options, Masks):
        found = values(data, options.max_pixels, None, "uint16")
        known = np.unique(found[found > 0])
        if len(known) > 1:
            more = f" and {len(known) - SHOWN} more" * (len(known) > SHOWN)
            shown = ", ".join(map(str, known[:SHOWN])) + more
            raise ImageError("unknown_class", f"the values {shown}: a mask of one object has 0 and one other")
        return (found > 0).astype(np.uint8)
    found = values(data, options.max_pixels, options.value_colors, options.pixel)
    if not options.named:
        return found
    good = [value for value, _ in options.named] + ([] if options.ignore is None else [options.ignore])
    left = found
    if options.pixel == "uint8":  # `bincount` of all pixels takes five times as long
        left = np.frombuffer(found.tobytes().translate(None, bytes(good)), np.uint8)
    counts = np.bincount(left.ravel(), minlength=levels_of(options.pixel))
    counts[good] = 0
    if wrong := np.flatnonzero(counts).tolist():
        shown = ", ".join(f"{value} in {counts[value]:,}" for value in wrong[:SHOWN])
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ImageError("unknown_class", f"values by pixels: {shown}{more}, neither among `classes` nor `ignore`")
    return found


def values(data: bytes, max_pixels: int, colors: Colors | None, pixel: str = "uint8") -> Values:
    """Returns the value of each pixel of a file, [height, width] of the type `pixel`, or by the colours of classes.

    Raises: ImageError: `unsupported_format`: not an exact format, or transparent; `unknown_class`: a colour or a value
    beyond the type; others as `transcode.decodable`.
    """
    with naming_damage("mask"):
        if not data.startswith(MAGIC):
            return _of_image(data, max_pixels, colors, pixel)
        found = npy(data, "float64")
        found = found[..., 0] if found.shape[2:] == (1,) else found
        if found.ndim != 2:
            raise ImageError("unsupported_format", f"the array has the shape {list(found.shape)}: save [height, width]")
        height, width = found.shape
        check_pixels(width, height, max_pixels)
        return _levels(found, pixel)


def _of_image(data: bytes, max_pixels: int, colors: Colors | None, pixel: str) -> Values:
    header = check_header(data, max_pixels)
    with open_image(data, NAMED[header.format], max_pixels) as image:
        if header.format not in EXACT or image.info.get("compression") in BLURRED:
            raise ImageError("unsupported_format", f"the mask is {header.format}, which changes values: save it as PNG")
        if has_pages(data, header.format):
            raise ImageError("unsupported_format", "the mask has several pages or frames: save one, alone")
        image.load()
        bits = data[24] if data.startswith(PNG) else getattr(image, "tag_v2", {}).get(BITS, (8,))[0]
        if bits > 8 and len(image.getbands()) > 1:  # Pillow would cut them to 8
            raise ImageError("unsupported_format", f"the mask has {bits} bits a channel: save it as grey, one channel")
        found = _plain(image, bits, pixel) if colors is None else _of_colors(image, colors, pixel)
        return upright(found[..., np.newaxis], image.getexif().get(TAG, 1))[..., 0]


def _plain(image: Image.Image, bits: int, pixel: str) -> Values:
    pixels, tags = np.asarray(image), getattr(image, "tag_v2", {})
    if tags.get(PHOTOMETRIC) == 0:
        raise ImageError("unsupported_format", "the TIFF counts from white, and libraries invert it: save it as PNG")
    if pixels.ndim == 2:
        scaled = pixels.view(np.int8) if tags.get(KIND) == (2,) and bits == 8 else pixels
        step = 255 // ((1 << min(bits, 8)) - 1)  # Pillow scales grey of 2 and 4 bits to 0..255
        return _levels(scaled // step if image.mode == "L" else scaled, pixel)
    colours, alpha = pixels[..., : 3 if image.mode.startswith("RGB") else 1], pixels[..., -1]
    if image.mode in ("LA", "RGBA") and (alpha < OPAQUE).any():
        raise ImageError("unsupported_format", "the mask has transparent pixels: save it without alpha")
    if image.mode not in ("LA", "RGB", "RGBA") or (colours != colours[..., :1]).any():
        raise ImageError("unsupported_format", "the mask has colours: give `colors`, the colour of each class")
    return colours[..., 0].astype(pixel)


def _of_colors(image: Image.Image, colors: Colors, pixel: str) -> Values:
    codes = np.asarray(image.convert("RGBA")).view("<u4")[..., 0]
    known = np.array(sorted((int.from_bytes((*color, OPAQUE), "little"), value) for color, value in colors))
    places = np.searchsorted(known[:, 0], codes).clip(max=len(known) - 1)
    lost = codes[known[places, 0] != codes]
    if lost.size:
        *colour, alpha = int(lost[0]).to_bytes(4, "little")
        clear = "" if alpha == OPAQUE else f" of alpha {alpha}"
        raise ImageError("unknown_class", f"the colour {colour}{clear} in {lost.size:,} pixels is not among `colors`")
    return known[places, 1].astype(pixel)


def _levels(pixels: npt.NDArray[Any], pixel: str) -> Values:
    """Returns whole numbers as the type `pixel`. Raises: ImageError."""
    if pixels.dtype == pixel:
        return pixels.astype(pixel, copy=False)
    most = levels_of(pixel) - 1
    wrong = pixels[~((pixels >= 0) & (pixels <= most) & (pixels == np.floor(pixels)))]
    if wrong.size:
        what = f"the value {wrong[0]} in {wrong.size:,} pixels"
        remedy = ": `dtype: uint16` takes it" if pixel == "uint8" and 255 < wrong[0] < levels_of("uint16") else ""
        raise ImageError("unknown_class", f"{what} is not a whole number from 0 to {most}{remedy}")
    return pixels.astype(pixel)
