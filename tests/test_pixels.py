"""Images that are numbers: in cells, lists, numbered columns and `.npy` files; Pillow and NumPy are the other side."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from recordmill.pipeline.build.images.deep_files import planes
from recordmill.pipeline.build.images.transcode import decodable
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats.csv import numbered
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.base.arrays import ArrayLayout
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.image_header import ImageError, read_header
from recordmill.transforms.images.image_spec import Image as ImageFeature
from tests.messages import raises
from tests.tables import FILES, IMAGE, npy, read, source, write_jsonl
from tests.test_arrays_source import pixels

GREY = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)


def shaped(*shape: int, dtype: str = "uint8") -> Column:
    return Column(ColumnType.IMAGE, array=ArrayLayout(dtype, shape))


def write_cells(path: Path, cells: list[str]) -> Path:
    path.write_text("label,pixels\n" + "".join(f'{number % 3},"{cell}"\n' for number, cell in enumerate(cells)))
    return path


def write_columns(path: Path, names: list[str], images: Any = GREY) -> Path:
    rows = [[number % 3, *image.ravel().tolist()] for number, image in enumerate(images)]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [["label", *names], *rows]))
    return path


def test_numbers_of_a_cell_are_an_image(tmp_path: Path) -> None:
    as_numpy_prints = lambda numbers: str(np.array(list(numbers), int).reshape(8, 8))  # noqa: E731
    forms = [" ".join, ",".join, "  ".join, lambda numbers: f"[{', '.join(numbers)}]", as_numpy_prints]
    cells = [forms[number % 5](map(str, image.ravel().tolist())) for number, image in enumerate(GREY)]
    rows = read(source("csv", write_cells(tmp_path / "a.csv", cells)), {"pixels": shaped(8, 8)}).rows
    assert np.array_equal([pixels(row["pixels"]) for row in rows], GREY)


CELLS: list[tuple[str, str, tuple[str, ...]]] = [
    ("1 2 3", "wrong_type", ("uint8 [2, 2]",)),
    ("1 2 3 4 5", "wrong_type", ("uint8 [2, 2]",)),
    ("1 2 3 256", "wrong_type", ("0 to 255",)),
    ("1 2 3 -1", "wrong_type", ("0 to 255",)),
    ("1 2 3 x", "wrong_type", ("numbers",)),
    ("1 2 3 NaN", "wrong_type", ("whole numbers",)),
    ("0.1 0.2 0.3 1.0", "wrong_type", ("whole numbers", "`dtype: float32`")),
    ("a/b.jpg", "wrong_type", ("numbers",)),
    ("  ", "missing_value", ()),
]


@pytest.mark.parametrize(("cell", "reason", "facts"), CELLS, ids=range(len(CELLS)))
def test_a_bad_cell_is_a_reject(tmp_path: Path, cell: str, reason: str, facts: tuple[str, ...]) -> None:
    path = write_cells(tmp_path / "a.csv", [cell, "1 2 3 4"])
    result = read(source("csv", path), {"pixels": shaped(2, 2)})
    [(found, column, message)] = result.faults
    assert (found, column, len(result.rows)) == (reason, "pixels", 1)
    assert all(fact in message for fact in facts), message


def test_floats_of_a_cell(tmp_path: Path) -> None:
    path = write_cells(tmp_path / "a.csv", ["0.5 1 2 3e3", "nan 1 2 3", "NaN 1 2 3", "1 2 3 1e39"])
    result = read(source("csv", path), {"pixels": shaped(2, 2, dtype="float32")})
    assert [pixels(row["pixels"]).tolist() for row in result.rows] == [[[0.5, 1], [2, 3000]]]
    assert [reject.reason for reject in result.rejects] == ["wrong_type"] * 3


@pytest.mark.parametrize(
    "names", [[f"pixel{n}" for n in range(64)], [f"{y}x{x}" for y in range(1, 9) for x in range(1, 9)]]
)
@pytest.mark.parametrize("order", [list(range(64)), sorted(range(64), key=str)])
def test_numbered_columns_are_an_image_in_the_order_of_numbers(
    tmp_path: Path, names: list[str], order: list[int]
) -> None:
    images = GREY.reshape(-1, 64)[:, order]
    path = write_columns(tmp_path / "a.csv", [names[number] for number in order], images)
    name = "pixel*" if "pixel0" in names else "*x*"
    result = read(source("csv", path), {name: shaped(8, 8)})
    assert np.array_equal([pixels(row[name]) for row in result.rows], GREY)
    assert not [note for note in result.plan.notes if "pixel0" in note or "1x1" in note]


def test_a_star_means_numbers_only() -> None:
    names = ["a1b", "a", "a2", "a-1", "a10", "ab", "a9"]
    assert [names[place] for place in numbered("a*", names)] == ["a2", "a9", "a10"]
    assert numbered("a*", [*names, "a*"]) == [7]


def test_lists_are_an_image_and_need_a_shape(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": GREY.tolist(), "flat": GREY.reshape(40, -1).tolist()}), tmp_path / "a.parquet")
    write_jsonl(tmp_path / "a.jsonl", [{"x": image.tolist()} for image in GREY])
    for name, form in [("x", "parquet"), ("flat", "parquet"), ("x", "jsonl")]:
        rows = read(source(form, tmp_path / f"a.{form}"), {name: shaped(8, 8)}).rows
        assert np.array_equal([pixels(row[name]) for row in rows], GREY)
    with raises(SourceError, "'x'", "a list", "`shape: [height, width]`"):
        read(source("parquet", tmp_path / "a.parquet"), {"x": IMAGE})


def opened(data: bytes, **options: Any) -> Any:
    """A file as the graph gets it, by Pillow."""
    return np.asarray(Image.open(io.BytesIO(decodable(data, {"max_pixels": 10_000, **options}))))


RGB = np.random.default_rng(1).integers(0, 256, (6, 7, 3), np.uint8)


@pytest.mark.parametrize(
    "array",
    [RGB, RGB[..., 0], RGB[..., :1], RGB.astype(np.int64), RGB.astype(">i2"), np.asfortranarray(RGB)],
    ids=["RGB", "grey", "one channel", "int64", "big-endian", "columns first"],
)
def test_an_array_is_an_image_of_8_bits(array: Any) -> None:
    assert np.array_equal(opened(npy(array)), array[..., 0] if array.shape[2:] == (1,) else array)


@pytest.mark.parametrize(("array", "options"), [
    (RGB[..., 0].astype(np.uint16) * 200, {"pixel": "uint16", "channels": 1}),
    (RGB[..., 0].astype(np.int32), {"pixel": "uint16", "channels": 1}),
    (RGB / np.float32(3), {"pixel": "float32", "channels": 3}),
    (np.concatenate([RGB, RGB[..., :1]], -1), {"pixel": "uint8", "channels": 4}),
    (np.tile(RGB[:1], 3)[..., :8], {"pixel": "uint8", "channels": 8}),
])  # fmt: skip
def test_an_array_is_a_deep_image(array: Any, options: dict[str, Any]) -> None:
    wanted = planes(array.reshape(-1, 7, options["channels"]).astype(options["pixel"]))
    assert np.array_equal(opened(npy(array), **options), wanted)


BAD: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (RGB / 255, {}, ("float64", "`dtype: float32`")),
    (RGB.astype(int) + 1000, {}, ("0 to 255",)),
    (np.full((4, 4), np.nan, np.float32), {"pixel": "float32", "channels": 1}, ("finite",)),
    (np.moveaxis(RGB, -1, 0), {}, ("7 bands", "`channels`", "moveaxis")),
    (np.ones((3, 6, 17), np.uint8), {}, ("[3, 6, 17]", "`shape`", "moveaxis")),
    (RGB[None], {}, ("[1, 6, 7, 3]", "[height, width, channels]")),
    (RGB.ravel(), {}, ("[126]", "[height, width]")),
    (np.concatenate([RGB, RGB[..., :1]], -1), {}, ("4 bands", "`channels`", "`bands`")),
    (np.array([[{}]], object), {}, ("no Python object",)),
    (RGB * 1j, {}, (".npy",)),
]


@pytest.mark.parametrize(("array", "options", "facts"), BAD, ids=range(len(BAD)))
def test_another_array_is_refused(array: Any, options: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ImageError, *facts) as caught:
        opened(npy(array), **options)
    assert caught.value.reason == "unsupported_format"


def test_a_header_is_checked_before_anything_is_allocated() -> None:
    head = npy(RGB[..., 0])[:128].replace(b"(6, 7)", b"(1<<30, 1<<30)").replace(b"1<<30", b"99999")
    with raises(ImageError, "99999 x 99999", "max_pixels") as caught:
        opened(head)
    assert caught.value.reason == "too_many_pixels"
    with raises(ImageError):
        opened(npy(RGB)[:-1])
    assert (read_header(npy(RGB)).width, read_header(npy(RGB)).height) == (7, 6)


def test_arrays_beside_photos_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy(RGB))
    folder = source("image_folder", tmp_path)
    assert folder.plan(FILES, {"image": IMAGE}, 1 << 20).rows == 1
    Image.fromarray(RGB).save(tmp_path / "a.png")
    plan = folder.plan(FILES, {"image": IMAGE}, 1 << 20)
    assert (plan.rows, [file.path for file in plan.inputs]) == (1, ["a.png"])
    assert [file.path for file in folder.list_inputs(FILES, {"image": IMAGE})] == ["a.png"]


@pytest.mark.parametrize(("options", "facts"), [
    ({"shape": [28]}, ("shape",)),
    ({"shape": [28, 28, 4]}, ("3 `channels`", "[28, 28, 4]")),
    ({"shape": [28, 28, 28], "channels": 4}, ("4 `channels`", "[28, 28, 28]")),
])  # fmt: skip
def test_a_wrong_shape_is_refused(options: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        ImageFeature(kind="image", size=28, **options)


def test_a_shape_of_files_is_refused() -> None:
    features = "features: {image: {kind: image, size: 8, shape: [8, 8]}}\n"
    with raises(SpecError, "features.image.shape", "`image_folder`"):
        parse_spec(f"name: a\nsource: {{format: image_folder, path: x}}\n{features}")


def written(path: Path) -> Any:
    return parse_spec(starter(str(path), FILES))


def test_init_makes_one_image_of_columns_or_a_cell(tmp_path: Path) -> None:
    spec = written(write_columns(tmp_path / "digits.csv", [f"pixel{number}" for number in range(64)]))
    assert list(spec.features) == ["image", "label"]
    image = spec.features["image"]
    assert (image.column, image.shape, image.size, image.channels) == ("pixel*", (8, 8), (8, 8), 1)
    cells = [" ".join(map(str, image.ravel().tolist())) for image in GREY]
    path = write_cells(tmp_path / "faces.csv", cells)
    lines = path.read_text().splitlines()
    usage = ["Usage", *(["Training"] * 30 + ["PublicTest"] * 5 + ["PrivateTest"] * 5)]
    path.write_text("".join(f"{line},{use}\n" for line, use in zip(lines, usage, strict=True)))
    spec = written(path)
    assert (spec.features["pixels"].shape, spec.label) == ((8, 8), "label")
    assert spec.split_by.values == {"train": ("Training",), "validation": ("PublicTest",), "test": ("PrivateTest",)}


def test_init_takes_no_embedding_for_an_image(tmp_path: Path) -> None:
    rows = [{"e": [float(n) / 3 for n in image.ravel()], "label": n % 2} for n, image in enumerate(GREY)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    assert written(tmp_path / "a.jsonl").features["e"].kind == "numbers"
    path = write_columns(tmp_path / "few.csv", [f"f{number}" for number in range(64)])
    assert len(written(path).features) == 65


FLOATS = (GREY / 255).round(6)


@pytest.mark.parametrize(("form", "images", "dtype"), [
    (lambda image: image.tolist(), GREY, "uint8"),
    (lambda image: ",".join(map(str, image.ravel())), GREY, "uint8"),
    (str, GREY, "uint8"),
    (lambda image: " ".join(map(str, image.ravel())), FLOATS, "float32"),
    (lambda image: " ".join(map(str, image.ravel())), GREY * np.int64(9), "uint16"),
])  # fmt: skip
def test_init_reads_images_in_cells(tmp_path: Path, form: Any, images: Any, dtype: str) -> None:
    spec = written(write_cells(tmp_path / "a.csv", [str(form(image)) for image in images]))
    image: Any = spec.features["pixels"]
    assert (image.kind, image.shape, image.dtype) == ("image", (8, 8), dtype)


def test_init_reads_floats_in_columns_and_lists(tmp_path: Path) -> None:
    columns = written(write_columns(tmp_path / "a.csv", [f"pixel{n}" for n in range(64)], FLOATS))
    pq.write_table(pa.table({"image": FLOATS.tolist(), "embedding": FLOATS.tolist()}), tmp_path / "a.parquet")
    lists = written(tmp_path / "a.parquet").features
    kinds = [each.kind for each in (columns.features["image"], lists["image"], lists["embedding"])]
    assert kinds == ["image", "image", "numbers"]


@pytest.mark.parametrize("first", [0, 1])
def test_init_reads_names_that_count_as_a_header(tmp_path: Path, first: int) -> None:
    spec = written(write_columns(tmp_path / "a.csv", [str(first + n) for n in range(64)]))
    image = spec.features["image"]
    assert ([each.header for each in spec.source], image.column, image.shape) == ([True], "*", (8, 8))


def test_init_divides_tables_by_the_ends_of_their_names(tmp_path: Path) -> None:
    for name in ("mnist_train", "mnist_test"):
        write_columns(tmp_path / f"{name}.csv", [f"pixel{n}" for n in range(64)])
    assert [each.split for each in written(tmp_path).source] == ["train", "test"]
