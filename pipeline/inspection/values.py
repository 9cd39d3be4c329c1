"""The values of records as plain Python: names for ids, texts, numbers in their original units, images.

>>> Decoder(dataset).decode(columns, 0)  # doctest: +SKIP
{'image': StoredImage(PNG, 32x32, 2,311 bytes), 'label': 'cat', 'price': 12.5, 'caption': DecodedText(…)}
>>> record.values["photo"].pillow().save("photo.png")  # doctest: +SKIP
>>> shown([1.5, None, "cat"])
'1.5, -, cat'
>>> to_json([1.5, None, b"cat", float("nan")])
[1.5, None, 'cat', 'NaN']
"""

import base64
import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from recordmill.pipeline.dataset.paths import ADVICE, locate, open_file
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.color_profile import foreign_profile
from recordmill.transforms.contract.image_header import ImageError, check_header, check_tile, read_header
from recordmill.transforms.contract.image_parts import RAW
from recordmill.transforms.contract.image_rules import is_transposed
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Decoding
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.places import Box, Keypoint
from recordmill.transforms.contract.kinds.text import DecodedText
from recordmill.transforms.contract.kinds.values import Bucket
from recordmill.transforms.contract.stored import Column, Ragged, part_name
from recordmill.transforms.numpy.color import to_srgb
from recordmill.transforms.numpy.image_decode import DecodeError
from recordmill.transforms.numpy.images import decoded
from recordmill.transforms.numpy.pixels import for_people

Value: TypeAlias = Any
"""`str` of a category (`int` for hashed ids), `float`, `Bucket`, `DecodedText`, `StoredImage`, `Box`, a tuple of
`Keypoint`, `bytes`, `int`, a list of these, or None for a missing value."""
LONGEST = 160  # characters shown of a value
MOST = 8  # values shown of a list
MISSING = "-"
NUMBER = ".7g"  # the digits of a float32


class Decoder:
    """Decodes the rows of parsed columns."""

    def __init__(self, dataset: DatasetVersion, features: Sequence[str] | None = None) -> None:
        """Decodes all features by default. Raises: DatasetError: unknown feature or kind, or damaged vocabulary."""
        wanted = {name: dataset.manifest.feature(name) for name in features or dataset.features}
        self.descriptions = read_descriptions(wanted)
        statistics = dataset.manifest.statistics
        self._decoding = {
            name: Decoding(
                dataset.vocabulary(name) if each.ids and each.ids.has_words else None,
                statistics.get(name, {}),
                StoredImage,
            )
            for name, each in self.descriptions.items()
        }

    def decode(self, columns: Mapping[str, Column], row: int) -> dict[str, Value]:
        """Returns a row's values by feature, from columns of `parse`. Raises: DatasetError: one is of another form."""
        values = {}
        for name, description in self.descriptions.items():
            parts = {part: _cell(columns[part_name(name, part)], row) for part in description.parts()}
            try:
                values[name] = description.value(parts, self._decoding[name])
            except (ArithmeticError, LookupError, TypeError, ValueError):  # the manifest may state any
                what = f"a record holds a value of '{name}' that is not as dataset.json describes it"
                raise DatasetError(f"{what} ({description.words()}): {ADVICE}") from None
        return values


def _cell(column: Column, row: int) -> Any:
    return column.row(row) if isinstance(column, Ragged) else column[row]


def shown(value: Value) -> str:
    """Describes a value in one line of about 160 characters at most; a missing one is `-`."""
    match value:
        case None:
            return MISSING
        case float():
            return f"{value:{NUMBER}}"
        case Box() | Keypoint():
            return f"[{' '.join(f'{number:.3g}' for number in value)}]"
        case tuple():
            return f"({' '.join(map(shown, value))})"
        case list():
            flat = value[:MOST]
            separator = " | " if any(isinstance(each, DecodedText) for each in flat) else ", "
            rest = f", … ({len(value):,} values)" if len(value) > MOST else ""
            return _cut(separator.join(map(shown, flat)), len(rest)) + rest if value else "none"
        case bytes():
            with suppress(UnicodeDecodeError):
                return _cut(json.dumps(value.decode(), ensure_ascii=False)[1:-1])
            return f"{len(value):,} bytes: {value[:16].hex(' ')}{' …' if len(value) > 16 else ''}"
        case _:
            return _cut(json.dumps(str(value), ensure_ascii=False)[1:-1])


def _cut(text: str, spare: int = 0) -> str:
    most = LONGEST - spare
    return text if len(text) <= most else f"{text[: most - 1]}…"


