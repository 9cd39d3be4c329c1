"""Images: the header's check, decoding against Pillow and NumPy, geometry, and what is stored and read again."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture

from pipeline.kinds.image import Image
from transforms import image
from transforms.kind import Found

RANDOM = np.random.default_rng(0)
PIXELS = np.kron(RANDOM.integers(0, 256, (6, 9, 3)), np.ones((3, 3, 1))).astype(np.uint8)  # 18 x 27
BACKGROUND = (250, 120, 7)


def options(**keys):
    return Image(kind="image", **{"size": (8, 8), "background": BACKGROUND, **keys}).model_dump()


def saved(pixels=PIXELS, form="JPEG", **keys) -> bytes:
    file = io.BytesIO()
    picture = pixels if isinstance(pixels, Picture.Image) else Picture.fromarray(pixels)
    picture.save(file, form, **keys)
    return file.getvalue()


def chunk(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", zlib.crc32(name + payload))


def png(samples, depth: int, colour: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of any type; samples are numbers below 2 ** depth, shape [height, width, samples a pixel]."""
    height, width, _ = samples.shape
    bits = (samples[..., None] >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows)))
    return image.PNG + head + b"".join(chunk(*each) for each in chunks) + data + chunk(b"IEND", b"")


def decoded(data: bytes, **keys) -> np.ndarray:
    return image.decode(tf.constant(data), options(**keys)).numpy()


def luma(rgb):
    red, green, blue = np.moveaxis(np.asarray(rgb, np.int64), -1, 0)
    return ((19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536)[..., None]


# The header


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"hello, world", "no image: it begins with b'hello, w'"),
        (saved(form="GIF"), "the file is GIF"),
        (saved(form="BMP"), "the file is BMP"),
        (saved(form="WEBP"), "the file is WebP"),
        (saved(form="TIFF"), "the file is TIFF"),
        (b'<?xml version="1.0"?>\n<svg xmlns="x">', "the file is SVG"),
        (b"\0\0\0\x1cftypheic", "the file is HEIF"),
        (saved()[:2], "no image"),
        (saved()[:20], "begins as JPEG, but its header states no size"),
        (b"\xff\xd8\xff\xd9" + saved(), "begins as JPEG, but"),
        (b"\xff\xd8\xff" * 1_000, "begins as JPEG, but"),
        (b"\xff\xd8\xff\xe0\0\0" * 1_000, "begins as JPEG, but"),
        (saved(form="PNG")[:23], "begins as PNG, but"),
        (image.PNG + chunk(b"tEXt", b"a\0b" * 9), "begins as PNG, but"),
        (image.PNG + chunk(b"IHDR", bytes(13)), "begins as PNG, but"),
    ],
)
def test_what_is_no_image_that_is_read_is_named(data, message):
    with pytest.raises(image.ImageError, match=message) as error:
        image.check_header(data, 1_000)
    assert error.value.reason == "unsupported_format"
    assert error.value.message == str(error.value)


def several_pictures() -> bytes:
    first, second = Picture.fromarray(PIXELS), Picture.fromarray(PIXELS)
    return saved(first, "MPO", save_all=True, append_images=[second])


@pytest.mark.parametrize(
    "data",
    [
        saved(),
        saved(progressive=True),
        saved(optimize=True, exif=Picture.Exif().tobytes(), comment=b"\xff\xc0" * 30),
        saved()[:2] + b"\xff\xff\xff\xfe\0\5abc" + saved()[2:],
        saved()[:2] + b"\xff\xc4\0\x0atables..\xff\xcc\0\x0atables.." + saved()[2:],
        saved(form="PNG"),
        several_pictures(),
    ],
    ids=["baseline", "progressive", "segments", "fill bytes", "tables first", "PNG", "MPO"],
)
def test_the_headers_pixels_are_bounded(data):
    image.check_header(data, 18 * 27)
    with pytest.raises(image.ImageError, match=r"27 x 18 = 486 pixels; max_pixels allows 485") as error:
        image.check_header(data, 18 * 27 - 1)
    assert error.value.reason == "too_many_pixels"


