"""`recordmill init` says first what it is not sure of: where, what it read, and what else the data may be."""

import io
import json
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from recordmill.pipeline.build.build import build
from recordmill.pipeline.init.boxes import box_doubts
from recordmill.pipeline.init.dialect import cell_options
from recordmill.pipeline.init.doubts import column_doubts, commas, document_doubts, folder_doubts, value_doubts
from recordmill.pipeline.init.starter import first_lines
from recordmill.pipeline.spec.model import load_spec
from tests.forked import recordmill
from tests.messages import assert_names
from tests.tables import tar, write, write_jsonl
from tests.test_init import guessed, image_bytes, texts

RANDOM = random.Random(3)
WORDS = "house near long day saw ran the old road kind one my home and".split()
Make = Callable[[Path], Any]


def sentence(words: int = 8) -> str:
    return " ".join(RANDOM.choices(WORDS, k=words))


def sentences(count: int) -> str:
    return "".join(f"{sentence()}.\n" for _ in range(count))


def one_pair(folder: Path, lines: int = 30) -> None:
    write(folder / "data/train.en", sentences(30))
    write(folder / "data/train.de", sentences(lines))


def shared_paragraphs(folder: Path) -> None:
    """SQuAD's layout: questions share a paragraph, paragraphs an article."""
    write(folder / "a.json", json.dumps({"data": [
        {"title": f"t{n % 12}", "paragraphs": [{"context": f"{n} {sentence()}", "qas": [
            {"id": f"{n}-{q}", "question": sentence()} for q in range(4)]}]} for n in range(48)]}))  # fmt: skip


def shared_premises(folder: Path) -> None:
    premises = [f"{n} {sentence(12)}" for n in range(40)]
    rows = [{"premise": premise, "hypothesis": sentence(4), "label": n} for premise in premises for n in range(3)]
    write_jsonl(folder / "a.jsonl", rows)


def polarity(folder: Path) -> None:
    for name in ("pos", "neg"):
        write(folder / f"data/rt-polarity.{name}", sentences(30))


def a_text_a_split(folder: Path) -> None:
    for split, count in (("train", 200), ("valid", 50), ("test", 50)):
        write(folder / f"data/{split}.txt", sentences(count))


def summaries(folder: Path) -> None:
    for n in range(24):
        write(folder / f"data/articles/{n}.txt", sentences(3 + n % 5))
        write(folder / f"data/digests/{n}.txt", sentences(1))


def image_folders(*names: str, count: int = 12) -> Make:
    def make(folder: Path) -> None:
        for n in range(count):
            for name in names:
                write(folder / "data" / name.format(n=n), image_bytes())

    return make


def one_split(table: str) -> Make:
    """Roboflow's exports of a single split: a table below the folder names the images beside it."""

    def make(folder: Path) -> None:
        image_folders("train/{n}.png")(folder)
        write(folder / f"data/train/{table}", "filename, cat\n" + "".join(f"{n}.png, {n % 2}\n" for n in range(12)))

    return make


def emotions(cells: Sequence[str], labels: bool) -> Make:
    def make(folder: Path) -> None:
        for split in ("train", "dev"):
            rows = [f"{sentence()}\t{cells[n % len(cells)]}\tid{split}{n}x\n" for n in range(120)]
            write(folder / f"data/{split}.tsv", "".join(rows))
        if labels:
            write(folder / "data/labels.txt", "".join(f"emotion{n}\n" for n in range(28)))

    return make


SINGLE = [str(n) for n in range(28)]


def rows_of_images(folder: Path) -> None:
    for n in range(20):
        write(folder / f"data/images/{n}.png", image_bytes())
    rows = [f"{n % 20}.png,{'ab'[n % 2]},{n % 9},{n % 7},{n % 9 + 9},{n % 7 + 8}\n" for n in range(160)]
    write(folder / "data/labels.csv", "filename,class,xmin,ymin,xmax,ymax\n" + "".join(rows))


