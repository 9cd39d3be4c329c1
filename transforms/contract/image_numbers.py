"""The type and the number of bands of a file read as numbers: PNG, and TIFF without loss.

>>> numbers_of(bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000007 00000005 1000"), "PNG")
('uint16', 1)
"""

from contextlib import suppress

from recordmill.transforms.contract import bounds, image_header
from recordmill.transforms.contract.image_header import ImageError
from recordmill.transforms.contract.image_parts import tiff_numbers, tiff_values
from recordmill.transforms.contract.kinds.image import MOST_BANDS, PIXEL_BYTES

COLOURS = {0: 1, 2: 3, 4: 2, 6: 4}
"""The bands of a PNG by its colour type; 3 is a palette."""
LOSSLESS = {1: "none", 5: "LZW", 8: "deflate", 32946: "deflate", 32773: "PackBits", 50000: "Zstandard"}
"""TIFF's compressions that lose nothing."""
KINDS = {1: "uint", 2: "int", 3: "float"}
"""TIFF's types of numbers (`SampleFormat`)."""
BITS, COMPRESSION, PHOTOMETRIC, BANDS, KIND = 258, 259, 262, 277, 339  # TIFF's tags
SIZES = (279, 325)  # of strips and tiles in bytes
PALETTE = 3


def numbers_of(data: bytes, form: str) -> tuple[str, int]:
    """Returns the type of a file's numbers, such as `uint16`, and its bands; its header is checked.

    The type may be one that no feature has. Raises: ImageError: `unsupported_format` or `too_slow`.
    """
    if form == "PNG":
        if data[25] not in COLOURS or any(kind == b"tRNS" for kind, *_ in image_header.png_chunks(data)):
            raise _unread("the PNG has a palette or a clear colour: save it without")
        return f"uint{data[24]}", COLOURS[data[25]]
    if form != "TIFF":
        raise _unread(f"the file is {form}, and `dtype` and `bands` read the numbers of PNG and TIFF: convert it")
    bits, code, colours, bands, kind = tiff_numbers(data, BITS, COMPRESSION, PHOTOMETRIC, BANDS, KIND)
    width, second = tiff_numbers(data, image_header.WIDTH, 254, is_second=True)
    if colours == PALETTE:
        raise _unread("the TIFF has a palette: save it without")
    if (code or 1) not in LOSSLESS:
        raise _unread(f"the TIFF has the compression {code}: save it with {', '.join(sorted({*LOSSLESS.values()}))}")
    if width and not second & 0b101:  # a smaller copy or a mask may follow
        raise _unread("the TIFF has several pages: save each as a file")
    sizes = sum(sum(each.tolist()) for each in tiff_values(data, *SIZES).values())
    bounds.TIFF_SHARED.check(sizes - len(data))
    name = KINDS.get(kind or 1, "complex")
    return f"{name}{16 if name == 'uint' and 8 < bits < 16 else bits or 1}", bands or 1


def deep_numbers(data: bytes, form: str) -> tuple[str, int] | None:
    """Returns `numbers_of` a file that grey or RGB of 8 bits would not hold; None for others.

    A PNG of 16-bit colours counts as a picture: those are mostly exports of cameras and programs.
    """
    with suppress(ImageError):
        kind, bands = numbers_of(data, form)
        is_picture = bands <= 4 and (kind == "uint8" or form == "PNG" and bands > 1)
        return (kind, bands) if kind in PIXEL_BYTES and bands <= MOST_BANDS and not is_picture else None
    return None


def _unread(message: str) -> ImageError:
    return ImageError("unsupported_format", message)
