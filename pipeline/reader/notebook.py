"""Shows an input in a notebook: small HTML without scripts, thumbnails as `data:` URLs.

>>> small(Image.new("RGB", (640, 320))).size
(160, 80)
"""

import base64
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.reader.request import Request, images_of
from recordmill.pipeline.reader.rows import Rows
from recordmill.pipeline.safe_text import printable
from recordmill.transforms.images.pixels import for_people

SHOWN = 8  # records
SIDE = 160  # pixels of a thumbnail's longer side
LOSSLESS = 64  # pixels: up to this side images are PNG
QUALITY = 85  # of JPEG: 120 photographs are 0.8 MB
FAST = 1  # PNG compression: takes a third of the time of the usual 6


def input_html(request: Request | None, element_spec: Any, batches: int) -> str:
    """Shows an input's arrays, and the first images, augmented by the first epoch; no `request` for a mixture."""
    features, *others = (element_spec,) if isinstance(element_spec, dict) else element_spec
    arrays = table(
        ["array", "shape", "dtype"],
        (
            (name, str([size if size is not None else "…" for size in spec.shape]), spec.dtype)
            for name, spec in (*features.items(), *zip(("label", "weight"), others, strict=False))
        ),
    )
    what = "an input" if request is None else f"{request.dataset} {request.version}, {request.given.split}"
    images = "" if request is None else "".join(_input_images(request))
    return f"<div><b>{html_text(what)}</b>, {batches:,} batches an epoch{arrays}{images}</div>"


def _input_images(request: Request) -> Iterator[str]:
    """Yields the first rows' images; none if the order needs all labels."""
    shown = {name: image for name, image in images_of(request.features).items() if not request.features[name].is_list}
    if not shown or request.given.balance or not request.steps.records:
        return
    plain: dict[str, Any] = {name: replace(each, channel_order="rgb", dtype=each.pixel) for name, each in shown.items()}
    rows = Rows(replace(request, features=request.features | plain, given=replace(request.given, dtype=None)))
    try:
        chosen = rows.choose(0, np.arange(min(SHOWN, request.steps.records)))
        [(values, _)] = rows.read([chosen])
        for pixels in (pixels for name in shown for pixels in np.array(values[name])):
            seen = for_people(pixels)
            image = Image.fromarray(seen[..., 0] if seen.shape[-1] == 1 else seen)
            yield f'<img src="{data_url(small(image))}" alt="" height="96"> '
    except UserError as error:
        yield f"<p>{html_text(error)}</p>"
    finally:
        rows.close()


def small(image: Image.Image, side: int = SIDE) -> Image.Image:
    """Returns an image, shrunk to fit a square of `side` pixels if larger."""
    if max(image.size) <= side:
        return image
    copy = image.copy()
    copy.thumbnail((side, side))
    return copy


def data_url(image: Image.Image) -> str:
    """Encodes an image in a `data:` URL, deterministically: PNG if tiny, else JPEG."""
    file = io.BytesIO()
    form = "PNG" if max(image.size) <= LOSSLESS else "JPEG"
    image.save(file, form, quality=QUALITY, compress_level=FAST)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns an HTML table; cells are escaped."""
    lines = "".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(f'<th>{html_text(name)}</th>' for name in header)}</tr></thead>{lines}</table>"


def html_text(value: object) -> str:
    """Escapes a value for HTML, and its control characters."""
    return escape(printable(str(value)))