def rows_of_bytes(folder: Path) -> None:
    (folder / "data").mkdir()
    images = [image_bytes(24 + n) for n in range(30)]
    rows = [{"image": {"bytes": images[n % 30], "path": None}, "caption": sentence()} for n in range(120)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "data/a.parquet")


def samples_of_images(folder: Path) -> None:
    write(folder / "a.tar", tar(*((f"{n:03}.{ending}", image_bytes()) for n in range(12) for ending in ("jpg", "png"))))


def samples_with_masks(folder: Path) -> None:
    png = io.BytesIO()
    Image.fromarray(np.eye(24, 32, dtype=np.uint8)).save(png, "PNG")
    parts = (("jpg", image_bytes()), ("seg.png", png.getvalue()))
    write(folder / "a.tar", tar(*((f"{n:03}.{ending}", data) for n in range(12) for ending, data in parts)))


def pixels(folder: Path) -> None:
    head = ",".join(["label", *(f"pixel{n}" for n in range(120))])
    rows = [",".join(map(str, [n % 10, *(n * k % 256 for k in range(120))])) for n in range(3)]
    write(folder / "data/train.csv", "\n".join([head, *rows, ""]))


def lists_of_sides(names: Sequence[str]) -> Make:
    def make(folder: Path) -> None:
        for n in range(24):
            write(folder / f"data/{n}.png", image_bytes())
        sides = [{name: [0.1 + k / 9] * (1 + n % 3) for k, name in enumerate(names)} for n in range(24)]
        write_jsonl(
            folder / "data/a.jsonl", [{"file": f"{n}.png", "ids": [1] * (n % 4), **sides[n]} for n in range(24)]
        )

    return make


def equal_texts(folder: Path) -> None:
    write(folder / "data/a.txt", "".join(f"{sentence()} {n}.\n" if n % 10 else "Yes.\n" for n in range(200)))


def percents(folder: Path) -> None:
    write(folder / "data/a.csv", "left,y\n" + "".join(f"{n + 10}%,{n % 4}\n" for n in range(60)))


def parts_of_rows(folder: Path) -> None:
    for name, columns in {"train_values": "x,y", "train_labels": "label", "test_values": "x,y"}.items():
        cells = ",".join(str(n) for n in range(columns.count(",") + 1))
        write(folder / f"data/{name}.csv", f"id,{columns}\n" + "".join(f"a{n},{cells}\n" for n in range(30)))


def one_split_in_names(folder: Path) -> None:
    for name in ("trainval", "test"):
        write(folder / f"data/{name}.csv", "id,x,y\n" + "".join(f"{name}{n},{n / 4},{n % 2}\n" for n in range(30)))


def digits(folder: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (60, 64)).tolist()
    write(folder / "data/a.csv", "".join(f"{','.join(map(str, row))},{n % 4}\n" for n, row in enumerate(rows)))