def to_json(value: Value) -> Any:
    """Converts a value to JSON.

    A text is its text, or its ids if hashed; an image its format, size and number of bytes; a box its four sides; a
    bucket its id and bounds, None if open; bytes are text, or `{"base64": …}` if not UTF-8; a non-finite number is
    "NaN", "Infinity" or "-Infinity".
    """
    match value:
        case float():
            return value if math.isfinite(value) else json.dumps(value)
        case bytes():
            with suppress(UnicodeDecodeError):
                return value.decode()
            return {"base64": base64.b64encode(value).decode()}
        case DecodedText():
            return list(value.ids) if value.text is None else value.text
        case StoredImage():
            return {"format": value.format, "width": value.width, "height": value.height, "bytes": len(value.data)}
        case Bucket():
            low, high = (None if math.isinf(bound) else bound for bound in (value.low, value.high))
            return {"bucket": value.id, "from": low, "below": high}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:
            return value


@dataclass(frozen=True, repr=False)
class StoredImage:
    """An image of a record."""

    data: bytes  # the file's bytes, or for a feature stored as `raw` the pixels
    pixels: Pixels  # the feature's description
    orientation: int = 1  # the EXIF orientation, 1..8, of a feature stored as `original`

    def __repr__(self) -> str:
        return f"StoredImage({self})"

    def __str__(self) -> str:
        """Shows the format, the size and the bytes: `JPEG, 224x224, 11,420 bytes`."""
        size = f"{self.width}x{self.height}, " if self.width else ""
        return f"{self.format}, {size}{len(self.data):,} bytes"

    @property
    def format(self) -> str:
        """The file's format, such as `JPEG`; `raw` for pixels, `unknown` for invalid bytes."""
        return self._header[0]

    @property
    def width(self) -> int:
        """The stored width of the upright image in pixels; 0 if unknown."""
        return self._header[1]

    @property
    def height(self) -> int:
        """The stored height of the upright image in pixels; 0 if unknown."""
        return self._header[2]

    @property
    def suffix(self) -> str:
        """The suffix for a file, such as `.jpeg`; `.bin` for raw pixels and invalid bytes."""
        return ".bin" if self.format in ("raw", "unknown") else f".{self.format.lower()}"

    def array(self) -> npt.NDArray[Any]:
        """Decodes the stored pixels, uint8 or as deep images have them: [height, width, channels], RGB.

        An `original` is turned upright and resized to the feature's size.
        Raises: DatasetError: the bytes cannot be decoded, or differ from the feature's shape.
        """
        try:
            return decoded(self.data, self.pixels, self.orientation)
        except DecodeError as error:
            raise DatasetError(f"a stored image cannot be decoded ({error}): run `recordmill verify`") from error

    def pillow(self) -> Image.Image:
        """Returns `array()`, stretched if deep, as Pillow's L or RGB. Raises: DatasetError, as `array`."""
        return as_image(self.array())

    @cached_property
    def _header(self) -> tuple[str, int, int]:
        if self.pixels.encoding == "raw":
            height, width = (side or 0 for side in self.pixels.shape[:2])
            return "raw", width, height
        try:
            header = read_header(self.data)
        except ImageError:
            return "unknown", 0, 0
        sides = (header.width, header.height // max(1, self.pixels.planes))
        return header.format, *(sides[::-1] if is_transposed(self.orientation) else sides)


def as_image(pixels: npt.NDArray[Any]) -> Image.Image:
    """Shows pixels as Pillow's L or RGB, stretched if deep."""
    shown = for_people(pixels)
    return Image.fromarray(shown[..., 0] if shown.shape[-1] == 1 else np.ascontiguousarray(shown))


COLORS = ("#ff453a", "#30d158", "#0a84ff", "#ffd60a", "#bf5af2", "#64d2ff", "#ff9f0a", "#a2845e")


MOST_PIXELS = 64_000_000
MOST_FILE_BYTES = 64 << 20  # 64 MiB
TRANSPARENT = "#d0d7de"


def raw_image(sources: Path, path: str) -> Image.Image | None:
    """Opens a source image upright; None if it is missing or cannot be decoded.

    `path`, a key or a reject's `file`, is relative to `sources` and cannot leave that folder.
    """
    with suppress(DatasetError, OSError, ImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        with open_file(locate(str(sources), path)) as file:
            data = file.read(MOST_FILE_BYTES + 1)
        header = check_header(data, MOST_PIXELS)
        ignored = warnings.catch_warnings(action="ignore")  # Pillow's, about invisible metadata
        with ignored, Image.open(io.BytesIO(data), formats=[header.format]) as image:
            check_tile(getattr(image, "tag_v2", {}), MOST_PIXELS)
            image.load()
            image.info.pop(RAW, None)
            upright = ImageOps.exif_transpose(image)
            profile = foreign_profile(data, header.format)
            convert = to_srgb(profile, image.mode) if profile else None
            own = upright if image.mode in ("L", "CMYK") else upright.convert("RGBA")
            upright = (convert(own) if convert else upright).convert("RGBA")
            ground = Image.new("RGBA", upright.size, TRANSPARENT)
            return Image.alpha_composite(ground, upright).convert("RGB")
    return None
