"""Messages about a wrong spec name the line, the place, the value and the nearest valid name."""

import shlex
from pathlib import Path

import pytest

from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests.messages import assert_names, raises

RIGHT = """\
name: emoji
source:
  format: jsonl
  path: rows.jsonl
features:
  image: {kind: image, size: [4, 4]}
  text:
    kind: text
    vocabulary: 10
  category: {kind: category}
  price: {kind: number}
label: category
splits: {train: 8, test: 2}
"""
KINDS = "image, image_sequence, mask, masks, boxes, keypoints, text, texts, pair, chat, token_labels, category"
WRONG = [
    # (part of RIGHT, its replacement, line and place, facts of the message)
    ("name: emoji\n", "", "1: name: ", "missing"),
    ("  path: rows.jsonl\n", "", "2: source.path: ", "missing"),
    ("label: ", "lable: ", "12: ", "`lable`", "`label`?",
     "about, analysis, duplicates, features,", "splits, summaries, together"),
    ("  path:", "  path: a\n  paths:", "5: source: ", "`paths`", "`path`?", "columns, encoding, format, group,"),
    ("vocabulary", "vocabulry", "9: features.text: ", "`vocabulry`", "`vocabulary`?", "begin, case, column, end, "),
    ("size:", "size: [4, 4], sice:", "6: features.image: ", "`sice`", "`size`?", "max_bytes, max_pixels, "),
    # a feature named like another kind, or like an option
    ("price: {", "bytes: {zzz: 1, ", "11: features.bytes: ", "`zzz`", "boundaries, clip, column, "),
    ("price: {kind: number", "image_: {kind: raw, zzz: 1", "11: features.image_: ",
     "`zzz`", "column, kind, length, many, "),
    ("kind: text", "kind: txt", "7: features.text: ", "kind 'txt'", "`text`?", KINDS),
    ("    kind: text\n", "", "7: features.text: ", "`kind: …`"),
    ("{kind: number}", "{kind:number}", "11: features.price: ", "`kind: …`", "got `kind:number`"),
    ("format: jsonl", "format: jsn", "2: source: ", "format 'jsn'", "`json`?"),
    ("{kind: number}", "number", "11: features.price: ", "a mapping", "`{kind: text}`", "got `number`"),
    ("splits: {train: 8, test: 2}", "splits: [80, 20]", "13: splits: ", "`{train: 80, test: 20}`", "got [80, 20]"),
    ("label: category", "label: [category]", "12: label: ", "feature's name", "got ['category']"),
    ("{kind: number}", "", "11: features.price: ", "a mapping", "got nothing"),
    # the description
    ("label: ", 'about: {title: "a\\nb"}\nlabel: ', "12: about.title: ", "one line", r"got `a\nb`"),
    ("label: ", "about: {homepage: 'ftp://x.org'}\nlabel: ", "12: about.homepage: ", "https://", "got `ftp://x.org`"),
    ("label: ", "about: {homepage: 'javascript:a()'}\nlabel: ", "12: about.homepage: ", "https://", "`javascript:a()`"),
    ("label: ", "about: {languages: [x1]}\nlabel: ", "12: about.languages.0: ", "`de-CH`", "`x1`"),
    # types and ranges
    ("vocabulary: 10", "vocabulary: many", "9: features.text.vocabulary: ", "a whole number", "got `many`"),
    ("vocabulary: 10", "vocabulary: 1.5", "9: features.text.vocabulary: ", "a whole number", "got `1.5`"),
    ("vocabulary: 10", "vocabulary: 0", "9: features.text.vocabulary: ", "1 or more", "got `0`"),
    ("size: [4, 4]", "size: [4, 4], quality: 101", "6: features.image.quality: ", "100 or less", "got `101`"),
    ("size: [4, 4]", "size: wide", "6: features.image.size: ", "a whole number", "got 'wide'"),
    ("size: [4, 4]", "size: [4]", "6: features.image.size: ", "few", "got [4]"),
    ("size: [4, 4]", "size: [4, 4, 3]", "6: features.image.size: ", "2 items", "got [4, 4, 3]"),
    ("size: [4, 4]", "size: [4, 0]", "6: features.image.size.1: ", "1 or more", "got `0`"),
    ("size: [4, 4]", "size: [4, 4], fit: padd", "6: features.image.fit: ", "'pad', 'crop', 'stretch' or 'none'",
     "got `padd`", "`pad`?"),
    ("test: 2", "test: -1", "13: splits.test: ", "0 or more", "got `-1`"),
    ("test: 2", "test: .inf", "13: splits.test: ", "finite", "got `.inf`"),
    ("test: 2", "test: much", "13: splits.test: ", "a number", "got `much`"),
    ("test: 2", "te st: 2", "13: splits.te st: ", "a name", "got `te st`"),
    ("name: emoji", "name: my-emoji", "1: name: ", "a name", "got `my-emoji`"),
    ("name: emoji", f"name: {'a' * 101}", "1: name: ", "100 characters", "got `aaaaa"),
    ("price: {", "unit-price: {", "11: features.unit-price: ", "a name", "got `unit-price`"),
    ("label: category", "label: category\nkey: []", "13: key: ", "empty"),
    # values that YAML reads as another type
    ("name: emoji", "name: yes", "1: name: ", "text", "got `yes`", "boolean", "quotes"),
    ("name: emoji", "name:", "1: name: ", "text", "got nothing"),
    ("{kind: category}", "{kind: category, classes: [a, no]}", "10: features.category.classes.1: ",
     "got `no`", "quotes"),
    ("{kind: category}", "{kind: category, classes: [2026-11-20]}", "10: features.category.classes.0: ",
     "got `2026-11-20`", "date", "quotes"),
    ("  price:", "  on:", "11: ", "`on`", "boolean", "quotes"),
    ("test: 2", "1.5: 2", "13: ", "`1.5`", "number", "quotes"),
    # classes
    ("{kind: category}", "{kind: category, classes: []}", "10: features.category.classes: ", "empty"),
    ("{kind: category}", "{kind: category, classes: [b, a, b]}", "10: features.category.classes: ", "'b'", "2 times"),
    ("{kind: category}", '{kind: category, classes: [a, " "]}', "10: features.category.classes.1: ",
     "blank", "got ' '"),
    ("{kind: category}", '{kind: category, classes: ["a\\nb"]}', "10: features.category.classes.0: ", r"got 'a\nb'"),
    # one part against another
    ("label: category", "label: categry", "12: label: ", "'categry'", "image, text, category, price", "`category`?"),
    ("label: category", "label: price\nsplit_by: {stratify: price}", "13: split_by.stratify: ", "'price'", "category"),
    ("label: category", "label: category\nsplit_by: {group: a, time: b}", "13: split_by: ",
     "exactly one", "got group, time"),
    ("label: category", "label: category\nsplit_by: {column: s, values: {tran: a}}", "13: split_by: ",
     "'tran'", "train, test", "`train`?"),
    ("label: category", "label: category\npreprocessing: own.py", "13: preprocessing: ",
     "`module:function`", "got `own.py`"),
    ("{kind: number}", "{kind: number, optional: true, indicator: true}\n  price_missing: {kind: raw}",
     "12: features.price_missing: ", "'price_missing'", "missing of 'price'", "rename"),
    ("{kind: category}", "{kind: category, optional: true}", "10: features.category: ", "'category'",
     "label", "optional"),
    ("  price:", "  key:", "11: features.key: ", "'key'", "`column: key`"),
    ("  price:", "  train:", "11: features.train: ", "'train'", "analysis", "`column: train`"),
    ("{kind: number}", "{kind: number, column: text}", "11: features.price: ", "column 'text'", "as text", "as number"),
    ("{kind: number}", '{kind: number, column: "@hash"}', "5: features: ", "'@hash'", "rename", "`@`"),
    ("train: 8", "trian: 8", "13: splits: ", "`train`", "got {trian: 8, test: 2}"),
    ("train: 8", "val: 8", "13: splits: ", "`train`", "got {val: 8, test: 2}", "`val`", "`validation`?"),
    ("splits: {train: 8,", "shards: {val: 4}\nsplits: {train: 8, validation: 1,", "13: shards.val: ",
     "'val'", "train, validation, test", "`validation`?"),
    ("{kind: number}", "{kind: texts, column: tags}\n  tags: {kind: raw, many: true}", "12: features.tags: ",
     "column 'tags'", r"list of text (separator '\n')", "as list of text: "),
    ("train: 8, test: 2", "train: 1e-9", "13: splits: ", "1e-09", "'train'", "0"),
    ("splits:", "together: [text, price]\nsplits:", "13: together: ", "'text'", "kind text", "lists"),
    ("splits:", "together: [[txt, price]]\nsplits:", "13: together: ", "'txt'", "`text`?"),
    ("kind: number}", "kind: numbers}\ntogether: [price, price]", "12: together: ", "two lists", "got [price, price]"),
    ("{kind: number}", "{kind: texts, texts_per_row: 2, max_texts: 3}", "11: features.price: ",
     "`texts_per_row`", "`max_texts`"),
    ("{kind: number}", "{kind: texts, pack: 8}", "11: features.price: ", "unknown key `pack`"),
    ("splits:", "shards: 3\nsplits:", "13: shards: ", "power of two", "2", "got 3"),
    ("splits:", "shards: {train: 131072}\nsplits:", "13: shards.train: ", "65536 or less", "got `131072`"),
    ("splits:", "shards: {tran: 4}\nsplits:", "13: shards.tran: ", "'tran'", "train, test", "`train`?"),
    # YAML itself
    ("label: category", "label: category\nlabel: price", "13: ", "`label`", "line 12"),
    ("name: emoji", "\tname: emoji", "1: ", "a tab", "spaces"),
    ("[4, 4]}", "[4, 4}", "6: ", "YAML", "expected ',' or ']'", "got '}'"),
    ("name: emoji", "name: a: b", "1: ", "YAML", "mapping values"),
    ("name: emoji", "name: !!python/name:os.system x", "1: ", "`!!python/name:os.system`"),
    ("rows.jsonl", "rows\0.jsonl", "4: ", "YAML", "0x0"),
    ("label:", "---\nlabel:", "12: ", "YAML", "a single document"),
    ("{kind: number}", "*missing", "11: ", "YAML", "alias 'missing'"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "place", "facts"), [(a, b, c, facts) for a, b, c, *facts in WRONG])
