"""Arrays whose first side is rows: idx, `.npy` and `.npz`, written here by struct, gzip and NumPy."""

import gzip
import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import Arrays
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.base.arrays import ArrayLayout
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, TEXT, npy, read

GREY = np.random.default_rng(0).integers(0, 256, (50, 8, 9), np.uint8)
LABELS = np.arange(50, dtype=np.uint8) % 10
CODES = {"|u1": 8, "|i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.str], array.ndim, *array.shape) + array.tobytes()


def source(path: Path, **columns: str) -> SourceReader[Any]:
    return reader_of(Arrays(format="arrays", path=str(path), columns=columns))


def write_idx(folder: Path, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    for name, array in arrays.items():
        (folder / f"{name}-ubyte").write_bytes(idx(array))
    return folder, "-ubyte"


def write_gzip(folder: Path, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    for name, array in arrays.items():
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    return folder, "-ubyte.gz"


def write_npy(folder: Path, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    for name, array in arrays.items():
        (folder / f"{name}.npy").write_bytes(npy(array))
    return folder, ".npy"


def write_npz(folder: Path, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz", ""


def write_packed(folder: Path, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    np.savez_compressed(folder / "a.npz", **arrays)
    return folder / "a.npz", ""


Write = Callable[[Path, Mapping[str, Any]], tuple[Path, str]]
WRITERS: list[Write] = [write_idx, write_gzip, write_npy, write_npz, write_packed]


def pixels(reference: bytes) -> Any:
    """The numbers of an image by NumPy."""
    return np.load(io.BytesIO(parse(reference).data or b""))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("chunk_bytes", [1 << 23, 700])
def test_a_row_is_an_entry_of_each_array(
    tmp_path: Path, write: Write, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.pipeline.sources.formats.arrays.BLOCK_BYTES", 200)
    monkeypatch.setattr("recordmill.pipeline.sources.source_reader.IMAGES_CHUNK_BYTES", 0)
    path, ending = write(tmp_path, {"x": GREY, "y": LABELS})
    reader = source(path, image=f"x{ending}", label=f"y{ending}")
    plan = reader.plan(FILES, {"image": IMAGE, "label": CATEGORY}, chunk_bytes)
    is_cut = chunk_bytes == 700 and write not in (write_gzip, write_packed)
    assert (plan.rows, len(plan.chunks) > 1) == (50, is_cut)
    result = read(reader, {"image": IMAGE, "label": CATEGORY}, chunk_bytes=chunk_bytes)
    assert np.array_equal([pixels(row["image"]) for row in result.rows], GREY)
    assert [row["label"] for row in result.rows] == [str(label) for label in LABELS]


@pytest.mark.parametrize("code", CODES)
def test_types_of_idx_are_read_as_numbers(tmp_path: Path, code: str) -> None:
    values = np.array([1, 2, 100], code)
    path, ending = write_idx(tmp_path, {"v": values})
    assert [row["v"] for row in read(source(path, v=f"v{ending}"), {"v": NUMBER}).rows] == [1, 2, 100]


def test_texts_half_floats_and_labels_in_a_column(tmp_path: Path) -> None:
    held = {"t": np.array(["a", "né"]), "h": np.array([0.5, 2], np.float16), "y": np.array([[3], [4]])}
    path, _ = write_npz(tmp_path, held | {"objects": np.array([{}], object)})
    rows = read(source(path), {"t": TEXT, "h": NUMBER, "y": CATEGORY}).rows
    assert rows == [{"t": "a", "h": 0.5, "y": "3"}, {"t": "né", "h": 2, "y": "4"}]


@pytest.mark.parametrize("flat", [True, False])
def test_channels_first_are_moved_by_the_shape(tmp_path: Path, flat: bool) -> None:
    planar = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    path, _ = write_npz(tmp_path, {"x": planar.reshape(2, -1) if flat else planar})
    column = Column(ColumnType.IMAGE, array=ArrayLayout("uint8", (3, 4, 5)))
    assert np.array_equal(
        [pixels(row["x"]) for row in read(source(path), {"x": column}).rows], planar.transpose(0, 2, 3, 1)
    )
    wrong = Column(ColumnType.IMAGE, array=ArrayLayout("uint8", (4, 5, 3)))
    rejected = {reject.reason for reject in read(source(path), {"x": wrong}).rejects}
    assert rejected == (set() if flat else {"wrong_type"})


WHOLE = idx(LABELS)
BAD: list[tuple[str, bytes, tuple[str, ...]]] = [
    ("y-ubyte", b"\0\0\x0a\1" + WHOLE[4:], ("'y-ubyte'", "00 00 0a 01")),
    ("y-ubyte", b"\0\0\x08", ("'y-ubyte'", "00 00 08")),
    ("y-ubyte", gzip.compress(WHOLE, mtime=0), ("'y-ubyte'", ".gz")),
    ("y-ubyte", WHOLE[:-1], ("'y-ubyte'", "57", "58", "copy it again")),
    ("y-ubyte", WHOLE + b"1", ("59", "58", "copy it again")),
    ("y-ubyte", idx(LABELS[:49]), ("'x-ubyte' has 50", "'y-ubyte' has 49", "`columns`")),
    ("y-ubyte", struct.pack(">4B4I", 0, 0, 8, 4, 50, *[1 << 31] * 3), ("2147483648", "67,108,864")),
    ("y-ubyte", idx(np.zeros((50, 0), np.uint8)), ("[50, 0]",)),
    ("y.npy", npy(np.array([{}] * 50, object)), ("'y.npy'", "no Python object")),
    ("y.npy", npy(np.asfortranarray(np.ones((50, 2)))), ("'y.npy'", "ascontiguousarray")),
    ("y.npy", npy(np.uint8(7)), ("'y.npy'", "[]")),
    ("y.npy", npy(np.zeros(50, [("a", "u1")])), ("'y.npy'", ".npy")),
]


@pytest.mark.parametrize(("name", "data", "facts"), BAD, ids=range(len(BAD)))
def test_a_wrong_file_is_refused_by_its_header(tmp_path: Path, name: str, data: bytes, facts: tuple[str, ...]) -> None:
    write_idx(tmp_path, {"x": GREY})
    (tmp_path / name).write_bytes(data)
    reader = source(tmp_path, image="x-ubyte", label=name)
    with raises(SourceError, str(tmp_path), *facts):
        reader.plan(FILES, {"image": IMAGE, "label": CATEGORY}, 1 << 23)


@pytest.mark.parametrize(("change", "facts"), [(slice(0, -1), ["cut off"]), (slice(None), ["more bytes"])])
def test_a_compressed_file_of_other_rows_is_refused(tmp_path: Path, change: slice, facts: list[str]) -> None:
    (tmp_path / "y-ubyte.gz").write_bytes(gzip.compress(WHOLE[change] + b"1" * (change.stop is None)))
    with raises(SourceError, "y-ubyte.gz", "50 rows", "copy it again", *facts):
        read(source(tmp_path, label="y-ubyte.gz"), {"label": CATEGORY})


def test_a_damaged_npz_is_one_line(tmp_path: Path) -> None:
    for write, start, end in ((write_packed, 400, 440), (write_npz, 1000, 1001)):  # of a stored one, its checksum
        path, _ = write(tmp_path, {"x": GREY})
        data = bytearray(path.read_bytes())
        data[start:end] = bytes(byte ^ 255 for byte in data[start:end])
        path.write_bytes(data)
        with raises(SourceError, "a.npz", "damaged"):
            read(source(path, image="x"), {"image": IMAGE})
    (tmp_path / "b.npz").write_bytes(b"PK\3\4")
    with raises(SourceError, "b.npz", "damaged"):
        source(tmp_path / "b.npz").plan(FILES, {"x": IMAGE}, 1 << 23)


def stated(descr: str, shape: str = "(10,)") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + bytes(80)


NO_ROWS = "(1000000000000, 0)"
NO_NUMBERS = ["M8[25s/0]", "M8[25s/3]", "m8[0s]", ",", "i4,f8", "(1000000,1000000)f4", "c8", "f16", "|S0", "V8", "<V2"]


@pytest.mark.parametrize(
    ("data", "facts"),
    [*((stated(descr), ["numbers are", *(["bfloat16"] if descr == "<V2" else [descr])]) for descr in NO_NUMBERS),
     (stated("<f8", NO_ROWS), ["1000000000000, 0"]),
     (stated("<f8", "(1000000000, 1000000000, 1000000000, 0)"), ["1000000000", "too large"]),
     (bytes([0, 0, 8, 255]) + bytes([0, 0, 0, 1]) * 255 + b"1", ["1, 1"])],
)  # fmt: skip
def test_no_type_or_shape_of_a_file_reaches_numpy_unchecked(tmp_path: Path, data: bytes, facts: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", data)
    with raises(SourceError, "a.npz", "'x'", *facts):
        source(tmp_path / "a.npz").plan(FILES, {"x": NUMBER}, 1 << 23)


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    path, _ = write_npz(tmp_path, {"x_train": GREY, "x_test": GREY})
    with raises(SourceError, "'x_trian'", "x_train"):
        source(path, image="x_trian").plan(FILES, {"image": IMAGE}, 1 << 23)


MNIST = {"train-images-idx3": GREY, "train-labels-idx1": LABELS}
MNIST |= {"t10k-images-idx3": GREY[:20], "t10k-labels-idx1": LABELS[:20]}
KERAS = dict(zip(("x_train", "y_train", "x_test", "y_test"), MNIST.values(), strict=True))
PLANAR = np.cumsum(np.ones((30, 3, 8, 8), np.uint8), -1, np.uint8) * np.uint8([1, 5, 9])[:, None, None]


@pytest.mark.parametrize(
    ("write", "arrays", "splits", "options"),
    [
        (write_idx, MNIST, ["train", "test"], {"size": (8, 9), "channels": 1}),
        (write_gzip, MNIST, ["train", "test"], {"size": (8, 9), "channels": 1}),
        (write_npz, KERAS, ["train", "test"], {"size": (8, 9), "channels": 1}),
        (write_npz, {"X": GREY.reshape(50, -1)[:, :64], "y": LABELS}, [None], {"shape": (8, 8), "channels": 1}),
        (write_npz, {"data": PLANAR, "labels": LABELS[:30, None]}, [None], {"shape": (3, 8, 8), "channels": 3}),
        (write_npz, {"data": PLANAR.reshape(30, -1), "labels": LABELS[:30]}, [None], {"shape": (3, 8, 8)}),
        (write_npz, {"images": GREY / 255, "target": LABELS}, [None], {"dtype": "float32", "channels": 1}),
        (write_npy, {"X": GREY.astype(int), "y": LABELS}, [None], {"dtype": "uint8", "channels": 1}),
    ],
)  # fmt: skip
def test_init_reads_each(
    tmp_path: Path, write: Write, arrays: Any, splits: list[str | None], options: dict[str, Any]
) -> None:
    path, _ = write(tmp_path, arrays)
    spec = parse_spec(starter(str(path), FILES))
    assert [each.split for each in spec.source] == splits
    assert spec.label == "label"
    image: Any = spec.features["image"]
    assert (image.kind, {name: getattr(image, name) for name in options}) == ("image", options)


def test_init_takes_files_that_gzip_left_beside_the_unpacked(tmp_path: Path) -> None:
    write_idx(tmp_path, MNIST)
    write_gzip(tmp_path, MNIST)
    [first, _] = parse_spec(starter(str(tmp_path), FILES)).source
    assert first.columns == {"image": "train-images-idx3-ubyte", "label": "train-labels-idx1-ubyte"}


def test_a_stored_member_with_an_extra_field_is_found(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("x.npy")
    info.extra = struct.pack("<HH4s", 0xCAFE, 4, b"abcd")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr(info, npy(LABELS))
    assert [row["x"] for row in read(source(tmp_path / "a.npz"), {"x": NUMBER}).rows] == LABELS.tolist()


@pytest.mark.parametrize(
    ("arrays", "facts"),
    [
        ({**KERAS, "mean": np.zeros(3)}, ("left out: 1 (mean)",)),
        ({"x": np.asfortranarray(GREY), "y": LABELS, "images": GREY}, ("In doubt: array x", "ascontiguousarray")),
        ({"x": np.array(["a", "b"] * 25, object), "y": LABELS, "images": GREY}, ("In doubt: array x", "left out")),
        ({"x": GREY, "y": LABELS, "weight": np.full(50, np.nan)}, ("columns: {image: x, label: y}", "# weight: ")),
        ({"x": GREY, "y": LABELS, "name": np.array(list("abcdefghij"))[LABELS]}, ("# name: one value for each",)),
        ({"emnist_x": GREY, "y": LABELS[1:]}, ("array y", "49 rows", "In doubt: EMNIST", "transpose(0, 2, 1)")),
    ],
)
def test_init_names_arrays_that_it_leaves_out_or_doubts(tmp_path: Path, arrays: Any, facts: tuple[str, ...]) -> None:
    path, _ = write_npz(tmp_path, arrays)
    assert_names(starter(str(path), FILES), *facts)


def test_init_doubts_one_of_several_npz(tmp_path: Path) -> None:
    for name in ("train-imgs", "train-labels"):
        np.savez(tmp_path / f"{name}.npz", GREY)
    assert_names(starter(str(tmp_path), FILES), "one of 2 `.npz`", "numpy.savez")


@pytest.mark.parametrize("rows", [[30, 30], [120, 50], [99, 100]])
def test_init_refuses_rows_of_pixels_as_images(tmp_path: Path, rows: list[int]) -> None:
    for name, count in zip(("cat", "dog"), rows, strict=True):
        np.save(tmp_path / f"{name}.npy", np.zeros((count, 784), np.uint8))
    with raises(UserError, "cat.npy", f"{rows[0]} rows of 784", "numpy.savez"):
        starter(str(tmp_path), FILES)


@pytest.mark.parametrize(("array", "dtype"), [(GREY.astype(np.int16) - 9, "float32"), (GREY * np.int64(9), "uint16")])
def test_init_takes_the_type_that_holds_all_numbers(tmp_path: Path, array: Any, dtype: str) -> None:
    path, _ = write_npz(tmp_path, {"x": array, "y": LABELS})
    image: Any = parse_spec(starter(str(path), FILES)).features["image"]
    assert image.dtype == dtype


@pytest.mark.parametrize("channels", [1, 3])
def test_init_finds_channels_first(tmp_path: Path, channels: int) -> None:
    """Also of noise, as PyTorch keeps images."""
    array = np.random.default_rng(0).integers(0, 256, (50, channels, 24, 24), np.uint8)
    path, _ = write_npz(tmp_path, {"x": array, "y": LABELS})
    image: Any = parse_spec(starter(str(path), FILES)).features["image"]
    assert (image.shape, image.channels) == ((channels, 24, 24), channels)


def test_an_array_without_readable_rows_is_refused_by_its_name(tmp_path: Path) -> None:
    path, _ = write_npz(tmp_path, {"image": np.asfortranarray(GREY)})
    with raises(UserError, "a.npz", "image", "ascontiguousarray"):
        starter(str(path), FILES)