ITEMS = "".join(f"item {n}\t{n / 2}\t{'ab'[n % 2]}\n" for n in range(30))
PAIRS = "".join(f"{sentence()}.\t{sentence()}!\n" for _ in range(30))
TABLES: list[tuple[str, str | bytes, str, list[list[str]], list[str]]] = [
    ("tabs in text", f"name\tprice\tkind\n{ITEMS}", "tsv", [], ["price:\n    kind: number"]),
    ("in UTF-16", f"name\tprice\tkind\n{ITEMS}".encode("utf-16"), "tsv", [], ["encoding: utf-16"]),
    ("semicolons", f"name\tprice\tkind\n{ITEMS}".replace("\t", ";"), "csv", [], ["separator: ;"]),
    ("pairs", PAIRS, "tsv", [["a.txt", "`header`"]], ["30 texts"]),
]
CASES: list[tuple[str, Make, str, list[list[str]], list[str]]] = [
    ("one pair", one_pair, "data", [["train.de and train.en", "30 lines", "a source for each"]],
     ["columns: {de: train.de, en: train.en}"]),
    ("unequal pair", partial(one_pair, lines=29), "data",
     [["train.de", "train.en", "`columns: {a: train.de, b: train.en}`"]],
     ["# not joined", "train.de has 29 lines", "train.en has 30 lines", "document: file"]),
    ("paragraphs", shared_paragraphs, "a.json", [["column 'title'", "12 distinct", "`split_by: {group: title}`"]],
     ["\n# split_by: {group: title} "]),
    ("premises", shared_premises, "a.jsonl", [["column 'premise'", "40 distinct"]],
     ["\n# split_by: {group: premise} "]),
    *((name, lambda folder, data=data: write(folder / "a.txt", data), "a.txt", [*doubts, ["a.txt", form]], spec)
      for name, data, form, doubts, spec in TABLES),
    ("two classes", polarity, "data", [["2 files", "rt-polarity.neg", "bytes on average", "`document: line`"]],
     ["document: file"]),
    ("one text a split", a_text_a_split, "data", [], ["document: line", "split: validation"]),
    ("documents", texts, "data", [], ["document: file", "label: label"]),
    ("two texts a row", summaries, "data", [["articles", "digests", "beside", "a column a file"]], ["document: file"]),
    ("images and masks", image_folders("images/{n}.png", "masks/{n}.png"), "data",
     [], ["\nlabel: mask", "beside: {mask: masks}", "kind: mask"]),
    ("masks beside", image_folders("cat/{n}.png", "dog/a{n}.png", "dog/a{n}_mask.png"), "data",
     [], ["label: label", "beside: {mask: '*_mask'}", "kind: mask"]),
    ("pairs by split", image_folders("train_lr/{n}.png", "train_hr/{n}.png"), "data",
     [["train_hr", "train_lr", "a column a file"]], ["# label: FEATURE"]),
    ("images and JPEG masks", image_folders("images/{n}.png", "masks/{n}.jpg"), "data",
     [["images", "masks", "beside", "a column a file"]], ["# label: FEATURE", "classes: images, masks"]),
    ("JPEG masks beside", image_folders("cat/{n}.png", "dog/a{n}.png", "dog/a{n}_mask.jpg"), "data",
     [["folders dog", "mask"]], ["label: label"]),
    *((f"one split's {table}", one_split(table), "data", [[f"train/{table}", "recordmill init"]], ["image_folder"])
      for table in ("_annotations.csv", "_classes.csv")),
    ("codes, named", emotions([*SINGLE, "4,27", "3,9"], True), "data", [["train.tsv", "'0'", "`header`"]],
     ["kind: categories", "27: emotion27", "label: column_2", "# may name classes: 1 (labels.txt)"]),
    ("codes", emotions([*SINGLE, "4,27", "3,9"], False), "data", [["train.tsv", "`header`"]], ["kind: categories"]),
    ("decimals", emotions(["4,05", "1,5", "7"], True), "data", [["train.tsv", "`header`"]],
     ["decimal: ','", "kind: number"]),
    ("unsure", emotions(["4,2", "1,5", "7"], False), "data",
     [["train.tsv", "`header`"], ["column_2", "'4,2'", "`kind: number`", "`kind: categories, separator"]],
     ["decimal: ','"]),
    ("unsure, with names", emotions(["4,2", "1,5", "7"], True), "data",
     [["train.tsv", "`header`"], ["column_2", "'4,2'", "`kind: categories`", "`decimal: ','`"]],
     ["kind: categories"]),
    ("thousands", emotions(["4,200", "1,500", "27"], False), "data",
     [["train.tsv", "`header`"], ["column_2", "'4,200'", "`kind: category`"]], []),
    ("boxes by row", rows_of_images, "data/labels.csv", [],
     ["\n  group: filename\n", "kind: boxes", "columns: [xmin, ymin, xmax, ymax]"]),
    ("bytes by row", rows_of_bytes, "data",
     [["column 'image'", "30 distinct values", "`split_by: {group: image}`"]], []),
    ("images by sample", samples_of_images, "a.tar", [["column 'jpg;png'", "first", "`column`"]], []),
    ("masks by sample", samples_with_masks, "a.tar", [], ["kind: mask", "column: seg.png", "image: jpg"]),
    ("pixels", pixels, "data", [["columns pixel…", "120", "`array`"]], []),
    ("lists of ends", lists_of_sides(["b/xmin", "b/ymin", "b/xmax", "b/ymax"]), "data/a.jsonl", [],
     ["kind: boxes", "columns: [b/xmin, b/ymin, b/xmax, b/ymax]"]),
    ("in any naming", lists_of_sides(["links", "oben", "rechts", "unten"]), "data/a.jsonl",
     [["columns links, oben, rechts, unten", "`columns: [links, oben, rechts, unten]`"]], []),
    ("percent", percents, "data/a.csv", [["column 'left'", "'10%'", "without %"]], ["kind: raw"]),
    ("parts of rows", parts_of_rows, "data", [["train_labels.csv", "id, x, y", "Join them"]], []),
    ("one split in names", one_split_in_names, "data", [["test.csv", "1 other", "`split`"]], []),
    ("pixels without a header", digits, "data/a.csv", [["a.csv", "`header`"]], ["pixel63, label]"]),
    ("equal texts", equal_texts, "data/a.txt",
     [["rejects.max_duplicate_share", " 9.5% ", " 19.0%"]],
     ["rejects: {max_share: 0.01, max_duplicate_share: 0.19}"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "path", "doubts", "spec"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_what_is_not_sure_comes_first(
    make: Make, path: str, doubts: list[list[str]], spec: list[str], tmp_path: Path
) -> None:
    make(tmp_path)
    text = guessed(tmp_path, path)[1]
    found, result = first_lines(text)
    assert len(found) == len(doubts), found
    for doubt, pieces in zip(found, doubts, strict=True):
        assert_names(doubt, *pieces)
    assert (": none " in result) == (not doubts), result
    assert_names(text, *spec)


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["JPEGImages/{}.jpg", "SegmentationClass/{}.png"], "JPEGImages, SegmentationClass"),
        (["images/train/{}.jpg", "masks/train/{}.png"], "images, masks"),
        (["train/images/{}.jpg", "train/labels/{}.png", "val/images/v{}.jpg", "val/labels/v{}.png"], "images, labels"),
        (["train/{}.jpg", "train_masks/{}_mask.gif"], "train, train_masks"),
        (["a/{}.jpg", "b/{}.png"], "a, b"),
        (["{}.jpg", "{}_seg.png"], "."),
        (["all/{}.jpg", "all/{}.png"], "."),
        (["cat/{}.jpg", "dog/{}.png", "Images/x{}.png"], "Images"),
        (["Ground Truth/{}.jpg", "raw/1{}.png"], "Ground Truth"),
        (["rgb/{}.jpg", "depth/1{}.png"], "depth, rgb"),
        (["cat/{}.jpg", "dog/1{}.jpg"], None),
        (["trainA/{}.jpg", "trainB/1{}.jpg"], "trainA, trainB"),
        (["with_mask/{}.jpg", "without_mask/1{}.jpg"], None),
        (["train/cat/{}.jpg", "train/dog/1{}.jpg", "val/cat/{}.jpg", "val/dog/1{}.jpg"], None),
        (["train/{}.jpg", "test/{}.jpg"], None),
        (["images/{}.jpg"], None),
        (
            [f"JPEGImages/{{}}{n}.jpg" for n in range(9)] + ["SegmentationClass/{}0.png"],
            "JPEGImages, SegmentationClass",
        ),
        ([], None),
    ],
)
def test_folders_of_pairs(paths: list[str], folders: str | None) -> None:
    doubts = folder_doubts([f"/data/{path.format(100 + n)}" for n in range(50) for path in paths])
    assert [doubt.place for doubt in doubts] == ([f"folders {folders}"] if folders else [])


