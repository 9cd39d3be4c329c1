"""`recordmill init` on what other tools write: `data.yaml`'s splits, Hugging Face, pandas, JSON, TFRecords, paths."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from recordmill.pipeline.build.inputs.span_sources import by_span
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.transforms.base.columns import Column, ColumnType
from tests import published_formats as published
from tests import tfrecords
from tests.messages import assert_names, raises
from tests.pictures import saved
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, Read, read, tar, write_jsonl

BOXES = {"image": IMAGE, "categories": Column(ColumnType.CATEGORY, many=True)}


def guessed(folder: Path, path: str = "data") -> tuple[Spec, str]:
    """Guesses a spec in a folder; its paths may be read."""
    text = starter(str(folder / path), FILES, folder=str(folder))
    spec = parse_spec(text)
    spec._folder = str(folder)
    return spec, text


def rows_of(spec: Spec, columns: Any) -> list[tuple[str | None, Read]]:
    return [(source.split, read(reader_of(source), columns)) for source in spec.resolved_sources()]


def images_by_split(folder: Path) -> tuple[dict[str | None, list[str]], str]:
    """Returns each split's images by file name, all with a cat, and the spec's text."""
    spec, text = guessed(folder)
    by_split = dict[str | None, list[str]]()
    for split, found in rows_of(spec, BOXES):
        assert found.rejects == []
        assert all(row["categories"] == ["cat"] for row in found.rows)
        by_split.setdefault(split, []).extend(row["image"].decode().rpartition("/")[2] for row in found.rows)
    return {split: sorted(name.removeprefix("f")[0] for name in names) for split, names in by_split.items()}, text


def yolo(folder: Path, yaml: str, at: str = "data.yaml", label: str = "0 0.5 0.5 0.2 0.2") -> None:
    """Three folders of one image each, `a` to `c`, beside `names`."""
    for number, name in enumerate("abc", 1):
        published.write(folder / f"data/images/s{number}/{name}.jpg", published.jpeg(number))
        published.write(folder / f"data/labels/s{number}/{name}.txt", f"{label}\n")
    published.write(folder / f"data/{at}", f"{yaml}\nnames: [cat, dog]\n")


TWO = {"train": ["a", "b"], "validation": ["c"]}
LIST = "./images/s1/a.jpg\n./images/s2/b.jpg\n"
STATED: list[tuple[str, dict[str, str], str, dict[str | None, list[str]]]] = [
    ("folders", {}, "path: .\ntrain: [images/s1, images/s2]\nval: images/s3", TWO),
    ("folders without a path", {}, "train:\n- images/s1\n- images/s2/\nval: [./images/s3]", TWO),
    ("a path that is elsewhere", {}, "path: ../datasets/x\ntrain: [images/s1, images/s2]\nval: images/s3", TWO),
    ("a path that is absolute", {}, "path: {folder}/data/images\ntrain: [s1, s2]\nval: s3", TWO),
    ("folders that are absolute", {}, "train: [{folder}/data/images/s1, {folder}/data/images/s2]\nval: images/s3", TWO),
    ("Roboflow's", {}, "train: [../images/s1, ../images/s2]\nval: ../images/s3\ntest:", TWO),
    ("Windows'", {}, "train: [images\\s1, images\\s2]\nval: images\\s3", TWO),
    ("a list", {"train.txt": LIST}, "train: train.txt\nval: images/s3", TWO),
    ("lists", {"train.txt": LIST, "val.txt": "./images/s3/c.jpg"}, "path: .\ntrain: ./train.txt\nval: val.txt", TWO),
    ("a list below", {"sets/train.txt": "images/s1/a.jpg\n"}, "train: images/s1\nval: images/s2\ntest: images/s3",
     {"train": ["a"], "validation": ["b"], "test": ["c"]}),
    ("a list without a path", {"train.txt": LIST.replace("./", "")}, "train: train.txt\nval: images/s3", TWO),
    ("both", {"b.txt": "./images/s2/b.jpg\n"}, "train: [images/s1, b.txt]\nval: images/s3", TWO),
    ("other words", {}, "train: [images/s1, images/s2]\nvalid: images/s3", TWO),
]  # fmt: skip


def test_folders_of_a_split_may_have_images_of_one_name(tmp_path: Path) -> None:
    for number in range(1, 4):
        published.write(tmp_path / f"data/s{number}/images/frame 1.jpg", published.jpeg(number))
        published.write(tmp_path / f"data/s{number}/labels/frame 1.txt", "0 0.5 0.5 0.2 0.2\n")
    published.write(tmp_path / "data/data.yaml", "train: [s1/images, s2/images]\nval: s3/images\nnames: [cat]\n")
    spec, text = guessed(tmp_path)
    keys = [(split, key) for split, found in rows_of(spec, BOXES) for key in found.keys]
    assert [split for split, _ in keys] == ["train", "train", "validation"]
    assert len({*keys}) == 3
    assert all(row["categories"] == ["cat"] for _, found in rows_of(spec, BOXES) for row in found.rows)
    assert ": none " in text


ALL: dict[str | None, list[str]] = {None: ["a", "b", "c"]}
ODD: list[tuple[str, dict[str, str], str, dict[str | None, list[str]], str]] = [
    ("a folder that is not there", {}, "train: images/s1\nval: [images/s2, images/s9]",
     {"train": ["a"], "validation": ["b"]}, "images/s9"),
    ("nothing that is there", {}, "train: /far/away\nval: https://far/away.txt", ALL, "/far/away"),
    ("images of no split", {}, "train: images/s1\nval: images/s3", {"train": ["a"], "validation": ["c"]}, "s2/b.jpg"),
    ("the same for both", {}, "train: images/s1\nval: images/s1", {None: ["a"]}, "s1/a.jpg"),
    ("some in both", {}, "train: images\nval: images/s1", ALL, "s1/a.jpg"),
    ("a list of another machine", {"train.txt": "/home/me/images/s1/a.jpg", "val.txt": "images/s3/c.jpg"},
     "train: train.txt\nval: val.txt", ALL, "In doubt: data.yaml: images are missing at train.txt"),
]  # fmt: skip
CASES = [*((*case, "") for case in STATED), *ODD]


@pytest.mark.parametrize(
    ("lists", "yaml", "expected", "said"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_splits_that_data_yaml_states(
    lists: dict[str, str], yaml: str, expected: dict[str | None, list[str]], said: str, tmp_path: Path
) -> None:
    yolo(tmp_path, yaml.replace("{folder}", str(tmp_path)))
    for name, text in lists.items():
        published.write(tmp_path / f"data/{name}", text)
    found, text = images_by_split(tmp_path)
    assert found == expected
    comments = " ".join(line.strip("# ") for line in text.splitlines() if line.startswith("#"))
    assert said in comments if said else "left out" not in text or "sets" in str(lists)


@pytest.mark.parametrize(
    "label", ["0.0 0.5 0.5 0.2 0.2", "0. 0.5 0.5 0.2 0.2", "0\t0.5 0.5 0.2 0.2", " 0 .5 .5 2e-1 0.2", "0 5E-1 .5 .2 .2"]
)
@pytest.mark.parametrize("has_names", [True, False])
def test_numbers_of_yolo(label: str, has_names: bool, tmp_path: Path) -> None:
    yolo(tmp_path, "train: images", label=label)
    if not has_names:
        (tmp_path / "data/data.yaml").unlink()
        published.write(tmp_path / "data/classes.txt", "cat\ndog\n")
    assert images_by_split(tmp_path)[0] == {None: ["a", "b", "c"]}


@pytest.mark.parametrize("label", ["1.5 0.5 0.5 0.2 0.2", "cat 0.5 0.5 0.2 0.2", "0 -0.5 0.5 0.2 0.2"])
def test_a_wrong_line_beside_names_is_a_reject_that_init_shows(label: str, tmp_path: Path) -> None:
    yolo(tmp_path, "train: images")
    published.write(tmp_path / "data/labels/s2/b.txt", label)
    assert "(1 malformed_row)" in guessed(tmp_path)[1]


def test_one_odd_file_is_a_reject_and_most_a_doubt(tmp_path: Path) -> None:
    yolo(tmp_path, "train: images")
    (tmp_path / "data/data.yaml").unlink()
    published.write(tmp_path / "data/labels/s2/b.txt", "cat 0.5 0.5 0.2 0.2")
    assert "(1 malformed_row)" in guessed(tmp_path)[1]
    published.write(tmp_path / "data/labels/s1/a.txt", "cat")
    assert_names(guessed(tmp_path)[1].replace("\n#   ", " "), "In doubt: ", "labels/s1/a.txt: ", "COCO, VOC or YOLO")


def test_captions_beside_names_stay_captions(tmp_path: Path) -> None:
    yolo(tmp_path, "train: images", label="a cat of 5")
    assert {source.format for source in guessed(tmp_path)[0].source} == {"image_folder"}


LABEL = {"_type": "ClassLabel", "names": ["negative", "positive"]}


def write_hub(folder: Path, labels: dict[str, list[Any]]) -> None:
    """A dataset of the hub, a file a split."""
    features = {"sentence": [{"_type": "Value", "id": None, "a": 1}], "label": LABEL}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    folder.mkdir()
    for split, values in labels.items():
        rows = [{"sentence": f"{split} film {n}", "label": value} for n, value in enumerate(values)]
        table = pa.Table.from_pylist(rows).replace_schema_metadata(metadata)
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet", row_group_size=7)


def test_a_split_without_labels_is_left_out(tmp_path: Path) -> None:
    write_hub(tmp_path / "data", {"train": [0, 1] * 10, "validation": [1, 0] * 10, "test": [-1] * 20})
    spec, text = guessed(tmp_path)
    assert [source.split for source in spec.source] == ["train", "validation"]
    assert spec.features["label"].model_dump()["classes"] == {"0": "negative", "1": "positive"}
    assert spec.label == "label"
    assert "test-00000-of-00001.parquet" in text
    assert "max_share" not in text


@pytest.mark.parametrize("labels", [[None] * 20, [[0]] * 20])
def test_a_split_whose_labels_are_nothing_or_lists(labels: list[Any], tmp_path: Path) -> None:
    write_hub(tmp_path / "data", {"train": [0, 1] * 10, "test": labels})
    spec, text = guessed(tmp_path)
    assert ("label: 1 (" in text) is (labels[0] is None)
    assert len(spec.source) == (1 if labels[0] is None else 2)


def test_what_has_no_label_is_a_reject_and_never_a_class(tmp_path: Path) -> None:
    write_hub(tmp_path / "data", {"train": [0, 1, -1] + [1] * 17})
    spec, text = guessed(tmp_path)
    assert spec.features["label"].model_dump()["classes"] == {"0": "negative", "1": "positive"}
    assert_names(text, "(1 missing_value in column label)")
    ((_, found),) = rows_of(spec, {"label": CATEGORY})
    assert [row["label"] for row in found.rows] == ["0", "1"] + ["1"] * 17
    assert [fault[:2] for fault in found.faults] == [("missing_value", "label")]
    ((_, found),) = rows_of(spec, {"label": Column(ColumnType.CATEGORY, optional=True)})
    assert [row["label"] for row in found.rows][:3] == ["0", "1", None]


@pytest.mark.parametrize(
    "metadata",
    [b"[1", b"[]", b'{"info": 7}', b'{"info": {"features": [[], {"a": {}}]}}', b"\xff",
     b'{"info": {"features": {"label": {"_type": "Value", "dtype": "int64"}}}}'],
)  # fmt: skip
def test_metadata_without_names_ends_nothing(metadata: bytes, tmp_path: Path) -> None:
    table = pa.table({"label": [0, 1, -1] * 7, "text": ["some words"] * 21})
    pq.write_table(
        table.replace_schema_metadata({b"huggingface": metadata, b"pandas": metadata}), tmp_path / "a.parquet"
    )
    ((_, found),) = rows_of(guessed(tmp_path, "a.parquet")[0], {"label": CATEGORY})
    assert [row["label"] for row in found.rows][:3] == ["0", "1", "-1"]


def test_labels_beside_the_ids_of_tokens_are_no_classes(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"input_ids": [5, n, 9], "labels": [-100, -100, 9]} for n in range(60)])
    spec, _ = guessed(tmp_path, "a.jsonl")
    assert [(feature.kind, spec.label) for feature in spec.features.values()] == [("raw", None)] * 2


@pytest.mark.parametrize(("odd", "is_left_out"), [("bad", True), ("ok", False)])  # a value of another class
def test_a_column_that_tells_the_label_is_left_out(odd: str, is_left_out: bool, tmp_path: Path) -> None:
    names = ["bad", "ok", "good"]
    rows = [{"label": n % 3, "label_text": names[n % 3], "stars": n % 5, "text": f"some words {n}"} for n in range(60)]
    rows[0]["label_text"] = odd
    write_jsonl(tmp_path / "a.jsonl", rows)
    spec, text = guessed(tmp_path, "a.jsonl")
    assert (spec.label, "label_text" not in spec.features) == ("label", is_left_out)
    assert {"stars", "text"} <= spec.features.keys()
    assert ("# label_text: one value for each of 'label'" in text) is is_left_out


def table_of_pandas() -> pd.DataFrame:
    rows = pd.DataFrame({"text": [f"row {n} of it" for n in range(12)], "label": list("ab" * 6)})
    return rows.sample(frac=1, random_state=1)


INDEXES: list[tuple[str, Callable[[pd.DataFrame], pd.DataFrame], str, bool]] = [
    ("without a name", lambda rows: rows, "__index_level_0__", True),
    ("with a name", lambda rows: rows.rename_axis("row"), "row", False),
    ("of two columns", lambda rows: rows.set_index([rows.index, rows.index]), "__index_level_1__", True),
    ("an id", lambda rows: rows.rename_axis("row_id"), "row_id", False),
    ("a word", lambda rows: rows.set_index(rows.label.str.upper().rename("word")), "word", False),
]


@pytest.mark.parametrize(("change", "name", "is_index"), [case[1:] for case in INDEXES], ids=[c[0] for c in INDEXES])
def test_the_index_of_pandas(
    change: Callable[[pd.DataFrame], pd.DataFrame], name: str, is_index: bool, tmp_path: Path
) -> None:
    change(table_of_pandas()).to_parquet(tmp_path / "train.parquet")
    spec, text = guessed(tmp_path, "train.parquet")
    read_columns = {*(spec.key_columns or ()), *(feature.column or name for name, feature in spec.features.items())}
    assert (name not in read_columns) is is_index
    assert (f"# {name}: pandas' index" in text) is is_index


@pytest.mark.parametrize("head", ["text,Unnamed: 1,label", "Unnamed: 0,text,label"])
def test_a_nameless_column_of_values_is_no_index(head: str, tmp_path: Path) -> None:
    rows = (f"\nword {n},{n % 3},a" if head[0] == "t" else f"\n{n % 3},word {n},a" for n in range(12))
    (tmp_path / "train.csv").write_text("".join([head, *rows]))
    assert len(guessed(tmp_path, "train.csv")[0].features) == 3


@pytest.mark.parametrize(("path", "comment"), [("once.csv", "# '': "), ("twice.csv", "# Unnamed: 0: pandas' index")])
def test_an_index_that_pandas_wrote_into_csv(path: str, comment: str, tmp_path: Path) -> None:
    table_of_pandas().to_csv(tmp_path / "once.csv")
    pd.read_csv(tmp_path / "once.csv").to_csv(tmp_path / "twice.csv", index=False)
    spec, text = guessed(tmp_path, path)
    assert [*spec.features] == ["text", "label"]
    assert comment in text


@pytest.mark.parametrize("names", [["X_train.csv", "y_train.csv", "X_test.csv"], ["a.csv", "b.csv.gz", "notes.txt"]])
def test_no_source_holds_files_of_another(names: list[str], tmp_path: Path) -> None:
    for name in names:
        data = "".join(["text\n", *(f"row {n} of {name}\n" for n in range(30))]).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    spec, _ = guessed(tmp_path, ".")
    read_files = [file.path for each in spec.source for file in FILES.match(str(tmp_path / each.path))]
    assert sorted(Path(path).name for path in read_files) == sorted(name for name in names if ".csv" in name)


MARKS = {"kind": "numbers", "length": 3, "normalize": "none"}
VALUES: list[tuple[str, Callable[[int], Any], dict[str, Any] | None, bool]] = [
    ("No", lambda n: n, {"kind": "number"}, False),  # YAML reads a bare No as a boolean
    ("price", lambda n: f"{n}.50", {"kind": "number", "parse": True}, False),
    ("ean", lambda n: f"76123456789{n:02}", {"kind": "raw"}, False),
    ("label", lambda n: n % 12, {"kind": "category", "classes": tuple(map(str, range(12)))}, True),
    ("labels", lambda n: [n % 2, 1 - n % 2, 0], MARKS, True),
    ("labels", lambda n: [n % 2, 1.0 - n % 2, 0.0], MARKS, True),
    ("labels", lambda n: [[0], [1], [0, 1]][n % 3], {"kind": "categories", "classes": ("0", "1")}, True),
    ("label", lambda n: [[0, n % 5, "PER"], [n % 9, 9, "LOC"]], None, False),  # doccano's spans, spaCy's entities
    ("tags", lambda n: [1, 2] if n % 2 else ["a", "b"], {"kind": "categories"}, False),
    ("input_ids", lambda n: [101, *range(n), 102], {"kind": "raw", "type": "int64", "many": True}, False),
]


@pytest.mark.parametrize(("name", "value", "wanted", "is_label"), VALUES)
def test_values_in_json(
    name: str, value: Callable[[int], Any], wanted: dict[str, Any] | None, is_label: bool, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"row {n} of it", name: value(n)} for n in range(60)])
    spec, _ = guessed(tmp_path, "a.jsonl")
    assert spec.model_dump(exclude_unset=True)["features"].get(name) == wanted
    assert (spec.label == name) is is_label


RECORDS: list[tuple[str, list[str], str]] = [
    ("of the Object Detection API", ["train.record"], "data"),
    ("its shards", [f"coco.record-0000{n}-of-00002" for n in range(2)], "data"),
    ("in another case", ["TRAIN.Records"], "data/TRAIN.Records"),
    ("by no ending", [f"mydata-0000{n}-of-00002" for n in range(2)], "data"),
    ("one by no ending", ["mydata"], "data/mydata"),
    ("by a glob", [f"mydata-0000{n}-of-00002" for n in range(2)], "data/mydata-*"),
    ("by an odd ending", ["a.bin", "b.bin"], "data"),
    ("by the usual name", [f"train.tfrecord-0000{n}-of-00002" for n in range(2)], "data"),
]


@pytest.mark.parametrize(("names", "path"), [case[1:] for case in RECORDS], ids=[case[0] for case in RECORDS])
def test_tfrecords_are_known_by_their_frames(names: list[str], path: str, tmp_path: Path) -> None:
    for name in names:
        tfrecords.write(tmp_path / "data" / name, [{"text": b"row %d of it" % n} for n in range(20)])
    published.write(tmp_path / "data/label_map.pbtxt", "item { id: 1 name: 'cat' }\n")
    spec, _ = guessed(tmp_path, path)
    assert {source.format for source in spec.source} == {"tfrecord"}
    assert sum(len(found.rows) for _, found in rows_of(spec, {"text": Column(ColumnType.TEXT)})) == 20 * len(names)


BRACES = ["set {span} {YYYY}", "{span}", "{YYYY}-{MM}-{DD}", "{x}", "[a] {HH}"]


@pytest.mark.parametrize("folder", BRACES)
def test_folders_that_are_called_as_spans_are(folder: str, tmp_path: Path) -> None:
    """Escapes folders of images, globs of rows, and the folder of the spec."""
    for n in range(2):
        published.write(tmp_path / f"{folder}/images/{'ab'[n]}/{n}.jpg", published.jpeg(n))
        published.write(tmp_path / f"{folder}/rows/{n}.jsonl", '{"text": "some words"}\n' * 9)
    for path, columns, count in (("images", {"label": CATEGORY}, 2), ("rows", {"text": CATEGORY}, 18)):
        for home in (tmp_path, tmp_path / folder, tmp_path / folder / "images"):
            text = starter(str(tmp_path / folder / path), FILES, folder=str(home))
            spec = parse_spec(text)
            spec._folder = str(home)
            assert not spec.has_templates
            assert sum(len(found.rows) for _, found in rows_of(spec, columns)) == count


def test_spans_inside_a_folder_that_is_called_so(tmp_path: Path) -> None:
    """The folder of the spec, and one on the way."""
    for day in ("2026-11-20", "2026-11-21"):
        published.write(tmp_path / f"{{span}}/[a] {{HH}}/{day}/0.jsonl", '{"n": 1}\n')
    path = "'[[]a] [{]HH}/{YYYY}-{MM}-{DD}/*.jsonl'"
    spec = parse_spec(f"name: a\nsource: {{format: jsonl, path: {path}}}\nfeatures: {{n: {{kind: number}}}}\n")
    spec._folder = str(tmp_path / "{span}")
    parts = by_span(spec, FILES)
    assert [part.span for part in parts] == ["2026-11-20", "2026-11-21"]
    assert [read(part.reader, {"n": NUMBER}).rows for part in parts] == [[{"n": 1.0}]] * 2


def test_a_wrong_span_names_the_escape() -> None:
    with raises(UserError, "[{]YYYY}"):
        parse_spec("name: a\nsource: {format: jsonl, path: 'a {YYYY}/'}\nfeatures: {n: {kind: number}}\n")


def windows(path: str) -> str:
    return path.replace("/", "\\")


def write_table(folder: Path) -> None:
    lines = [f"{windows(f'images/sub/{n}.jpg')},{'ab'[n]}" for n in range(2)]
    published.write(folder / "rows.csv", "\n".join(["image,label", *lines]))


def write_metadata(folder: Path) -> None:
    published.write_json(folder / "metadata.jsonl", {})
    rows = [{"file_name": windows(f"images/sub/{n}.jpg"), "label": "ab"[n]} for n in range(2)]
    published.write(folder / "metadata.jsonl", "\n".join(map(json.dumps, rows)))


def write_coco(folder: Path) -> None:
    images = [{"id": n, "file_name": windows(f"sub/{n}.jpg")} for n in range(2)]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 3, 4]} for n in range(2)]
    published.write_json(
        folder / "instances.json", {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    )


@pytest.mark.parametrize(
    ("write", "path", "beyond"),
    [(write_table, "rows.csv", ""), (write_table, "tables/rows.csv", "images/"), (write_metadata, "", ""),
     (write_coco, "", "")],
)  # fmt: skip
def test_paths_that_windows_wrote(write: Callable[[Path], None], path: str, beyond: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data / Path(path).parent)
    for n in range(2):
        published.write(data / f"{Path(path).parent}/{beyond}images/sub/{n}.jpg", published.jpeg(n))
    spec, text = guessed(tmp_path, f"data/{path}")
    ((_, found),) = rows_of(spec, {"image": IMAGE})
    assert [row["image"].decode().rpartition("sub/")[2] for row in found.rows] == ["0.jpg", "1.jpg"]
    assert_names(text, "headers in 2 rows: none")


def test_a_name_that_holds_a_backslash_is_its_own(tmp_path: Path) -> None:
    write_table(tmp_path)
    for n in range(2):
        published.write(tmp_path / windows(f"images/sub/{n}.jpg"), published.jpeg(n))
        published.write(tmp_path / f"images/sub/{n}.jpg", published.jpeg(n))
    spec, _ = guessed(tmp_path, "rows.csv")
    ((_, found),) = rows_of(spec, {"image": IMAGE})
    assert [row["image"].decode() for row in found.rows] == [windows(f"fimages/sub/{n}.jpg") for n in range(2)]


TABLE = pd.DataFrame({"text": [f"hello {row}" for row in range(12)], "id": [f"00{row}" for row in range(12)]})
OF_PANDAS: dict[str, Callable[[Path], Any]] = {
    "columns": TABLE.to_json,
    "indented columns": lambda path: TABLE.to_json(path, indent=2),
    "columns of 2 MiB": lambda path: pd.concat([TABLE] * 10_000, ignore_index=True).to_json(path),
    "index": lambda path: TABLE.to_json(path, orient="index"),
    "split": lambda path: TABLE.to_json(path, orient="split"),
    "table": lambda path: TABLE.to_json(path, orient="table"),
    "columns of a part": TABLE.set_index(TABLE.index + 3).to_json,
    "columns by word": TABLE.set_index("r" + TABLE.index.astype(str)).to_json,
    "columns of lists": lambda path: path.write_text(json.dumps(TABLE.to_dict("list"))),
}


@pytest.mark.first(9)
@pytest.mark.parametrize("name", OF_PANDAS)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_table_in_one_object_is_refused_with_the_command(tmp_path: Path, name: str, ending: str) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / f"data/train{'.json' if 'lists' in name else ending}"
    OF_PANDAS[name](file)
    with raises(UserError, file.name, "one row") as raised:
        starter(str(tmp_path / "data"), FILES)
    command = re.search(r"pandas\.read_json\(.*$", str(raised.value))
    assert command
    exec(f"import pandas; {command[0]}")
    [lines] = (tmp_path / "data").glob("*lines.jsonl")
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["text"], row["id"]) for row in rows[:12]] == list(TABLE.itertuples(index=False, name=None))


def of_hugging_face(folder: Path) -> None:
    folder.mkdir()
    (folder / "dataset_info.json").write_text('{"features": {"text": {"dtype": "string"}}}')
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "1"}')


def test_descriptions_of_hugging_face_are_no_data(tmp_path: Path) -> None:
    of_hugging_face(tmp_path / "data")
    with raises(UserError, "Hugging Face", "`Dataset.to_parquet`"):
        starter(str(tmp_path / "data"), FILES)
    (tmp_path / "data/data.arrow").write_bytes(b"ARROW1\0\0")
    with raises(UserError, "data.arrow", "`Dataset.to_parquet`"):
        starter(str(tmp_path / "data"), FILES)


def test_what_img2dataset_writes_is_its_samples(tmp_path: Path) -> None:
    members = [(f"{n:05}.{end}", data) for n in range(9) for end, data in (("png", saved(form="PNG")), ("txt", "a b"))]
    (tmp_path / "data").mkdir()
    (tmp_path / "data/00000.tar").write_bytes(tar(*members))
    pd.DataFrame({"url": ["http://a/b.png"] * 9, "caption": ["a b"] * 9}).to_parquet(tmp_path / "data/00000.parquet")
    spec, text = guessed(tmp_path)
    assert [(each.format, each.path) for each in spec.source] == [("webdataset", "data/00000.tar")]
    assert "# left out: 1 (00000.parquet)" in text


def test_objects_that_share_no_key_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    (tmp_path / "vocab.json").write_text('{"the": 1, "a": 2}')
    with raises(UserError, "key", "config.json, vocab.json"):
        starter(str(tmp_path), FILES)


def test_objects_beside_files_of_rows_are_left_out(tmp_path: Path) -> None:
    of_hugging_face(tmp_path / "data")
    for name in ("part-1", "part-2"):
        TABLE.to_json(tmp_path / f"data/{name}.json", orient="records", lines=True)
    (tmp_path / "data/labels.json").write_text('{"0": "cat", "1": "dog"}')
    text = starter(str(tmp_path / "data"), FILES)
    assert yaml.safe_load(text)["source"]["path"].endswith("part-*.json")
    assert_names(text.replace("\n#   ", " "), ": 2 (dataset_info.json, state.json)", "The 24 rows")