def test_one_mistake_is_one_line(right: str, wrong: str, place: str, facts: list[str]) -> None:
    assert right in RIGHT
    with raises(SpecError, *facts) as error:
        parse_spec(RIGHT.replace(right, wrong, 1))
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"dataset.yaml:{place}"), line


@pytest.mark.parametrize(
    ("text", "got"),
    [("", "nothing"), ("# a comment\n", "nothing"), ("[a]", "a list"), ("5", "a number"), ("x", "text")],
)
def test_a_spec_is_a_mapping(text: str, got: str) -> None:
    with raises(SpecError, "my.yaml: ", "a mapping", f", got {got}"):
        parse_spec(text, "my.yaml")


def test_every_mistake_has_a_line() -> None:
    text = RIGHT.replace("name:", "nmae:").replace("vocabulary: 10", "vocabulary: x").replace("[4, 4]", "[0, a]")
    with pytest.raises(SpecError) as error:
        parse_spec(text)
    facts = [
        ("dataset.yaml:1: name: ", "missing"),
        ("dataset.yaml:6: features.image.size.0: ", "1 or more"),
        ("dataset.yaml:6: features.image.size.1: ", "a whole number"),
        ("dataset.yaml:9: features.text.vocabulary: ", "a whole number"),
        ("dataset.yaml:1: ", "`nmae`"),
    ]
    for line, of_line in zip(str(error.value).splitlines(), facts, strict=True):
        assert_names(line, *of_line)