def test_folders_of_an_image_and_its_masks() -> None:
    paths = [
        f"stage1_train/i{n}/{part}" for n in range(9) for part in (f"images/i{n}.png", "masks/a.png", f"masks/{n}.png")
    ]
    (doubt,) = folder_doubts(paths)
    assert_names(str(doubt), "i0/images, i0/masks", "JSON Lines", "`kind: masks`")


def test_columns_of_regions_and_hundreds_of_numbered_ones() -> None:
    for name in ("region_shape_attributes", "projects.p1.labels.annotations.objects.annotation_kind"):
        (doubt,) = column_doubts(["filename", "region_count", name])
        assert_names(str(doubt), f"'{name}'", "JSON", "`init`")
    assert [doubt.place for doubt in column_doubts([f"v{n}" for n in range(100)])] == ["columns v…"]
    assert [doubt.place for doubt in column_doubts([f"{n // 28}x{n % 28}" for n in range(784)])] == ["columns …x…"]
    assert column_doubts([f"{'ab'[n % 2]}{n}" for n in range(198)]) == []


@pytest.mark.parametrize(
    ("sizes", "is_doubted"),
    [([150_000] * 22, True), ([150_000] * 100, False), ([2_000] * 22, False), ([2_000] * 12, True), ([1], True)],
)
def test_few_files_as_rows(sizes: list[int], is_doubted: bool) -> None:
    assert len(document_doubts({f"{n}": size for n, size in enumerate(sizes)})) == is_doubted


