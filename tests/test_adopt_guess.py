"""What adoption finds in records by their values alone: images, labels, boxes, lists, and what it says of doubts."""

import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill import Dataset, augment, open_tfrecords
from recordmill.pipeline.errors import UserError
from tests import tfrecords
from tests.messages import assert_names, raises
from tests.published import example, field

pytestmark = pytest.mark.usefixtures("home")
ROWS = 20
MAP = "item {\n  id: 1\n  name: 'cat'\n}\nitem {\n  id: 2\n  name: 'dog'\n}\n"
TURNED = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
Rows = Sequence[Mapping[str, Any] | bytes]


def adopt(folder: Path, rows: Rows, **beside: str) -> Dataset:
    tfrecords.write(folder / "old/train.tfrecord", rows)
    for name, text in beside.items():
        (folder / "old" / name.replace("__", ".")).write_text(text)
    return open_tfrecords(folder / "old/train.tfrecord", index=folder / "out")


def read(dataset: Dataset) -> list[dict[str, Any]]:
    return [dict(record.values) for record in dataset.records("train")]


def batch(dataset: Dataset) -> Any:
    options = {"batch_size": ROWS, "with_key": True}
    (found,) = dataset.evaluation_input("train", **options).as_numpy()
    return found if isinstance(found, Mapping) else found[0]


def floats(name: str, values: Sequence[float]) -> bytes:
    """A feature with a list of floats, as in an Example; nothing without values, as TensorFlow writes it."""
    content = field(1, struct.pack(f"<{len(values)}f", *values)) if values else b""
    return field(1, field(1, name.encode()) + field(2, field(2, content)))


def with_floats(row: Mapping[str, Any], **lists: Sequence[float]) -> bytes:
    """An Example with lists of floats; `__` stands for a slash."""
    more = b"".join(floats(name.replace("__", "/"), values) for name, values in lists.items())
    return example(row) + field(1, more)  # two messages of one field are merged


def pixels(number: int, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> Image.Image:
    values = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    return Image.fromarray(values if mode == "RGBA" else values[..., :3]).convert(mode)


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, form, **options)
    return data.getvalue()


