"""Headers of images: their facts, and refusals before decoding."""

import struct
from contextlib import nullcontext

import pytest
from PIL import Image as Picture

from recordmill.transforms.images.image_header import PNG, Header, ImageError, check_header, read_header
from tests.messages import raises
from tests.pictures import PIXELS, animated, bmp, chunk, saved, turned

HEIGHT, WIDTH = PIXELS.shape[:2]
ALPHA = Picture.fromarray(PIXELS).convert("RGBA")
ALPHA.putalpha(Picture.fromarray(PIXELS[..., 0]))


def tiff(order: str, width: int, height: int, kind: int = 3, big: bool = False) -> bytes:
    """Makes a TIFF's header and first directory."""
    code, entry, pad = {3: "H", 4: "I", 16: "Q"}[kind], "HHQ" if big else "HHI", 8 if big else 4
    mark = struct.pack(order + "H", 43 if big else 42)
    head = mark + (struct.pack(order + "HHQ", 8, 0, 16) if big else struct.pack(order + "I", 8))
    entries = [(254, 4, 0), (256, kind, width), (257, kind, height), (258, 3, 8)]
    body = struct.pack(order + ("Q" if big else "H"), len(entries))
    for tag, of, value in entries:
        field = struct.pack(order + (code if of == kind else "H"), value).ljust(pad, b"\0")
        body += struct.pack(order + entry, tag, of, 1) + field
    return {"<": b"II", ">": b"MM"}[order] + head + body


def box(name: bytes, payload: bytes, is_long: bool = False) -> bytes:
    """Makes a box of an ISO base media file; a long one has its size after the name."""
    if is_long:
        return struct.pack(">I4sQ", 1, name, 16 + len(payload)) + payload
    return struct.pack(">I4s", 8 + len(payload), name) + payload


def properties(payload: bytes, **keys: bool) -> bytes:
    """Makes the box around the item properties."""
    return box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", payload, **keys), **keys), **keys)


def iso(boxes: bytes, brands: bytes = b"heic\0\0\0\0") -> bytes:
    """Makes a file of boxes."""
    return box(b"ftyp", brands) + boxes


SIZE = struct.pack(">III", 0, 27, 18)
THUMBNAIL = struct.pack(">III", 0, 9, 6)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", ("empty", "JPEG, PNG, GIF, BMP,", "WebP, TIFF, AVIF, HEIF and NPY")),
        (b"hello, world", ("no image", "JPEG")),
        (b'<?xml version="1.0"?>\n<svg xmlns="x">', ("SVG",)),
        (b"\0\0\0\x1cftypheic", ("as HEIF", "size")),
        (b"\0\0\0\x1cftypavif", ("as AVIF", "size")),
        (iso(box(b"ispe", SIZE)), ("as HEIF", "size")),
        (iso(box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", box(b"ispe", SIZE[:-1]))))), ("as HEIF", "size")),
        (iso(properties(box(b"ispe", bytes(12)))), ("as HEIF", "size")),
        (b"\0\0\0\x0cjP  \r\n", ("JPEG 2000",)),
        (saved()[:2], ("no image",)),
        (saved()[:20], ("as JPEG", "size")),
        (b"\xff\xd8\xff\xd9" + saved(), ("as JPEG", "size")),
        (b"\xff\xd8\xff" * 1_000, ("as JPEG", "size")),
        (b"\xff\xd8\xff\xe0\0\0" * 1_000, ("as JPEG", "size")),
        (saved(form="PNG")[:23], ("as PNG", "size")),
        (PNG + chunk(b"tEXt", b"a\0b" * 9), ("as PNG", "size")),
        (PNG + chunk(b"IHDR", bytes(13)), ("as PNG", "size")),
        (saved(form="GIF")[:9], ("as GIF", "size")),
        (b"GIF89a\0\0\0\0", ("as GIF", "size")),
        (saved(form="BMP")[:25], ("as BMP", "size")),
        (bmp(b"", 4, -4, 24), ("as BMP", "size")),
        (saved(form="WEBP")[:29], ("as WebP", "size")),
        (b"RIFF\0\0\0\0WEBPwhat" + bytes(20), ("as WebP", "size")),
        (saved(form="TIFF")[:30], ("as TIFF", "size")),
        (tiff("<", 7, 5)[:40], ("as TIFF", "size")),
        (b"II*\0\xff\xff\xff\xff", ("as TIFF", "size")),
        (tiff("<", 7, 5).replace(struct.pack("<HH", 256, 3), struct.pack("<HH", 256, 12)), ("as TIFF", "size")),
    ],
)
def test_what_is_no_image_that_is_read_is_named(data, facts):
    with raises(ImageError, *facts) as error:
        check_header(data, 1_000)
    assert error.value.reason == "unsupported_format"
    assert error.value.message == str(error.value)