@pytest.mark.parametrize(
    ("columns", "boxes"),
    [
        ({"x1": (), "y1": (), "x2": (), "y2": ()}, "x1, y1, x2, y2"),
        ({"width": (), "height": (), "XMin": (), "XMax": (), "YMin": (), "YMax": ()}, "XMin, YMin, XMax, YMax"),
        ({"bbox_x": (), "bbox_y": (), "bbox_w": (), "bbox_h": ()}, "bbox_x, bbox_y, bbox_w, bbox_h"),
        ({"xtl": (1, 2), "ytl": (1, 2), "xbr": (1, 2), "ybr": (1, 2), "id": (1, 2)}, "xtl, ytl, xbr, ybr"),
        ({"o.left": (1,), "o.top": (1,), "o.width": (1,), "o.height": (1,)}, "o.left, o.top, o.width, o.height"),
        ({"min_x": (), "max_x": (), "min-y": (), "max-y": ()}, "min_x, min-y, max_x, max-y"),
        ({"tl_x": (), "tl_y": (), "br_x": (), "br_y": ()}, "tl_x, tl_y, br_x, br_y"),
        ({"a": (1, 2), "b": (1, 2), "c": (1, 2), "d": (1, 2)}, "a, b, c, d"),
        ({"a": (8, 8), "b": (8, 8), "c": (8, 8), "d": (8, 8)}, None),
        ({"xmin": (1, 2), "xmax": (1, 2), "ymin": (1, 1), "ymax": (1, 1)}, None),
        ({"image/width": (), "image/height": (), "w": (), "h": ()}, None),
        ({"keypoints": (8, 8)}, "keypoints"),
        ({"shapes.points": (4, 6)}, "shapes.points"),
        ({"age": (), "x": (), "year": (), "next": (), "taxi": ()}, None),
    ],
)
def test_columns_of_boxes(columns: dict[str, tuple[int, ...]], boxes: str | None) -> None:
    values = {name: [[0.5] * length for length in lengths] or [1, 2.5] for name, lengths in columns.items()}
    assert [doubt.place for doubt in box_doubts(values)] == ([f"columns {boxes}"] if boxes else [])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1,5", "", "x", "7"], "unsure"), (["1,5", "x"], None),
        (["-1,5"], "decimal"), (["0,05"], "decimal"), (["3,14159"], "decimal"),
        (["0,532"], "unsure"), (["1,234,567"], "thousands"), (["1,2", "1", "2"], "codes"),
        (["1,2,03"], "codes"), (["a"], None), (["1.230,50"], "decimal"),
    ],
)  # fmt: skip
def test_what_commas_are(cells: list[str], kind: str | None) -> None:
    assert commas(cells) == kind


