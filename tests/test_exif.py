"""EXIF orientation in the graph, against Pillow."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from recordmill.transforms.images.decode_graph import orient
from recordmill.transforms.images.properties_graph import orientation, tiff_orientation
from tests.pictures import PIXELS, chunk, saved

SHORT, LONG = 3, 4


def tiff(entries, order="<", offset=8, count=None, mark=None):
    """Makes an EXIF structure; entries are (tag, type, count, the value's four bytes or a number)."""
    mark = mark if mark is not None else {"<": b"II*\0", ">": b"MM\0*"}[order]
    head = mark + struct.pack(order + "I", offset) + bytes(max(offset - 8, 0))
    body = struct.pack(order + "H", len(entries) if count is None else count)
    for tag, kind, number, value in entries:
        code = {SHORT: "Hxx", LONG: "I"}.get(kind)
        field = value if isinstance(value, bytes) else struct.pack(order + code, value)
        body += struct.pack(order + "HHI", tag, kind, number) + field
    return head + body + bytes(4)


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def exif_segment(stated: int) -> bytes:
    return segment(0xE1, b"Exif\0\0" + tiff([(0x0112, SHORT, 1, stated)]))


def jpeg_with(*segments: bytes) -> bytes:
    jpeg = saved()
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("stated", range(1, 9))
def test_an_image_is_turned_as_pillow_turns_it(stated, form, order):
    file = io.BytesIO()
    exif = b"Exif\0\0" + tiff([(0x0112, SHORT, 1, stated)], order)
    Image.fromarray(PIXELS).save(file, form, exif=exif, lossless=True)
    expected = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    assert orientation(tf.constant(file.getvalue())) == stated
    pixels = np.asarray(Image.open(file).convert("RGB"))
    np.testing.assert_array_equal(orient(pixels, tf.constant(stated)), np.asarray(expected))


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([segment(0xE0, b"JFIF\0" + bytes(9)), exif_segment(6)], 6),
        ([segment(0xFE, b"a comment"), exif_segment(6)], 6),
        ([segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"), exif_segment(6)], 6),
        ([segment(0xE2, bytes(30_000)), exif_segment(6)], 6),
        ([exif_segment(6), exif_segment(3)], 6),
        ([segment(0xFE, exif_segment(6)[4:])], 1),
        ([segment(0xE2, exif_segment(6)[4:])], 1),
        ([segment(0xE1, b"Exif\0\0")], 1),
        ([struct.pack(">BBH", 0xFF, 0xE1, 3) + b"Exif\0\0"], 1),
        ([segment(0xFE, b"")] * 300 + [exif_segment(6)], 1),
        ([], 1),
    ],
    ids=["JFIF", "comment", "XMP", "ICC", "first", "in comment", "in APP2", "empty", "short", "too many", "none"],
)
def test_where_exif_may_stand_in_a_jpeg(before, expected):
    assert orientation(tf.constant(jpeg_with(*before))) == expected


EXIF_CHUNK = chunk(b"eXIf", tiff([(0x0112, SHORT, 1, 6)]))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda png: png[:33] + EXIF_CHUNK + png[33:], 6),
        (lambda png: png[:-12] + EXIF_CHUNK + png[-12:], 6),
        (lambda png: png[:33] + chunk(b"tEXt", EXIF_CHUNK) + png[33:], 1),
        (lambda png: png[:33] + chunk(b"eXIf", b"") + png[33:], 1),
        (lambda png: png[:33] + b"\xff\xff\xff\xffabcd..." + EXIF_CHUNK, 1),
        (lambda png: png[:33] + b"\x7f\xff\xff\xffabcd" + EXIF_CHUNK, 1),
        (lambda png: png[:33] + EXIF_CHUNK[:12], 1),
        (lambda png: png, 1),
    ],
    ids=["before IDAT", "after IDAT", "in text", "empty", "negative", "beyond", "cut", "none"],
)
def test_where_exif_may_stand_in_a_png(make, expected):
    assert orientation(tf.constant(make(saved(form="PNG")))) == expected


def webp(*chunks: tuple[bytes, bytes], flags: int = 8) -> bytes:
    """Makes an extended WebP's header and chunks, without an image."""
    pieces = [(b"VP8X", bytes([flags]) + bytes(9)), *chunks]
    return b"RIFF\0\0\0\0WEBP" + b"".join(
        name + struct.pack("<I", len(payload)) + payload + bytes(len(payload) % 2) for name, payload in pieces
    )