PLACES = {"t.CSV.gz": "csv", "a/b.jsonl": "jsonl", "my/pics": "image_folder", r"C:\in\a.tsv": "tsv"}


@pytest.mark.parametrize(("path", "form"), PLACES.items())
def test_a_path_as_source_is_written_out(path: str, form: str) -> None:
    given = RIGHT.replace("source:\n  format: jsonl\n  path: rows.jsonl", f"source: {path}")
    with raises(SpecError, ":2: source: ", f"{{format: {form}, path: {path}}}", f"init {shlex.quote(path)}`"):
        parse_spec(given)
    assert parse_spec(given.replace(path, "own:rows")).source[0].format == "python"


def test_a_spec_of_a_path_is_named_by_it(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("name: 5x\n")
    for file in ("wrong.yaml", "none.yaml"):
        with raises(SpecError, str(tmp_path / file)):
            load_spec(tmp_path / file)


def test_one_of_several_sources_is_named() -> None:
    text = RIGHT.replace("  format: jsonl\n", "  - {format: jsonl, path: a}\n").replace("  path:", "  - path:")
    with raises(SpecError, "dataset.yaml:4: source.1: ", "`format: …`", "got `path`"):
        parse_spec(text)


def test_a_merged_value_is_wrong_at_its_line() -> None:
    features = """
  one: &one {kind: image, size: [8, 8], quality: 500}
  two:
    <<: *one
    size: [0, 8]
    quality: 50
  three:
    <<: [*one]
"""
    text = f"name: x\nsource: {{format: jsonl, path: x}}\nfeatures:{features}"
    with pytest.raises(SpecError) as error:
        parse_spec(text)
    one, two, three = str(error.value).splitlines()
    assert_names(one, "dataset.yaml:4: features.one.quality: ", "100", "`500`")
    assert_names(two, "dataset.yaml:7: features.two.size.0: ", "`0`")
    assert_names(three, "dataset.yaml:4: features.three.quality: ", "100", "`500`")


@pytest.mark.parametrize("text", ["name: &name [*name]", "a: " + "[" * 5000])
def test_endless_yaml_is_an_error(text: str) -> None:
    with raises(SpecError, "dataset.yaml", "nested", "alias"):
        parse_spec(text)