@pytest.mark.parametrize(
    ("cells", "kind", "remedy"),
    [
        (["1,000", "2,037"], "raw", "without commas"),
        (["0,05", "1,05"], "category", "with a point"),
        (["1.230,50"], "raw", "with a point"),
        (["0,05", "1,05"], "number", None),
        (["['a', 'b']", "['a']"], "raw", "json.dumps"),
        (["[1 2 3]"], "text", "json.dumps"),
        (["70 80 82 72"] * 3, "text", "json.dumps"),
        (["[deleted]", "5 or 6 of 7"], "text", None),
        (["$1,200.50", "", "$7"], "raw", "without $"),
        (["5 kg", "1.5 kg"], "text", "without kg"),
        (["12a", "12b"], "category", None),
        (["0.wav", "1.wav"], "raw", None),
        (["10:30", "11:30"], "raw", None),
        (["train", "dev", "unlabeled"], "category", "split_by: {column: a"),
        (["Train", "test", ""], "raw", "split_by: {column: a"),
        (["train", "bus", "test flight"], "category", None),
        (["train", "test"], "category", None),
        (["-1", "0", "1"], "category", "without a label"),
        (["-1", "1"], "category", None),
        (["-1", "0"], "number", None),
    ],
)
def test_values_that_may_be_something_else(cells: list[str], kind: str, remedy: str | None) -> None:
    found = value_doubts("a", cells, kind)
    assert [remedy in doubt.remedy for doubt in found if remedy] == [True] * bool(remedy)
    assert len(found) == bool(remedy)


def test_files_that_are_joined_are_of_one_split() -> None:
    [doubt] = document_doubts({f"{side}-{split}.txt": 9 for side in ("src", "tgt") for split in ("train", "val")})
    assert "`columns: {a: src-train.txt, b: tgt-train.txt}`" in doubt.remedy


@pytest.mark.parametrize(
    ("texts", "header", "doubts"),
    [
        (["text,label\nso good,joy\nbad,joy\n"], None, []),
        (["text,label\nso good,joy\n", "text,mood\nbad,joy\n"], None, []),
        (["so good,joy\nbad,sad\nwell,joy\n"], 2, ["'joy'"]),
        (["so good,joy\nbad,sad\n", "well done,anger\nno,sad\n"], 2, ["no name"]),
        (["id,name\n1,Ann\n", "user,item,score\n1,2,3\n"], None, ["id, name"]),
        (["an old house near the road,joy\nbad,sad\n"], None, ["an old house"]),
        (["a,b\n1,2\na,b\n3,4\n"], None, ["a, b"]),
    ],
)
def test_first_lines_that_may_be_rows(texts: list[str], header: int | None, doubts: list[str]) -> None:
    first, *more = texts
    options, _, found = cell_options(first.encode(), "csv", "a.csv", [text.partition("\n")[0] for text in more])
    assert options.get("header") == (header and [f"column_{n + 1}" for n in range(header)])
    assert [doubt.place for doubt in found] == ["a.csv"] * len(doubts)
    assert all(piece in doubt.what and "header" in doubt.remedy for piece, doubt in zip(doubts, found, strict=True))


@pytest.mark.slow
def test_the_command_says_doubts_and_the_hint_keeps_images_in_one_split(tmp_path: Path) -> None:
    rows_of_bytes(tmp_path)
    made = recordmill("init", "data", "--output", "dataset.yaml", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert [line[:12] for line in made.stderr.splitlines()] == ["In doubt: co", "rejected: no"]
    assert made.stdout.startswith("The 120 rows")
    text = (tmp_path / "dataset.yaml").read_text()
    (tmp_path / "dataset.yaml").write_text(re.sub(r"\n# (split_by: .*)", r"\n\1", text))
    build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
