"""`recordmill init` on data as people have it: each source gets a spec that builds unedited."""

import json
import os
import pty
import random
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init import sample
from recordmill.pipeline.init.boxes import Answers
from recordmill.pipeline.init.starter import first_lines, starter
from recordmill.pipeline.sources.naming import read_names
from recordmill.pipeline.spec.model import load_spec, parse_spec
from tests.forked import recordmill
from tests.messages import assert_names, raises
from tests.tables import FILES, write, write_jsonl
from tests.test_init import class_folders, image_bytes, metadata, texts, unclear_boxes, unwrapped

RANDOM = random.Random(5)
WORDS = "the quick brown fox jumps over lazy dogs while seven cats sleep near a warm stove".split()
Made = Callable[[Path], Any]


def words(count: int = 9) -> str:
    return " ".join(RANDOM.choices(WORDS, k=count))


def table(path: Path, rows: list[dict[str, Any]], encoding: str = "utf-8") -> None:
    cells = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    write(path, "".join(f"{line}\n" for line in cells).encode(encoding))


def nan_cells(folder: Path) -> None:
    rows = [{"age": n % 60, "score": n / 7, "rooms": n, "state": "ab"[n % 2]} for n in range(120)]
    for n, row in enumerate(rows):
        row |= (
            {"age": "nan"} if n % 7 == 0 else {"score": "NaN"} if n % 5 == 0 else {"rooms": "NA"} if n % 4 == 0 else {}
        )
    table(folder / "data/a.csv", rows)


def patients(folder: Path) -> None:
    for n in range(120):
        write(folder / f"data/scans/{n}.png", image_bytes())
    table(folder / "data/scans.csv", [{"file": f"scans/{n}.png", "patient_id": f"P{n // 6:03}", "site_id": n % 3,
                                       "label": "ab"[n % 2]} for n in range(120)])  # fmt: skip


def tags(folder: Path) -> None:
    tags = ["drama", "comedy", "horror", "action"]
    table(folder / "data/films.csv", [{"id": n, "title": words(4), "genres": "|".join(tags[n % 3 : n % 3 + 1 + n % 2]),
                                       "category_id": n % 5} for n in range(120)])  # fmt: skip


def codes(folder: Path) -> None:
    write(folder / "data/classes.txt", "World\nSports\nBusiness\nSci/Tech\n")
    for name, count in (("train", 120), ("test", 40)):
        write(folder / f"data/{name}.csv", "".join(f'"{n % 4 + 1}","{words(5)}","{words(20)}"\n' for n in range(count)))


def codes_of_json(folder: Path) -> None:
    write(folder / "data/labels.json", json.dumps({"cat": 0, "dog": 1, "zebra": 2}))
    write_jsonl(folder / "data/rows.jsonl", [{"text": words(), "label": n % 2} for n in range(120)])


def cp1252(folder: Path) -> None:
    rows = [{"city": ("Köln", "Bonn")[n % 2], "review": words(), "stars": n % 5} for n in range(120)]
    table(folder / "data/a.csv", rows, "cp1252")


def captions(folder: Path) -> None:
    for n in range(120):
        write(folder / f"data/images/{n}.png", image_bytes())
    rows = [{"image": f"images/{n}.png", "captions": [words() for _ in range(5)]} for n in range(120)]
    write_jsonl(folder / "data/captions.jsonl", rows)


def captions_of_parquet(folder: Path) -> None:
    (folder / "data").mkdir()
    sentences = [[words() for _ in range(4 + n % 2)] for n in range(120)]
    images = [{"bytes": image_bytes(), "path": f"{n}.png"} for n in range(120)]
    pq.write_table(pa.table({"image": images, "captions": sentences, "ids": [[n] for n in range(120)]}),
                   folder / "data/a.parquet")  # fmt: skip


def linked_folders(folder: Path) -> None:
    for n in range(120):
        write(folder / f"store/{('cats', 'dogs')[n % 2]}/{n}.png", image_bytes())
    (folder / "data").mkdir()
    (folder / "data/cat").symlink_to(folder / "store/cats")
    (folder / "data/dog").symlink_to(folder / "store/dogs")


def linked_images(folder: Path) -> None:
    for n in range(120):
        write(folder / f"store/images/{n}.png", image_bytes())
    table(folder / "data/a.csv", [{"file": f"images/{n}.png", "label": "ab"[n % 2]} for n in range(120)])
    (folder / "data/images").symlink_to(folder / "store/images")


def damaged(folder: Path) -> None:
    rows = [json.dumps({"text": words(), "label": "ab"[n % 2]})[: None if n % 12 else -4] for n in range(120)]
    write(folder / "data/rows.jsonl", "\n".join(rows))


