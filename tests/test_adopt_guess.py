"""What adoption finds in records by their values alone, also odd ones: images, labels, boxes, lists, and its doubts."""

import io
import json
import re
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
from tests.pictures import saved as encoded
from tests.published import example, feature, field

pytestmark = pytest.mark.usefixtures("home")
ROWS = 20
MAP = "item {\n  id: 1\n  name: 'cat'\n}\nitem {\n  id: 2\n  name: 'dog'\n}\n"
TURNED = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
Rows = Sequence[Mapping[str, Any] | bytes]


def adopt(folder: Path, rows: Rows, **beside: str) -> Dataset:
    tfrecords.write(folder / "old/train.tfrecord", rows)
    for name, text in beside.items():
        (folder / "old" / name.replace("__", ".")).write_text(text)
    return open_tfrecords(folder / "old/train.tfrecord", index=folder / "out", max_share=1)


def read(dataset: Dataset) -> list[dict[str, Any]]:
    return [dict(record.values) for record in dataset.records("train")]


def batch(dataset: Dataset) -> Any:
    options = {"batch_size": ROWS, "with_key": True}
    (found,) = dataset.evaluation_input("train", **options).as_numpy()
    return found if isinstance(found, Mapping) else found[0]


def pixels(number: int, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> Image.Image:
    values = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    return Image.fromarray(values if mode == "RGBA" else values[..., :3]).convert(mode)


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
        *((encoded(pixels(1), form, exif=TURNED), ["turned by EXIF", "20"]) for form in ("JPEG", "PNG", "WebP")),
        (encoded(pixels(1, "P"), "GIF"), ["GIF", "as bytes"]),
        (encoded(pixels(1), "TIFF"), ["TIFF", "as bytes"]),
        (b"\xff\xd8\xff no image", ["bytes"]),
    ],
)
def test_what_pixels_do_not_keep_is_said(
    data: bytes, facts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adopt(tmp_path, [{"image": data}] * ROWS)
    assert_names(caplog.text, "image", *facts)


@pytest.mark.parametrize(
    ("mode", "name", "value"), [("RGB", "image/segmentation/class/encoded", 4), ("L", "instance-mask", 4_000)]
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


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_by_their_bytes_alone_stay_bytes(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = encoded(pixels(1, mode), "PNG")
    dataset = adopt(tmp_path, [{"image": encoded(pixels(1), "JPEG"), "x": data}] * ROWS)
    assert read(dataset)[0]["x"] == data
    assert_names(caplog.text, "x:", "`kind: image`", "`kind: mask`")


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
    rows: list[dict[str, Any]] = [
        {"image/encoded": data, **{f"image/object/bbox/{side}": np.full(n % 3, at) for side, at in corners.items()}}
        for n in range(ROWS)
    ]
    found = batch(adopt(tmp_path, rows))
    assert found["boxes_length"].tolist() == [number % 3 for number in range(ROWS)]
    assert found["boxes"][2].tolist() == [[0.125, 0.25, 0.5, 0.75]] * 2


@pytest.mark.parametrize(
    ("dtype", "values", "fact"),
    [(float, [2.0], "not relative"), (int, [9], "not relative"), (float, [0.5, 0.5], "differ in length")],
)
def test_other_lists_are_no_boxes(
    dtype: type, values: list[float], fact: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = {"bbox/ymin": [0.0], "bbox/xmin": [0.0], "bbox/ymax": values, "bbox/xmax": [1.0]}
    row = {"image": encoded(pixels(1), "PNG"), **{name: np.array(each, dtype) for name, each in lists.items()}}
    adopt(tmp_path, [row] * ROWS)
    assert_names(caplog.text, "bbox/", fact)


@pytest.mark.parametrize("text", [b"BM is a prefix", b"GIF8 as well", b"RIFF too", b"II*\0 and this", b"\x89PNG?"])
def test_texts_that_begin_like_images_are_bytes(text: bytes, tmp_path: Path) -> None:
    dataset = adopt(tmp_path, [{"text": text if number % 2 else b"plain"} for number in range(ROWS)])
    assert [each["text"] for each in read(dataset)] == [b"plain", text] * (ROWS // 2)


def test_a_tensor_of_another_size_than_said_stays_bytes_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensor = {"shape": {"dimensions": ["2", "3"]}, "dtype": "int32", "encoding": "bytes"}
    text = json.dumps({"featuresDict": {"features": {"matrix": {"tensor": tensor}}}})
    dataset = adopt(tmp_path, [{"matrix": bytes(20)} for _ in range(ROWS)], features__json=text)
    assert dataset.manifest.features["matrix"]["kind"] == "raw"
    [note] = (note for note in caplog.messages if "matrix" in note)
    assert_names(note, "not decoded", "24 bytes", "20 to 20 bytes")


@pytest.mark.parametrize(
    "said", ['{"numClasses": 1e999}', '{"numClasses": 30000000}', "[" * 2_000_000], ids=["infinite", "many", "nested"]
)
def test_nothing_grows_with_a_stated_number(said: str, tmp_path: Path) -> None:
    text = '{"featuresDict": {"features": {"label": {"classLabel": SAID}}}}'.replace("SAID", said)
    dataset = adopt(tmp_path, [{"label": number % 2} for number in range(ROWS)], features__json=text)
    assert dataset.manifest.features["label"]["vocabulary_size"] == 2


def test_a_number_of_many_bytes_leaves_out_its_record(tmp_path: Path) -> None:
    good, long = example({"x": 1}), field(3, field(1, b"\x80" * 11 + b"\x01"))
    odd = field(1, field(1, field(1, b"x") + field(2, long)))
    dataset = adopt(tmp_path, [good, odd, good])
    assert [each["x"] for each in read(dataset)] == [1, 1]
    assert dataset.manifest.rejects["by_reason"] == {"malformed_row": 1}


def test_features_are_as_many_as_a_person_looks_at(tmp_path: Path) -> None:
    with raises(UserError, "10,001 features", "limit of 10,000", "tfrecord"):
        adopt(tmp_path, [{f"f{number}": 1 for number in range(10_001)}])


def entry(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [(b"\xff\xfe", feature(1), "udcff"), (b"", feature(1), "''"), (b"never", field(3, b""), "never")],
)
def test_features_that_cannot_be_read_are_left_out_and_said(
    name: bytes, value: bytes, shown: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def record(number: int) -> bytes:
        pairs = ((b"a", feature(number)), (name, value))
        return field(1, b"".join(entry(*pair) for pair in pairs))

    dataset = adopt(tmp_path, [record(number) for number in range(ROWS)])
    assert_names(caplog.text, shown, "left out")
    assert read(dataset) == [{"a": number} for number in range(ROWS)]


LEGAL = {  # the same list in the other forms that protocol buffers allow
    "unpacked": entry(b"a", field(3, b"\x08\x01\x08\xac\x02")),
    "several lists": entry(b"a", feature([1]) + feature([300])),
    "two of a name": entry(b"a", feature([7])) + entry(b"a", feature([1, 300])),
    "of two kinds": entry(b"a", feature(b"x") + feature([1, 300])),
}


@pytest.mark.parametrize("empty", [field(3, b""), b"", field(1, b"")])
def test_an_empty_list_of_any_type_is_missing(empty: bytes, tmp_path: Path) -> None:
    rows = [entry(b"a", empty if number == 3 else feature(number)) + entry(b"b", feature(1)) for number in range(ROWS)]
    dataset = adopt(tmp_path, [field(1, row) for row in rows])
    assert batch(dataset)["a"].tolist() == [number * (number != 3) for number in range(ROWS)]
    assert dataset.manifest.rejects["by_reason"] == {}


def test_keys_of_another_type_are_rejected(tmp_path: Path) -> None:
    odd = [{"id": 0.5, "a": 1}, {"id": b"x", "a": 1}, {"a": 1}, field(1, entry(b"id", field(3, b"")))]
    rows = [{"id": number, "a": 1} for number in range(ROWS)] + odd
    tfrecords.write(tmp_path / "old/train.tfrecord", rows)
    dataset = open_tfrecords(tmp_path / "old", tmp_path / "out", key="id", max_share=1)
    assert batch(dataset)["key"].tolist() == [b"%d" % number for number in range(ROWS)]
    assert dataset.manifest.rejects["by_reason"] == {"wrong_type": 1, "missing_key": 3}


@pytest.mark.parametrize("form", LEGAL)
def test_lists_in_other_legal_forms_are_read(form: str, tmp_path: Path) -> None:
    usual, unknown = entry(b"a", feature([1, 300])), field(9, b"unknown")
    rows = [field(1, LEGAL[form] if number % 2 else usual) + unknown * (number % 3) for number in range(ROWS)]
    dataset = adopt(tmp_path, rows)
    assert batch(dataset)["a"].tolist() == [[1, 300]] * ROWS
    assert [list(each["a"]) for each in read(dataset)] == [[1, 300]] * ROWS


def test_sequence_examples_are_lists_and_nested_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def record(number: int) -> bytes:
        flat = b"".join(field(1, feature(step)) for step in range(number % 4))
        deep = field(1, feature([1, 2])) + field(1, feature([3]))
        return example({"id": number}) + field(2, entry(b"flat", flat) + entry(b"deep", deep))

    dataset = adopt(tmp_path, [record(number) for number in range(ROWS)])
    assert [list(each["flat"]) for each in read(dataset)] == [list(range(number % 4)) for number in range(ROWS)]
    assert batch(dataset)["id"].tolist() == list(range(ROWS))
    assert_names(caplog.text, "deep: left out", "list of lists")


def test_odd_names_become_different_ones(tmp_path: Path) -> None:
    row = {"é": 1, "a b": 2, "a.b": 3, "1x": 4, "key": 5, "x_length": 6}
    rows = [{**row, "x": [7] * (1 + number % 2)} for number in range(ROWS)]
    found = batch(adopt(tmp_path, rows))
    assert all(name.isascii() and name[0].isalpha() for name in found)
    assert found["key"].dtype == object
    assert found["x_length"].tolist() == [1, 2] * (ROWS // 2)
    columns = {found[name][0] for name in found if name not in ("key", "x", "x_length")}
    assert columns == set(row.values())


def test_a_feature_that_late_records_lack_is_optional(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"a": number, "b": number} if number < 3000 else {"a": number} for number in range(3010)]
    dataset = adopt(tmp_path, rows)
    assert_names(caplog.text, "b: ", "10 records", "optional")
    assert [dict(each) for each in read(dataset)][2999] == {"a": 2999, "b": 2999}
    assert sum(each.get("b") in (None, 0) for each in read(dataset)) == 11


@pytest.mark.parametrize(
    "stated", [None, {"label": {"kind": "category", "classes": ["a", "b"]}}, {"label": {"kind": "raw"}}]
)
def test_records_without_the_label_are_rejected(stated: Any, tmp_path: Path) -> None:
    rows = [{"a": number, **({"label": 1} if number % 2 else {})} for number in range(ROWS)]
    tfrecords.write(tmp_path / "old/train.tfrecord", rows)
    dataset = open_tfrecords(tmp_path / "old", tmp_path / "out", features=stated, label="label", max_share=1)
    (found,) = dataset.evaluation_input("train", batch_size=ROWS).as_numpy()
    assert found[1].tolist() == [1] * (ROWS // 2)
    assert dataset.manifest.rejects["by_reason"] == {"missing_value": ROWS // 2}
    assert "label_missing" not in found[0]