def test_a_bomb_is_refused_by_its_header():
    claim = image.PNG + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0))
    with pytest.raises(image.ImageError, match="2147483647 x 2147483647"):
        image.check_header(claim, 64_000_000)


@given(st.sampled_from([b"", image.JPEG, image.PNG, b"RIFF", saved()[:160]]), st.binary(max_size=200))
def test_hostile_bytes_raise_nothing_else(start, data):
    try:
        image.check_header(start + data, 1_000_000)
    except image.ImageError as error:
        assert error.reason in ("unsupported_format", "too_many_pixels")  # noqa: PT017 - passing is allowed too


# Decoding


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        (saved(), "RGB"),
        (saved(quality=30, progressive=True, subsampling=0), "RGB"),
        (saved(PIXELS[..., 0]), "RGB"),
        (saved(PIXELS[..., 0]), "L"),
    ],
)
def test_a_jpeg_is_what_pillow_decodes(data, mode):
    expected = np.asarray(Picture.open(io.BytesIO(data)).convert(mode))
    np.testing.assert_array_equal(decoded(data, channels=len(mode)), expected.reshape(18, 27, -1))


def test_a_grey_jpeg_is_the_luma_it_stores():
    picture = Picture.open(io.BytesIO(saved()))
    picture.draft("L", None)
    np.testing.assert_array_equal(decoded(saved(), channels=1)[..., 0], np.asarray(picture))


def test_a_cmyk_jpeg_is_ink_times_black_and_its_grey_the_luma_of_that():
    data = saved(Picture.fromarray(PIXELS).convert("CMYK"))
    inks = 255 - np.asarray(Picture.open(io.BytesIO(data))).astype(int)
    rgb = decoded(data)
    np.testing.assert_array_equal(rgb, inks[..., :3] * inks[..., 3:] // 255)
    np.testing.assert_array_equal(decoded(data, channels=1), luma(rgb))


def test_a_jpeg_is_turned_upright():
    exif = Picture.Exif()
    exif[0x0112] = 6
    np.testing.assert_array_equal(decoded(saved(exif=exif)), np.rot90(decoded(saved()), -1))


def test_a_png_is_turned_upright():
    exif = Picture.Exif()
    exif[0x0112] = 6
    np.testing.assert_array_equal(decoded(saved(form="PNG", exif=exif)), np.rot90(PIXELS, -1))


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
TYPES = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (4, 16)]
TYPES += [(6, 8), (6, 16)]
PALETTE = RANDOM.integers(0, 256, (256, 3))
PALETTE_ALPHA = RANDOM.integers(0, 256, 256)