@pytest.mark.parametrize(
    ("form", "mode"),
    [("PNG", "RGB"), ("PNG", "L"), ("PNG", "P"), ("BMP", "RGB"), ("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK")],
)
def test_images_are_the_pixels_of_pillow(form: str, mode: str, tmp_path: Path) -> None:
    files = [encoded(pixels(number, mode), form) for number in range(ROWS)]
    found = batch(adopt(tmp_path, [{"image/encoded": data} for data in files]))
    channels = "L" if mode == "L" else "RGB"
    wanted = np.stack([np.asarray(Image.open(io.BytesIO(data)).convert(channels)) for data in files])
    assert found["image"].dtype == np.uint8
    np.testing.assert_allclose(found["image"].reshape(wanted.shape), wanted, atol=2 if form == "JPEG" else 0)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (encoded(pixels(1, "RGBA"), "PNG"), ["alpha", "20"]),
        (encoded(Image.fromarray(np.arange(24, dtype=np.uint16).reshape(4, 6)), "PNG"), ["16 bits", "as bytes"]),
        (encoded(pixels(1), "JPEG", exif=TURNED),
         ["turned by EXIF", "20"]),
        (encoded(pixels(1), "PNG", exif=TURNED), ["turned by EXIF", "20"]),
        (encoded(pixels(1), "WebP", exif=TURNED), ["turned by EXIF", "20"]),
        (encoded(pixels(1, "P"), "GIF"), ["GIF", "as bytes"]),
        (encoded(pixels(1), "TIFF"), ["TIFF", "as bytes"]),
        (b"\xff\xd8\xff no image", ["bytes"]),
    ],
)  # fmt: skip
def test_what_pixels_do_not_keep_is_said(
    data: bytes, facts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adopt(tmp_path, [{"image": data}] * ROWS)
    assert_names(caplog.text, "image", *facts)


@pytest.mark.parametrize(
    ("mode", "name", "value"),
    [("RGB", "image/segmentation/class/encoded", 4), ("L", "instance-mask", 4_000), ("RGB", "depth", 9)],
)
def test_a_mask_keeps_its_values_in_augmentation(
    mode: str, name: str, value: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mask = np.zeros((4, 6), np.uint8 if value < 256 else np.uint16)
    mask[1:3, 2:5], mask[3] = 2, value
    rows = [{"image": encoded(pixels(1, mode), "JPEG"), name: encoded(Image.fromarray(mask), "PNG")}] * ROWS
    dataset = adopt(tmp_path, rows)
    assert_names(caplog.text, "a mask of 'image'", "kind: image")
    moves = [augment.RandomRotation(40), augment.ColorJitter(0.5), augment.GaussianBlur(3)]
    found = next(dataset.training_input(batch_size=ROWS, seed=1, augment=moves).as_numpy())
    assert {*np.unique(found[re.sub("[/-]", "_", name)])} == {0, 2, value}


def test_raw_pixels_have_the_shape_beside_them(tmp_path: Path) -> None:
    images = [np.asarray(pixels(number)) for number in range(ROWS)]
    rows = [{"image_raw": each.tobytes(), "height": 4, "width": 6, "depth": 3} for each in images]
    assert (batch(adopt(tmp_path, rows))["image"] == np.stack(images)).all()


@pytest.mark.parametrize(
    ("ids", "beside", "names"),
    [
        ([0, 1], {}, ["0", "1"]),
        ([1, 2], {"label_map__pbtxt": MAP}, ["cat", "dog"]),
        ([0, 1], {"labels__txt": "cat\ndog\n"}, ["cat", "dog"]),
        ([1, 2], {"labels__txt": "cat\ndog\n"}, ["cat", "dog"]),
        ([1, 2], {"label_map__pbtxt": MAP + "item { id: 99999999999999 name: 'eel' }"}, ["cat", "dog"]),
        ([1, 7], {"label_map__pbtxt": MAP}, ["cat", "7"]),
    ],
)
def test_labels_have_names(ids: list[int], beside: dict[str, str], names: list[str], tmp_path: Path) -> None:
    dataset = adopt(tmp_path, [{"x": 0.5, "label": ids[number % 2]} for number in range(ROWS)], **beside)
    assert dataset.label == "label"
    assert [each["label"] for each in read(dataset)] == names * (ROWS // 2)
    (found,) = dataset.evaluation_input("train", batch_size=ROWS).as_numpy()
    assert found[1].tolist() == ids * (ROWS // 2)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("labels__txt", "cat\ncat\n"),
        ("label_map__pbtxt", "item { id: 1 name: 'a' } item { id: 1 name: 'b' }"),
        ("label_map__pbtxt", "cat"),
        ("features__json", "{}"),
        ("features__json", '{"featuresDict": {"features": {"label": 3}}}'),
    ],
)
def test_files_beside_that_are_broken_are_said(
    file: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = adopt(tmp_path, [{"x": 0.5, "label": number % 2} for number in range(ROWS)], **{file: text})
    assert dataset.classes == ["0", "1"]
    assert_names(caplog.text, file.replace("__", "."), "broken", "twice")


@pytest.mark.parametrize("classes", [3, 1500])
def test_classes_of_one_name_keep_their_ids(classes: int, tmp_path: Path) -> None:
    said = {"featuresDict": {"features": {"label": {"classLabel": {"numClasses": str(classes)}}}}}
    beside = {"features__json": json.dumps(said), "label__labels__txt": "cat\n" * 2 + "dog\n" * (classes - 2)}
    dataset = adopt(tmp_path, [{"label": number % 2} for number in range(ROWS)], **beside)
    assert dataset.label_counts("train")["cat (1)"] == ROWS // 2
    assert len({*dataset.classes}) == classes


@pytest.mark.parametrize("ids", [[-1, 1], [0, 20_000]])
def test_numbers_that_are_no_classes_stay_numbers(ids: list[int], tmp_path: Path) -> None:
    rows = [{"label": ids[number % 2] % 2**64} for number in range(ROWS)]
    dataset = adopt(tmp_path, rows)
    assert dataset.label is None
    assert batch(dataset)["label"].tolist() == ids * (ROWS // 2)


def test_four_lists_are_boxes_of_the_image(tmp_path: Path) -> None:
    corners = {"ymin": 0.125, "xmin": 0.25, "ymax": 0.5, "xmax": 0.75}
    data = encoded(pixels(1), "PNG")
    rows = [
        with_floats({"image/encoded": data}, **{f"image__object__bbox__{name}": [value] * (number % 3)
                                                for name, value in corners.items()})
        for number in range(ROWS)
    ]  # fmt: skip
    found = batch(adopt(tmp_path, rows))
    assert found["boxes_length"].tolist() == [number % 3 for number in range(ROWS)]
    assert found["boxes"][2].tolist() == [[0.125, 0.25, 0.5, 0.75]] * 2


@pytest.mark.parametrize(("values", "fact"), [([2.0], "not relative"), ([0.5, 0.5], "differ in length")])
def test_other_lists_are_no_boxes(
    values: list[float], fact: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = {"bbox__ymin": [0.0], "bbox__xmin": [0.0], "bbox__ymax": values, "bbox__xmax": [1.0]}
    adopt(tmp_path, [with_floats({"image": encoded(pixels(1), "PNG")}, **lists)] * ROWS)
    assert_names(caplog.text, "bbox/", fact)


@pytest.mark.parametrize("text", [b"BM is a prefix", b"GIF8 as well", b"RIFF too", b"II*\0 and this", b"\x89PNG?"])
def test_texts_that_begin_like_images_are_bytes(text: bytes, tmp_path: Path) -> None:
    dataset = adopt(tmp_path, [{"text": text if number % 2 else b"plain"} for number in range(ROWS)])
    assert [each["text"] for each in read(dataset)] == [b"plain", text] * (ROWS // 2)


SAID = '{"featuresDict": {"features": {"label": {%s}}}}'


@pytest.mark.parametrize(
    ("said", "classes"),
    [
        ('"classLabel": {"numClasses": 1e999}', 2),
        ('"classLabel": {"numClasses": 30000000}', 2),
        ('"classLabel": ' + "[" * 2_000_000, 2),
    ],
    ids=["infinite", "many", "nested"],
)
def test_nothing_grows_with_a_stated_number(said: str, classes: int, tmp_path: Path) -> None:
    rows = [{"label": number % 2} for number in range(ROWS)]
    dataset = adopt(tmp_path, rows, features__json=SAID % said)
    assert dataset.manifest.features["label"]["vocabulary_size"] == classes


def test_a_number_of_many_bytes_leaves_out_its_record(tmp_path: Path) -> None:
    good, long = example({"x": 1}), field(3, field(1, b"\x80" * 11 + b"\x01"))
    odd = field(1, field(1, field(1, b"x") + field(2, long)))
    dataset = adopt(tmp_path, [good, odd, good])
    assert ([each["x"] for each in read(dataset)], dataset.manifest.rejects["by_reason"]) == (
        [1, 1],
        {"malformed_row": 1},
    )


def test_features_are_as_many_as_a_person_looks_at(tmp_path: Path) -> None:
    with raises(UserError, "10,001 features", "limit of 10,000", "tfrecord"):
        adopt(tmp_path, [{f"f{number}": 1 for number in range(10_001)}])