def damaged_images(folder: Path) -> None:
    class_folders(folder)
    for n in range(4):
        write(folder / f"data/cat/broken{n}.png", b"<html>404</html>")


def ratings(folder: Path) -> None:
    (folder / "data").mkdir()
    rows = {"user_id": [n % 17 for n in range(120)], "rating": [n % 5 + 1.0 for n in range(120)], "codes": [7.0] * 120}
    pq.write_table(pa.table(rows), folder / "data/a.parquet")


def labels_of_commas(folder: Path) -> None:
    rows = [f"{words()};{('a,b', 'c', '', 'a', 'b,c')[n % 5]};{n % 9},{n % 4}\n" for n in range(120)]
    write(folder / "data/a.csv", f"text;labels;price\n{''.join(rows)}")


def odd_headers(folder: Path) -> None:
    write(folder / "data/a.csv", "n,n,text\r" + "".join(f"{n},{n},{words()}\r" for n in range(120)))


def codes_like_names_of_images(folder: Path) -> None:
    table(folder / "data/train.csv", [{"label": n % 3, "image_id": n} for n in range(120)])
    for n in range(120):
        write(folder / f"data/train/{n}.png", image_bytes())


NUMBER, OF_TEXTS = {"kind": "number", "optional": True}, {"kind": "texts"}
IMAGE = {"kind": "image", "size": (24, 32), "fit": "pad"}
NAMES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
SOURCES: list[tuple[Made, str, dict[str, Any], dict[str, Any], list[str]]] = [
    (nan_cells, "data", {"age": NUMBER, "score": NUMBER, "rooms": NUMBER}, {"label": None},
     ["optional: true # ", "15 % of the 120 rows"]),
    (ratings, "data", {"rating": {"kind": "number"}, "codes": {"kind": "number"}}, {"label": "rating"}, []),
    (labels_of_commas, "data", {"labels": {"kind": "categories", "separator": ",", "classes": ("a", "b", "c")},
                                "price": {"kind": "number"}}, {"label": "labels"}, ["decimal: ','"]),
    (odd_headers, "data", {"text": {"kind": "text"}}, {}, ["/data/a.csv ", "two columns 'n'"]),
    (patients, "data/scans.csv", {"file": IMAGE, "patient_id": {"kind": "raw"}}, {"label": "label", "split_by": None},
     ["in the 120 rows", "`split_by: {group: patient_id}`", "\n# split_by: {group: patient_id} # ",
      "kind: raw # ", "\n # kind: category # ", "20 distinct values"]),
    (tags, "data", {"genres": {"kind": "categories", "separator": "|"}}, {"label": "category_id", "key": ("id",)},
     ["separator: '|' # "]),
    (codes, "data", {"column_1": {"kind": "category", "classes": NAMES}}, {"label": "column_1"},
     ["classes.txt"]),
    (codes_of_json, "data", {"label": {"kind": "category", "classes": {"0": "cat", "1": "dog", "2": "zebra"}}},
     {"label": "label"}, ["labels.json"]),
    (cp1252, "data", {"city": {"kind": "category"}, "review": {"kind": "text"}}, {}, ["cp1252", "Köln"]),
    (captions, "data/captions.jsonl", {"image": IMAGE, "captions": {**OF_TEXTS, "texts_per_row": 5}}, {"together": ()},
     ["600 texts", "texts_per_row: 5 # ", "the 120 rows"]),
    (captions_of_parquet, "data", {"image": IMAGE, "captions": OF_TEXTS}, {"together": ()}, []),
    (unclear_boxes, "data/rows.jsonl", {"labels": {"kind": "categories", "classes": ("car",)}},
     {"together": (("boxes", "labels", "n"),)}, ["together:", "in the 40 rows"]),
    (linked_folders, "data", {"image": IMAGE, "label": {"kind": "category", "classes": ("cat", "dog")}}, {}, []),
    (linked_images, "data/a.csv", {"file": IMAGE}, {"label": "label"}, ["images: store/ #"]),
    (damaged, "data", {"text": {"kind": "text"}}, {"label": "label"},
     ["# In doubt: rejects.max_share: 8.3% ", " 1.0%: 10 ", "The 120 rows: 10 "]),
    (damaged_images, "data", {"image": IMAGE}, {"label": "label"},
     ["# In doubt: rejects.max_share: 14.3% ", " 1.0%: "]),
    (codes_like_names_of_images, "data/train.csv", {"image": {**IMAGE, "column": "image_id"}}, {"label": "label"}, []),
    (class_folders, "data", {"image": IMAGE}, {"label": "label"}, []),
    (metadata, "data/images", {"text": {"kind": "text"}}, {"together": (("bbox", "category"),)}, []),
    (texts, "data", {"text": {"kind": "text"}}, {"label": "label"}, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "path", "features", "top", "reasons"), SOURCES, ids=[row[0].__name__ for row in SOURCES]
)
def test_what_people_have(make: Made, path: str, features: Any, top: Any, reasons: list[str], tmp_path: Path) -> None:
    make(tmp_path)
    text = starter(
        str(tmp_path / path), FILES, folder=str(tmp_path), answers=Answers("corners" if make is unclear_boxes else None)
    )
    spec = parse_spec(text)
    found = spec.model_dump(exclude_unset=True)["features"]
    assert {name: found[name] for name in features} == features
    assert {name: getattr(spec, name) for name in top} == top
    assert_names(unwrapped(text), *reasons)
    assert [line for line in text.split("\n") if len(line) > 100 and " #" in line] == []
    write(tmp_path / "dataset.yaml", text)
    assert make_plan(load_spec(str(tmp_path / "dataset.yaml")), FILES).rows


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("make", "path"), [row[:2] for row in SOURCES], ids=[row[0].__name__ for row in SOURCES])
def test_it_builds_unedited(make: Made, path: str, tmp_path: Path) -> None:
    make(tmp_path)
    order = ["--order", "corners"] if make is unclear_boxes else []
    made = recordmill("init", path, "--output", "dataset.yaml", *order, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    code = 5 * made.stderr.startswith("In doubt: rejects.max_share")  # more than 5 % fail
    assert recordmill("plan", "dataset.yaml", cwd=tmp_path).returncode == code
    built = recordmill("build", "dataset.yaml", "--output", "out", cwd=tmp_path)
    assert built.returncode == code, built.stderr


@pytest.mark.parametrize(
    ("names", "content", "rows", "classes"),
    [
        ("labels.txt", "cat\ndog\n", [0, 1], {"0": "cat", "1": "dog"}),
        ("labels.txt", "cat\ndog\n", [1, 2], {"1": "cat", "2": "dog"}),
        ("labels.txt", "0 cat\n1 dog\n7 ant\n", [0, 7], {"0": "cat", "1": "dog", "7": "ant"}),
        ("obj.names", "cat\ndog\n", [0, 1], {"0": "cat", "1": "dog"}),
        ("label_names.json", '["cat", "dog"]', [0, 1], {"0": "cat", "1": "dog"}),
        ("labels.txt", "cat\ndog\nant\n", [1, 2], ("1", "2")),  # from 0 or 1 on?
        ("labels.txt", "cat\ndog\n", [0, 5], ("0", "5")),
        ("labels.txt", "cat\ncat\n", [0, 1], ("0", "1")),
        ("labels.json", "{", [0, 1], ("0", "1")),
        ("notes.txt", "cat\ndog\n", [0, 1], ("0", "1")),
        ("categories.json", '{"info": {"year": 2017}}', [0, 1], ("0", "1")),
        pytest.param("categories.json", "[" * 200_000, [0, 1], ("0", "1"), id="nested"),
    ],
)
def test_names_of_codes(names: str, content: str, rows: list[int], classes: Any, tmp_path: Path) -> None:
    write(tmp_path / f"data/{names}", content)
    write_jsonl(tmp_path / "data/a.jsonl", [{"text": words(), "label": rows[n % 2]} for n in range(40)])
    spec = parse_spec(starter(str(tmp_path / "data"), FILES))
    assert spec.features["label"].model_dump()["classes"] == classes


CODES = {"_type": "ClassLabel", "names": ["cat", "dog"]}
OTHERS = [{**CODES, "names": ["cat"]}, {**CODES, "names": None}, {"_type": "Value", "dtype": "int64"}, ["ClassLabel"]]
TAKEN, DOUBTED = ["classes: {0: cat, 1: dog}"], ["In doubt: column 'label': codes", "(0: cat, 1: dog)"]


@pytest.mark.parametrize(
    ("codes", "feature", "facts"),
    [
        ([-1, 0, 1, 0, 1], CODES, TAKEN),
        ([0, 1, 2], CODES, DOUBTED),
        ([[0, 1], [1, -100]], {"_type": "Sequence", "feature": CODES}, DOUBTED),
        ([[0, 1], [1]], {"_type": "List", "feature": CODES}, TAKEN),
        ([{"kind": [0, 1]}, {"kind": [1]}], {"kind": [CODES]}, [*TAKEN, "column: label.kind"]),
        *(([0, 1], other, ["classes: ['0', '1']"]) for other in OTHERS),
        ([{"kind": [0, 1]}], {"_type": "Sequence", "feature": {"kind": CODES}}, [*TAKEN, "kind: categories"]),
        ([[{"kind": 0}, {"kind": 1}]], [{"kind": CODES}], [*TAKEN, "kind: categories"]),
    ],
)
def test_names_in_a_schema_are_taken_or_a_doubt(
    codes: list[Any], feature: Any, facts: list[str], tmp_path: Path
) -> None:
    stated = {"label": feature}
    rows = pa.Table.from_pylist([{"text": words(), "label": codes[n % len(codes)]} for n in range(30)])
    metadata = {"huggingface": json.dumps({"info": {"features": stated}})}
    pq.write_table(rows.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert_names(starter(str(tmp_path / "a.parquet"), FILES).replace("\n#   ", " "), *facts)


NO_NAMES = ["1", '[1, "a"]', '{"a": "b"}', '{"0": null}', '{"0": "a", "1": "a"}', '[""]', '{"info": {"year": 2017}}',
            '{"a": null}', '{"a": 1.5}', '{"a": 1, "b": 1}', '{"0": "a", "b": 0}']  # fmt: skip


@pytest.mark.parametrize("content", NO_NAMES)
def test_what_is_no_list_of_names(content: str) -> None:
    with pytest.raises(ValueError, match="name|code"):
        read_names(content, is_json=True)


def test_a_sample_of_metadata_in_tsv_ends_where_a_row_does(tmp_path: Path) -> None:
    write(tmp_path / "data/a.png", image_bytes())
    rows = "".join(f'a.png\t"two words {n}\nand ""a third""\nline"\n' for n in range(2_000))
    write(tmp_path / "data/metadata.tsv", f"file_name\ttext\n{rows}".encode())
    text = unwrapped(starter(str(tmp_path / "data"), FILES))
    assert re.search(r"(\d,\d{3}|9\d\d) sampled rows", text)
    assert "malformed_row" not in text


def test_empty_images_and_broken_links_are_rejects(tmp_path: Path) -> None:
    for n in range(18):
        write(tmp_path / f"data/{n}.png", image_bytes())
    write(tmp_path / "data/18.png", b"")
    (tmp_path / "data/19.png").symlink_to("nowhere.png")
    text = starter(str(tmp_path / "data"), FILES)
    assert_names(text, "headers in 20 rows: 2 ", "unsupported_format in column image", "width of 18 images")


def test_no_good_row_is_no_dataset(tmp_path: Path) -> None:
    for n in range(24):
        write(tmp_path / f"data/{n}.png", b"<html>404</html>")
    with raises(UserError, "headers in 24 rows: 24 ", "24 unsupported_format", "the file is"):
        starter(str(tmp_path / "data"), FILES)


def test_rejects_alone_are_sampled_and_counted(tmp_path: Path) -> None:
    """A split with only damaged rows, larger than its sample."""
    for split, more in (("train", ""), ("valid", "\nthe second line is no box")):
        for n in range(600):
            write(tmp_path / f"data/{split}/{n}.png", image_bytes())
            write(tmp_path / f"data/{split}/{n}.txt", f"{n % 2} 0.5 0.5 0.25 0.5{more}")
    doubts, result = first_lines(starter(str(tmp_path / "data"), FILES))
    assert [("max_share" in doubt, " 1.0%: 500 " in doubt) for doubt in doubts] == [(True, True)]
    assert_names(result, "1,000 sampled rows", ": 500 ", "(500 malformed_row)")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_terminal_is_asked_until_it_answers(tmp_path: Path) -> None:
    unclear_boxes(tmp_path)
    command = [sys.executable, "-m", "recordmill", "init", str(tmp_path / "data/rows.jsonl")]
    process, terminal = pty.fork()
    if not process:
        os.execv(command[0], command)  # noqa: S606 - the terminal's own
    shown, answers = b"", [b"corner\n", b"coco\n"]
    with suppress(OSError):  # the terminal of a process that ended
        while part := os.read(terminal, 1 << 12):
            shown += part
            if shown.endswith(b"corners / coco / tensorflow: "):
                os.write(terminal, answers.pop(0))
    assert (os.waitpid(process, 0)[1], answers) == (0, [])
    assert "order: coco" in shown.decode()


def test_a_row_of_many_columns_is_no_square_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MOST_PARSED", 10_000)
    (tmp_path / "rows.jsonl").write_text(json.dumps({f"n{number}": 0 for number in range(3_000)}) + "\n")
    made = starter(str(tmp_path / "rows.jsonl"), FILES)
    assert_names(made, "n2:", "columns", "2,997")
    assert "n3:" not in made
