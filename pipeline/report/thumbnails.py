"""Small images for people: as `data:` URLs for a page that loads nothing, and with boxes drawn for a file.

>>> small(Image.new("RGB", (640, 320))).size
(160, 80)
"""

import base64
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw

from recordmill.transforms.contract.kinds.boxes import Box

SIDE = 160  # pixels of a thumbnail's longer side
BOXED_SIDE = 256  # where boxes are drawn
LOSSLESS = 64  # the longest side of an image whose every pixel matters
QUALITY = 85  # of JPEG: 120 photographs are 0.8 MB
FAST = 1  # PNG's compression: a third of the time of the usual 6
COLORS = ("#ff453a", "#30d158", "#0a84ff", "#ffd60a", "#bf5af2", "#64d2ff", "#ff9f0a", "#ff375f")


def small(image: Image.Image, side: int = SIDE) -> Image.Image:
    """Returns an image that fits a square of `side` pixels; one that does already stays as it is."""
    if max(image.size) <= side:
        return image
    copy = image.copy()
    copy.thumbnail((side, side))
    return copy


def data_url(image: Image.Image) -> str:
    """Encodes an image, PNG where it is tiny and else JPEG, in a `data:` URL; the same image gives the same text."""
    file = io.BytesIO()
    form = "PNG" if max(image.size) <= LOSSLESS else "JPEG"
    image.save(file, form, quality=QUALITY, compress_level=FAST)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def color_of(name: object) -> int:
    """Returns the number of a name's colour, the same in every image."""
    return sum(str(name).encode("utf-8", "surrogateescape")) % len(COLORS)


def with_boxes(image: Image.Image, boxes: Sequence[Box], names: Sequence[object]) -> Image.Image:
    """Draws boxes on a copy of an image, those of one name in one colour, with a dark line around each."""
    copy = image.convert("RGB")
    pen = ImageDraw.Draw(copy)
    for box, name in zip(boxes, names, strict=True):
        left, right = sorted((box.x_min * (copy.width - 1), box.x_max * (copy.width - 1)))
        top, bottom = sorted((box.y_min * (copy.height - 1), box.y_max * (copy.height - 1)))
        pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline="#000000", width=3)
        pen.rectangle((left, top, right, bottom), outline=COLORS[color_of(name)])
    return copy