@pytest.mark.parametrize(
    ("data", "form", "in_graph"),
    [
        (saved(), "JPEG", True),
        (saved(progressive=True), "JPEG", True),
        (saved(optimize=True, exif=Picture.Exif().tobytes(), comment=b"\xff\xc0" * 30), "JPEG", True),
        (saved()[:2] + b"\xff\xff\xff\xfe\0\5abc" + saved()[2:], "JPEG", True),
        (saved()[:2] + b"\xff\xc4\0\x0atables..\xff\xcc\0\x0atables.." + saved()[2:], "JPEG", True),
        (animated("MPO"), "JPEG", True),
        (saved().replace(b"\xff\xc0\0\x11", b"\xff\xc3\0\x11"), "JPEG", False),
        (saved(form="PNG"), "PNG", True),
        (animated("PNG"), "PNG", True),
        (saved(form="GIF"), "GIF", False),
        (animated("GIF"), "GIF", False),
        (saved(form="BMP"), "BMP", True),
        (saved(form="BMP") + b"\0", "BMP", False),
        (saved(PIXELS[..., 0], "BMP"), "BMP", False),
        (saved(ALPHA, "BMP"), "BMP", False),
        (bmp(bytes(84 * 18), -18, 27, 24), "BMP", True),
        (bmp(bytes(84 * 18), -18, 27, 24, compression=3), "BMP", False),
        (b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 27, 18, 1, 24) + bytes(84 * 18), "BMP", False),
        (saved(form="WEBP"), "WebP", True),
        (saved(form="WEBP", lossless=False), "WebP", True),
        (saved(ALPHA, "WEBP", lossless=False), "WebP", True),
        (animated("WEBP"), "WebP", False),
        (saved(form="TIFF"), "TIFF", False),
        *[(tiff(order, 27, 18, kind), "TIFF", False) for order in "<>" for kind in (3, 4)],
        *[(tiff(order, 27, 18, 16, big=True), "TIFF", False) for order in "<>"],
        (saved(form="AVIF"), "AVIF", False),
        (saved(ALPHA, "AVIF"), "AVIF", False),
        (animated("AVIF"), "AVIF", False),
        (iso(properties(box(b"ispe", THUMBNAIL) + box(b"ispe", SIZE) + box(b"ispe", THUMBNAIL))), "HEIF", False),
        (iso(properties(box(b"ispe", SIZE, is_long=True), is_long=True)), "HEIF", False),
        (iso(properties(box(b"ispe", SIZE)) + struct.pack(">I4s", 0, b"mdat")), "HEIF", False),
        (iso(properties(box(b"ispe", SIZE)), b"mif1\0\0\0\0mif1heic"), "HEIF", False),
        (iso(properties(box(b"ispe", SIZE)), b"mif1\0\0\0\0mif1miafavif"), "AVIF", False),
        (iso(box(b"moov", box(b"trak", box(b"tkhd", bytes(76) + b"\0\x1b\0\0\0\x12\0\0"))), b"avis"), "AVIF", False),
    ],
)
def test_the_header_is_read_and_its_pixels_are_bounded(data, form, in_graph):
    header = read_header(data)
    assert (header.format, header.height, header.width, header.in_graph) == (form, HEIGHT, WIDTH, in_graph)
    check_header(data, 18 * 27)
    with raises(ImageError, "27 x 18 = 486", "max_pixels", "485") as error:
        check_header(data, 18 * 27 - 1)
    assert error.value.reason == "too_many_pixels"