def rgba_of(samples, depth, colour, transparent):
    """What the PNG specification says of the samples, in 8 bits: colours [h, w, 3] and alpha [h, w]."""
    to_8 = samples * (255 // (2**depth - 1)) if depth < 8 else samples >> (depth - 8)
    if colour == 3:
        index = samples[..., 0]
        return PALETTE[index], PALETTE_ALPHA[index] if transparent else np.full(index.shape, 255)
    if colour in (4, 6):
        return np.broadcast_to(to_8[..., :-1], (*samples.shape[:2], 3)), to_8[..., -1]
    clear = (samples == samples[0, 0]).all(-1) & transparent
    return np.broadcast_to(to_8, (*samples.shape[:2], 3)), np.where(clear, 0, 255)


def composited(colours, alpha):
    alpha = alpha[..., None]
    return (colours * alpha + np.array(BACKGROUND) * (255 - alpha) + 127) // 255


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize(("colour", "depth"), TYPES)
def test_every_type_of_png_lies_on_the_background(colour, depth, transparent):
    samples = RANDOM.integers(0, 2**depth, (5, 11, SAMPLES[colour]))
    chunks = [(b"PLTE", PALETTE[: 2**depth].astype(np.uint8).tobytes())] if colour == 3 else []
    if transparent and colour < 4:
        clear = struct.pack(f">{SAMPLES[colour]}H", *samples[0, 0])
        alphas = PALETTE_ALPHA[: 2**depth].astype(np.uint8).tobytes()
        chunks.append((b"tRNS", alphas if colour == 3 else clear))
    data = png(samples, depth, colour, *chunks)
    expected = composited(*rgba_of(samples, depth, colour, transparent))
    np.testing.assert_array_equal(decoded(data), expected)
    np.testing.assert_array_equal(decoded(data, channels=1), luma(expected))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_png_on_white_is_what_pillow_composites(mode):
    picture = Picture.fromarray(PIXELS).convert(mode)
    if mode in ("LA", "RGBA"):
        picture.putalpha(Picture.fromarray(PIXELS[..., 1]))
    white = Picture.new("RGBA", picture.size, "white")
    expected = np.asarray(Picture.alpha_composite(white, picture.convert("RGBA")).convert("RGB")).astype(int)
    got = decoded(saved(picture, "PNG"), background=(255, 255, 255)).astype(int)
    assert np.abs(got - expected).max() <= (1 if mode in ("LA", "RGBA") else 0)  # Pillow rounds otherwise


def test_every_colour_and_alpha_is_composited_exactly():
    colour, alpha = np.meshgrid(np.arange(256), np.arange(256))
    rgba = np.stack([colour, colour, colour, alpha], -1).astype(np.uint8)
    np.testing.assert_array_equal(decoded(saved(rgba, "PNG")), composited(np.stack([colour] * 3, -1), alpha))


@pytest.mark.parametrize("text", [b"a\0tRNS", b"a\0eXIf"])
@pytest.mark.parametrize(("colour", "depth"), [(0, 1), (2, 8), (3, 4)])
def test_a_chunks_name_inside_text_changes_nothing(colour, depth, text):
    samples = RANDOM.integers(0, 2**depth, (5, 11, SAMPLES[colour]))
    palette = [(b"PLTE", PALETTE[: 2**depth].astype(np.uint8).tobytes())] if colour == 3 else []
    plain = png(samples, depth, colour, *palette)
    np.testing.assert_array_equal(decoded(png(samples, depth, colour, *palette, (b"tEXt", text))), decoded(plain))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (saved()[:-400], "Invalid JPEG data"),
        (saved()[:100], "Invalid JPEG data"),
        (saved(form="PNG")[:-60], "Invalid PNG data"),
        (image.PNG, "Invalid PNG"),
        (saved(form="GIF"), "Input is empty"),
        (saved(form="WEBP"), "Input is empty"),
        (saved(form="BMP"), "Input is empty"),
        (b"", "Input is empty"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_cannot_be_decoded_is_an_error_of_the_graph(data, message, channels):
    keys = options(channels=channels)
    graph = tf.function(lambda column: image.prepare(keys, column, column).store(Found()))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        graph(tf.constant([saved(), data]))


# Size


def area(pixels, size):
    return np.round(tf.image.resize(pixels, size, method="area")).astype(np.uint8)


def bilinear(pixels, size):
    return np.round(tf.image.resize(pixels, size, method="bilinear")).astype(np.uint8)


def resized(pixels, **keys):
    return image.resize(tf.constant(pixels), options(**keys)).numpy()


def test_a_stretched_jpeg_is_tensorflows_area_average():
    data = saved(np.kron(PIXELS, np.ones((20, 20, 1), np.uint8)))
    pixels = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    expected = tf.cast(tf.round(tf.image.resize(pixels, (224, 224), method="area")), tf.uint8)
    np.testing.assert_array_equal(resized(decoded(data), size=(224, 224), fit="stretch"), expected)


@pytest.mark.parametrize(
    ("source", "size", "method"),
    [
        ((18, 27), (9, 9), area),
        ((18, 27), (6, 60), area),
        ((9, 4), (4, 9), area),
        ((18, 27), (19, 27), bilinear),
        ((18, 27), (6, 90), bilinear),
        ((1, 1), (3, 2), bilinear),
        ((18, 27), (18, 27), lambda pixels, _: pixels),
    ],
)
def test_fewer_or_as_many_pixels_are_averaged_and_more_are_interpolated(source, size, method):
    pixels = PIXELS[: source[0], : source[1]]
    np.testing.assert_array_equal(resized(pixels, size=size, fit="stretch"), method(pixels, size))


@pytest.mark.parametrize(
    ("source", "size", "top_left", "inner"),
    [
        ((18, 27), (9, 9), (1, 0), (6, 9)),
        ((18, 27), (9, 27), (0, 6), (9, 14)),
        ((18, 27), (18, 27), (0, 0), (18, 27)),
        ((18, 9), (10, 10), (0, 2), (10, 5)),
        ((2, 4), (8, 8), (2, 0), (4, 8)),
        ((1, 27), (5, 5), (2, 0), (1, 5)),
        ((18, 1), (4, 4), (0, 1), (4, 1)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_pad_centres_the_whole_picture(source, size, top_left, inner, channels):
    pixels = PIXELS[: source[0], : source[1], :channels]
    grey = np.broadcast_to(np.uint8(luma([BACKGROUND])), (*size, 1))
    expected = np.array(grey if channels == 1 else np.broadcast_to(np.uint8(BACKGROUND), (*size, 3)))
    scaled = pixels if inner == source else (area if np.prod(inner) <= np.prod(source) else bilinear)(pixels, inner)
    expected[top_left[0] : top_left[0] + inner[0], top_left[1] : top_left[1] + inner[1]] = scaled
    np.testing.assert_array_equal(resized(pixels, size=size, channels=channels), expected)


@pytest.mark.parametrize(
    ("source", "size", "top_left", "inner"),
    [
        ((18, 27), (9, 9), (0, 4), (18, 18)),
        ((18, 27), (4, 12), (4, 0), (9, 27)),
        ((18, 27), (6, 9), (0, 0), (18, 27)),
        ((18, 5), (9, 10), (6, 0), (5, 5)),
        ((1, 27), (8, 8), (0, 13), (1, 1)),
        ((18, 1), (1, 8), (8, 0), (1, 1)),
    ],
)
def test_crop_fills_the_size_with_the_centre(source, size, top_left, inner):
    pixels = PIXELS[: source[0], : source[1]]
    box = pixels[top_left[0] : top_left[0] + inner[0], top_left[1] : top_left[1] + inner[1]]
    expected = (area if np.prod(size) <= np.prod(inner) else bilinear)(box, size)
    np.testing.assert_array_equal(resized(pixels, size=size, fit="crop"), expected)


SIDES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=150, deadline=None)
@given(SIDES, SIDES, st.sampled_from(["pad", "crop", "stretch"]), st.sampled_from([1, 3]))
def test_any_picture_fits_any_size(source, size, fit, channels):
    colour = np.uint8([9, 99, 199][:channels])
    got = resized(np.broadcast_to(colour, (*source, channels)), size=size, fit=fit, channels=channels)
    assert got.shape == (*size, channels)
    is_picture = (got == colour).all(-1)
    rows, columns = is_picture.any(1).sum(), is_picture.any(0).sum()
    assert is_picture.sum() == rows * columns
    assert (rows, columns) == size if fit != "pad" else rows == size[0] or columns == size[1]


# Stored and read


def store(files, **keys):
    return image.prepare(options(**keys), tf.constant(files, tf.string), tf.fill([len(files)], True)).store(Found())


def read(stored, statistics=None, **keys):
    normalize = keys.pop("normalize", "none")
    feature = Image(kind="image", normalize=normalize, **{"size": (8, 8), **keys})
    return image.finish(feature.describe(statistics or {}), stored)


FILES = [saved(), saved(form="PNG"), saved(PIXELS[::2])]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("how", "magics"), [("png", [b"\x89PNG"] * 3), ("raw", None)])
def test_png_and_raw_keep_every_pixel(how, magics, channels):
    stored = store(FILES, store=how, channels=channels)
    pixels = [resized(decoded(file, channels=channels), channels=channels) for file in FILES]
    assert [one[:4] for one in stored.numpy()] == (magics or [each.tobytes()[:4] for each in pixels])
    np.testing.assert_array_equal(read(stored, store=how, channels=channels), pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_auto_keeps_the_sources_format(channels):
    stored = store(FILES, channels=channels).numpy()
    jpegs, pngs = (store(FILES, store=how, channels=channels).numpy() for how in ("jpeg", "png"))
    assert list(stored) == [jpegs[0], pngs[1], jpegs[2]]
    expected = [np.asarray(Picture.open(io.BytesIO(one))).reshape(8, 8, channels) for one in stored]
    np.testing.assert_array_equal(read(tf.constant(stored), channels=channels), expected)


@pytest.mark.parametrize("quality", [40, 95])
def test_jpegs_have_the_quality_asked_for(quality):
    expected = tf.io.encode_jpeg(resized(decoded(FILES[0])), quality=quality)
    assert store(FILES[:1], store="jpeg", quality=quality)[0] == expected


@pytest.mark.parametrize(
    ("normalize", "offset", "scale"),
    [
        ("zero_one", 0, 1 / 255),
        ("minus_one_one", 127.5, 1 / 127.5),
        ("dataset", [1.5, 100, 200.25], [1 / 3, 1.0, 1 / 7]),
    ],
)
def test_pixels_are_normalized_in_float32(normalize, offset, scale):
    stored = store(FILES, store="raw")
    got = read(stored, {"mean": [1.5, 100, 200.25], "variance": [9.0, 0.0, 49.0]}, store="raw", normalize=normalize)
    pixels = read(stored, store="raw").numpy().astype(np.float32)
    assert got.dtype == tf.float32
    np.testing.assert_array_equal(got, (pixels - np.float32(offset)) * np.float32(scale))


@pytest.mark.parametrize("how", ["auto", "jpeg", "png", "raw"])
def test_no_rows_are_no_pictures(how):
    stored = store([], store=how)
    assert stored.shape == [0]
    assert stored.dtype == tf.string
    finished = tf.function(lambda rows: read(rows, store=how, normalize="zero_one"))
    assert finished(stored).shape == [0, 8, 8, 3]
    assert finished.get_concrete_function(tf.TensorSpec([None], tf.string)).output_shapes == [None, 8, 8, 3]


@pytest.mark.parametrize("how", ["auto", "raw"])
@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
def test_any_batch_gives_the_same_bytes_in_a_data_set_and_eagerly(how, fit):
    keys = options(store=how, fit=fit)
    expected = list(store(FILES, store=how, fit=fit).numpy())
    for size in (1, 2, 3):
        batches = tf.data.Dataset.from_tensor_slices(FILES).batch(size)
        stored = batches.map(lambda rows: image.prepare(keys, rows, rows).store(Found())).unbatch()
        assert list(stored.as_numpy_iterator()) == expected
        read_back = stored.batch(size).map(lambda rows: read(rows, store=how)).unbatch()
        np.testing.assert_array_equal(list(read_back), read(tf.constant(expected), store=how))


@pytest.mark.parametrize("how", ["png", "raw"])
def test_a_stored_picture_of_another_size_is_an_error(how):
    stored = store(FILES[:1], store=how, size=(8, 9))
    with pytest.raises(tf.errors.InvalidArgumentError):
        read(stored, store=how)


def test_a_stored_picture_is_one_string():
    assert image.stored_spec({}) == tf.io.FixedLenFeature([], tf.string)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixel_sums_are_exact(channels):
    files = [*FILES, saved(np.full((90, 90, 3), 255, np.uint8))]
    keys = options(channels=channels, size=(300, 300))
    count, sums, squares = tf.function(image.pixel_sums)(tf.constant(files), keys)
    pixels = [image.resize(image.decode(file, keys), keys).numpy().astype(np.int64) for file in tf.constant(files)]
    assert list(count.numpy()) == [90_000] * 4
    np.testing.assert_array_equal(sums, [each.sum((0, 1)) for each in pixels])
    np.testing.assert_array_equal(squares, [(each**2).sum((0, 1)) for each in pixels])


def test_no_rows_have_no_sums():
    count, sums, squares = image.pixel_sums(tf.constant([], tf.string), options())
    assert (count.shape, sums.shape, squares.shape) == ([0], [0, 3], [0, 3])