EXIF = (b"EXIF", tiff([(0x0112, SHORT, 1, 6)]))
NAMED = (b"EXIF", b"Exif\0\0" + EXIF[1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (webp(EXIF), 6),
        (webp(NAMED), 6),
        (webp((b"VP8 ", b"odd"), EXIF), 6),
        (webp((b"VP8 ", bytes(70_000)), EXIF), 6),
        (webp(EXIF, (b"EXIF", tiff([(0x0112, SHORT, 1, 3)]))), 6),
        (webp(EXIF, flags=0x30), 1),
        (webp((b"XMP ", b"EXIF" + EXIF[1])), 1),
        (webp((b"EXIF", b"")), 1),
        (webp((b"VP8 ", b""))[:-4] + b"\xff\xff\xff\xff" + EXIF[1], 1),
        (webp(EXIF)[:40], 1),
        (webp(EXIF)[:17], 1),
        (webp(*[(b"ABCD", b"")] * 300, EXIF), 1),
        (webp(EXIF).replace(b"VP8X", b"VP8L"), 1),
        (webp(), 1),
    ],
    ids=["plain", "named", "odd", "large", "first", "not announced", "in XMP", "empty", "negative", "cut", "short",
         "too many", "not extended", "none"],
)  # fmt: skip
def test_where_exif_may_stand_in_a_webp(data, expected):
    assert orientation(tf.constant(data)) == expected


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        (tiff([(0x010F, SHORT, 1, 3), (0x0112, SHORT, 1, 5), (0x0128, SHORT, 1, 2)], ">", offset=50), 5),
        (tiff([(0x0112, SHORT, 1, 5), (0x0112, SHORT, 1, 7)]), 5),
        (tiff([(0x0112, SHORT, 0, 5), (0x0112, SHORT, 1, 7)]), 7),
        (tiff([(0x0112, SHORT, 1, 5)], count=65_535), 5),
        (tiff([(0x010F, 2, 1_000, b"\xff\xff\xff\xff"), (0x0112, SHORT, 1, 5)]), 5),
        (tiff([(0x0112, LONG, 1, 2**32 - 1)]), 1),
        (tiff([(0x0112, 1, 1, b"\6\0\0\0")]), 1),
        (tiff([(0x0112, SHORT, 2, b"\6\0\6\0")]), 1),
        (tiff([(0x0112, SHORT, 1, 6)], count=0), 1),
        (tiff([(0x0112, SHORT, 1, 6)], mark=b"II\0*"), 1),
        (tiff([(0x0112, SHORT, 1, 6)], mark=b"MM\0*"), 1),
        (b"II*\0\xff\xff\xff\xff" + tiff([(0x0112, SHORT, 1, 6)])[8:], 1),
    ],
)
def test_what_is_read(structure, expected):
    assert tiff_orientation(tf.constant(structure)) == expected


# Pillow gives up at an entry whose value lies outside the data: those stand in the table above.
OTHER_KINDS = st.sampled_from([1, 2, SHORT, LONG, 7, 99])
ENTRY = st.one_of(
    st.tuples(st.just(0x0112), st.sampled_from([SHORT, LONG]), st.just(1), st.integers(0, 10)),
    st.tuples(st.integers(0, 0x0111), OTHER_KINDS, st.integers(0, 1), st.binary(min_size=4, max_size=4)),
)


@pytest.mark.filterwarnings("ignore")
@given(
    entries=st.lists(ENTRY, max_size=6),
    order=st.sampled_from("<>"),
    offset=st.integers(0, 40),
    count=st.none() | st.integers(0, 9),
    kept=st.integers(0, 130),
)
def test_orientation_is_what_pillow_reads(entries, order, offset, count, kept):
    data = tiff(entries, order, offset, count)[:kept]
    exif = Image.Exif()
    try:
        exif.load(b"Exif\0\0" + data)
    except Exception:
        expected = 1
    else:
        expected = exif.get(0x0112, 1)
    assert tiff_orientation(tf.constant(data)) == (expected if expected in range(1, 9) else 1)


@given(st.sampled_from([b"", b"II*\0", b"MM\0*", b"II*\0\x08\0\0\0"]), st.binary(max_size=60))
def test_no_bytes_are_an_error(mark, data):
    exif = b"Exif\0\0" + mark + data
    png = b"\x89PNG\r\n\x1a\n"
    files = [b"\xff\xd8" + segment(0xE1, exif) + data, b"\xff\xd8\xff\xe1Exif\0\0" + data, data]
    files += [png + chunk(b"eXIf", mark + data) + data, png + b"eXIf" + data, webp((b"EXIF", mark + data)) + data]
    files += [webp()[:30] + data, b"RIFF" + data]
    for file in files:
        assert 1 <= orientation(tf.constant(file)) <= 8