@pytest.mark.parametrize("data", [saved(form="HEIF"), animated("HEIF"), saved(ALPHA, "HEIF")])
def test_the_size_of_a_heif_is_that_of_its_blocks(data):
    assert read_header(data) == Header("HEIF", 64, 64, in_graph=False)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)), "2147483647 x 2147483647"),
        (b"GIF89a" + b"\xff" * 4, "65535 x 65535"),
        (bmp(b"", -(2**31), 2**31 - 1, 24), "2147483647 x 2147483648"),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff" * 6, "16777216 x 16777216"),
        (tiff(">", 2**32 - 1, 2**32 - 1, 4), "4294967295 x 4294967295"),
        (iso(properties(box(b"ispe", SIZE) + box(b"ispe", bytes(4) + b"\xff" * 8))), "4294967295 x 4294967295"),
    ],
)
def test_a_bomb_is_refused_by_its_header(data, size):
    with raises(ImageError, size):
        check_header(data, 64_000_000)


STATED = [
    (saved(), "27 x 18", True), (saved(), "", True), (saved(), "54 x 36", False), (saved(), "18 x 27", False),
    *((turned(form, 6), "18 x 27", True) for form in ("JPEG", "PNG", "WEBP", "TIFF")),
    (turned("JPEG", 6), "27 x 18", True), (turned("JPEG", 3), "18 x 27", False),
]  # fmt: skip


@pytest.mark.parametrize(("data", "stated", "is_good"), STATED)
def test_an_image_has_the_size_that_its_annotation_states(data, stated, is_good):
    with nullcontext() if is_good else raises(ImageError, f"{stated} pixels", "27 x 18") as error:
        check_header(data, 1_000, stated)
    assert is_good or error.value.reason == "malformed_row"


def more_scans(data: bytes, count: int) -> bytes:
    """Repeats a JPEG's last scan up to this many scans."""
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * (count - data.count(b"\xff\xda")) + data[-2:]


def by_component(frame: int) -> bytes:
    """Makes a JPEG with a first scan of a single component of three, and any frame header."""
    data = saved(progressive=True).replace(b"\xff\xc2\0\x11", bytes([0xFF, frame]) + b"\0\x11")
    first = data.index(b"\xff\xda")
    return data[:first] + data[data.index(b"\xff\xda", first + 2) :]


def test_the_scans_of_a_progressive_jpeg_are_bounded_by_its_pixels() -> None:
    data = saved(progressive=True)
    assert read_header(data).scans == data.count(b"\xff\xda") > 1
    check_header(more_scans(data, 20), 18 * 27)
    check_header(more_scans(data, 99), 5 * 18 * 27)
    with raises(ImageError, "27 x 18", "21 scans", "20") as error:
        check_header(more_scans(data, 21), 18 * 27)
    assert error.value.reason == "too_slow"


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA])
def test_no_jpeg_is_of_more_than_100_scans(frame: int) -> None:
    data = by_component(frame)
    check_header(more_scans(data, 100), 64_000_000)
    with raises(ImageError, "101 scans", "100"):
        check_header(more_scans(data, 101), 64_000_000)


def test_what_looks_like_a_scan_is_none() -> None:
    check_header(saved(comment=b"\xff\xda" * 1_000), 64_000_000)
    check_header(saved(comment=b"\xff\xda" * 1_000, progressive=True), 64_000_000)
    first = b"\xff\xfe\0\x0c\xff\xda\0\x08\3......"  # a comment that looks like a scan of all components
    data = by_component(0xC0)
    at = data.index(b"\xff\xc4")
    with raises(ImageError, "201 scans"):
        check_header(more_scans(data[:at] + first + data[at:], 202), 64_000_000)
