"""A wrong spec is told of by its line, its place, what is wrong and the nearest right name."""

import pytest

from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError

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
IMAGE_KEYS = "antialias, background, channels, chroma, color, column, dct_scaling, fit, kind, max_bytes, max_pixels, "
NAME = "should be a name: a letter, then letters, digits and underscores, got"
BOOLEAN = "which YAML reads as a boolean: put it in quotes"
WRONG = [
    # (what stands in RIGHT, what stands there instead, the message)
    ("name: emoji\n", "", "1: name: is needed and is not there"),
    ("  path: rows.jsonl\n", "", "2: source.path: is needed and is not there"),
    ("label: ", "lable: ", "12: unknown key `lable`; did you mean `label`?; "
     "known here: about, analysis, duplicates, features, gate, key, label, name, "
     "preprocessing, rejects, shards, source, split_by, splits, summaries, together"),
    ("  path:", "  path: a\n  paths:", "5: source: unknown key `paths`; did you mean `path`?; "
     "known here: columns, encoding, format, images, path, split"),
    ("vocabulary", "vocabulry", "9: features.text: unknown key `vocabulry`; did you mean `vocabulary`?; "
     "known here: begin, case, column, end, "),
    ("size:", "size: [4, 4], sice:", f"6: features.image: unknown key `sice`; did you mean `size`?; "
     f"known here: {IMAGE_KEYS}"),
    # a feature's name that is another kind's name, or an option's
    ("price: {", "bytes: {zzz: 1, ", "11: features.bytes: unknown key `zzz`; known here: boundaries, clip, column, "),
    ("price: {kind: number", "image_: {kind: raw, zzz: 1",
     "11: features.image_: unknown key `zzz`; known here: column, kind, length, many, "),
    ("kind: text", "kind: txt", "7: features.text: kind 'txt' is unknown; did you mean `text`?; "
     "known: image, image_sequence, boxes, text, texts, "
     "category, categories, number, numbers, array, raw"),
    ("kind: text", "kind: 3", "7: features.text: kind '3' is unknown; known: image, image_sequence, boxes, text, "
     "texts, category, categories, number, numbers, array, raw"),
    ("    kind: text\n", "", "7: features.text: needs a `kind: …`, got "),
    ("{kind: number}", "{kind:number}", "11: features.price: needs a `kind: …`, got `kind:number`"),
    ("format: jsonl", "format: json", "2: source: format 'json' is unknown; did you mean `jsonl`?; "),
    ("{kind: number}", "number", "11: features.price: should be a mapping, got `number`"),
    ("{kind: number}", "", "11: features.price: should be a mapping, got nothing"),
    # words about the dataset
    ("label: ", 'about: {title: "a\\nb"}\nlabel: ', r"12: about.title: should be one line of text, got `a\nb`"),
    ("label: ", "about: {homepage: 'ftp://x.org'}\nlabel: ", "12: about.homepage: should be a URL that begins "
     "with http:// or https://, without blanks, got `ftp://x.org`"),
    ("label: ", "about: {homepage: 'javascript:a()'}\nlabel: ",
     "12: about.homepage: should be a URL that begins with http"),
    ("label: ", "about: {languages: [x1]}\nlabel: ",
     "12: about.languages.0: should be a language's code, such as `en`"),
    # types and ranges
    ("vocabulary: 10", "vocabulary: many", "9: features.text.vocabulary: should be a whole number, got `many`"),
    ("vocabulary: 10", "vocabulary: 1.5", "9: features.text.vocabulary: should be a whole number, got `1.5`"),
    ("vocabulary: 10", "vocabulary: yes", "9: features.text.vocabulary: should be a whole number, got `yes`"),
    ("vocabulary: 10", "vocabulary: 0", "9: features.text.vocabulary: should be 1 or more, got `0`"),
    ("size: [4, 4]", "size: [4, 4], quality: 101", "6: features.image.quality: should be 100 or less, got `101`"),
    ("size: [4, 4]", "size: wide", "6: features.image.size: should be a whole number, or a list of them, got 'wide'"),
    ("size: [4, 4]", "size: [4]", "6: features.image.size: too few items, got [4]"),
    ("size: [4, 4]", "size: [4, 4, 3]",
     "6: features.image.size: should be a list of at most 2 items, got [4, 4, 3]"),
    ("size: [4, 4]", "size: [4, 0]", "6: features.image.size.1: should be 1 or more, got `0`"),
    ("size: [4, 4]", "size: [4, 4], fit: padd", "6: features.image.fit: should be 'pad', 'crop', 'stretch' or 'none', "
     "got `padd`; did you mean `pad`?"),
    ("test: 2", "test: -1", "13: splits.test: should be 0 or more, got `-1`"),
    ("test: 2", "test: .inf", "13: splits.test: should be a finite number, got `.inf`"),
    ("test: 2", "test: much", "13: splits.test: should be a number, got `much`"),
    ("test: 2", "te st: 2", f"13: splits.te st: {NAME} `te st`"),
    ("name: emoji", "name: my-emoji", f"1: name: {NAME} `my-emoji`"),
    ("name: emoji", f"name: {'a' * 101}", "1: name: should be text of at most 100 characters, got `aaaaa"),
    ("price: {", "unit-price: {", f"11: features.unit-price: {NAME} `unit-price`"),
    ("label: category", "label: category\nkey: []", "13: key: should not be empty"),
    # what YAML takes for something else
    ("name: emoji", "name: yes", f"1: name: should be text, got `yes`, {BOOLEAN}"),
    ("name: emoji", "name: 2024",
     "1: name: should be text, got `2024`, which YAML reads as a number: put it in quotes"),
    ("name: emoji", "name:", "1: name: should be text, got nothing"),
    ("{kind: category}", "{kind: category, classes: [a, no]}",
     f"10: features.category.classes.1: should be text, got `no`, {BOOLEAN}"),
    ("{kind: category}", "{kind: category, classes: [2026-11-20]}", "10: features.category.classes.0: should be text, "
     "got `2026-11-20`, which YAML reads as a date: put it in quotes"),
    ("  price:", "  on:", "11: YAML reads the key `on` as a boolean: put it in quotes"),
    ("test: 2", "1.5: 2", "13: YAML reads the key `1.5` as a number: put it in quotes"),
    # classes
    ("{kind: category}", "{kind: category, classes: []}", "10: features.category.classes: should not be empty"),
    ("{kind: category}", "{kind: category, classes: [b, a, b]}",
     "10: features.category.classes: the class 'b' stands here 2 times"),
    ("{kind: category}", '{kind: category, classes: [a, " "]}',
     "10: features.category.classes.1: a class is one line and not blank, got ' '"),
    ("{kind: category}", '{kind: category, classes: ["a\\nb"]}',
     r"10: features.category.classes.0: a class is one line and not blank, got 'a\nb'"),
    # one part against another
    ("label: category", "label: categry", "12: label: there is no feature 'categry' among image, text, category, "
     "price; did you mean `category`?"),
    ("label: category", "label: price\nsplit_by: {stratify: price}", "13: split_by.stratify: 'price' is no feature of "
     "kind category"),
    ("label: category", "label: category\nsplit_by: {group: a, time: b}", "13: split_by: needs exactly one of column, "
     "group, time and stratify, got group, time"),
    ("label: category", "label: category\nsplit_by: {column: s, values: {tran: a}}", "13: split_by: there is no split "
     "'tran' among train, test; did you mean `train`?"),
    ("label: category", "label: category\npreprocessing: own.py", "13: preprocessing: should be a function, written "
     "`module:function`, got `own.py`"),
    ("{kind: number}", "{kind: number, optional: true, indicator: true}\n  price_missing: {kind: raw}",
     "12: features.price_missing: 'price_missing' is what 'price' stores its missing under: call the feature other"),
    ("{kind: category}", "{kind: category, optional: true}",
     "10: features.category: 'category' is the label: it cannot be optional"),
    ("  price:", "  key:", "11: features.key: no feature can be named 'key': every record's own key is stored under "
     "it; call it otherwise and give `column: key`"),
    ("  price:", "  train:", "11: features.train: no feature can be named 'train': the analysis uses it; "
     "call it otherwise and give `column: train`"),
    ("{kind: number}", "{kind: number, column: text}", "11: features.price: column 'text' is wanted as text and here "
     "as number: a column is read as one type"),
    ("{kind: number}", '{kind: number, column: "@hash"}', "5: features: the column '@hash' cannot be read: rename it, "
     "`@` begins our own"),
    ("train: 8", "trian: 8", "13: splits: needs a `train` with a share above 0, got {trian: 8, test: 2}"),
    ("train: 8", "train: 0", "13: splits: needs a `train` with a share above 0, got {train: 0, test: 2}"),
    ("train: 8", "val: 8", "13: splits: needs a `train` with a share above 0, got {val: 8, test: 2}; does `val` mean "
     "`validation`?"),
    ("splits: {train: 8,", "shards: {val: 4}\nsplits: {train: 8, validation: 1,", "13: shards.val: there is no split "
     "'val' among train, validation, test; did you mean `validation`?"),
    ("{kind: number}", "{kind: texts, column: tags}\n  tags: {kind: raw, many: true}", "12: features.tags: column "
     "'tags' is wanted as list of text (separator '\\n') and here as list of text: a column is read as one type"),
    ("train: 8, test: 2", "train: 1e-9", "13: splits: the share 1e-09 of 'train' rounds to 0"),
    ("splits:", "together: [text, price]\nsplits:", "13: together: 'text' is of kind text, one value a row: only lists "
     "have lengths to compare"),
    ("splits:", "together: [[txt, price]]\nsplits:", "13: together: there is no feature 'txt'; did you mean `text`?"),
    ("kind: number}", "kind: numbers}\ntogether: [price, price]", "12: together: should name two lists or "
     "more, each once, got [price, price]"),
    ("kind: number}", "kind: numbers}\ntogether: [price]", "12: together: should name two lists or more, "
     "each once, got [price]"),
    ("{kind: number}", "{kind: texts, texts_per_row: 2, max_texts: 3}", "11: features.price: `texts_per_row` and "
     "`max_texts` exclude each other: a row has exactly `texts_per_row`"),
    ("{kind: number}", "{kind: texts, pack: 8}", "11: features.price: unknown key `pack`; "),
    ("splits:", "shards: 3\nsplits:", "13: shards: should be a power of two, such as 2, got 3"),
    ("splits:", "shards: 0\nsplits:", "13: shards: should be 1 or more, got `0`"),
    ("splits:", "shards: {train: 131072}\nsplits:", "13: shards.train: should be 65536 or less, got `131072`"),
    ("splits:", "shards: {tran: 4}\nsplits:", "13: shards.tran: there is no split 'tran' among train, test; "
     "did you mean `train`?"),
    # YAML itself
    ("label: category", "label: category\nlabel: price",
     "13: `label` stands here a second time; the first is in line 12"),
    ("name: emoji", "\tname: emoji", "1: not valid YAML: a tab cannot indent a line: use spaces"),
    ("[4, 4]}", "[4, 4}", "6: not valid YAML: while parsing a flow sequence that begins in line 6, "
     "expected ',' or ']', but got '}'"),
    ("name: emoji", "name: a: b", "1: not valid YAML: mapping values are not allowed here"),
    ("name: emoji", "name: !!python/name:os.system x", "1: the tag `!!python/name:os.system` is refused"),
    ("rows.jsonl", "rows\0.jsonl", "4: not valid YAML: a file holds no character 0x0"),
    ("label:", "---\nlabel:", "12: not valid YAML: expected a single document in the stream"),
    ("{kind: number}", "*missing", "11: not valid YAML: found undefined alias 'missing'"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_one_mistake_is_one_line(right: str, wrong: str, message: str) -> None:
    assert right in RIGHT
    with pytest.raises(SpecError) as error:
        parse_spec(RIGHT.replace(right, wrong, 1))
    first, *others = str(error.value).splitlines()
    assert first.startswith(f"dataset.yaml:{message}"), first
    assert others == []


@pytest.mark.parametrize(
    ("text", "got"),
    [("", "nothing"), ("# a comment\n", "nothing"), ("[a]", "a list"), ("5", "a number"), ("x", "text")],
)
def test_what_is_no_mapping_is_no_spec(text: str, got: str) -> None:
    with pytest.raises(SpecError, match=f"^my.yaml: wanted a mapping of keys .*, got {got}$"):
        parse_spec(text, "my.yaml")


def test_every_mistake_is_told_of() -> None:
    text = RIGHT.replace("name:", "nmae:").replace("vocabulary: 10", "vocabulary: x").replace("[4, 4]", "[0, a]")
    with pytest.raises(SpecError) as error:
        parse_spec(text)
    beginnings = [
        "dataset.yaml:1: name: is needed",
        "dataset.yaml:6: features.image.size.0: should be 1 or more",
        "dataset.yaml:6: features.image.size.1: should be a whole number",
        "dataset.yaml:9: features.text.vocabulary: should be a whole number",
        "dataset.yaml:1: unknown key `nmae`",
    ]
    for line, beginning in zip(str(error.value).splitlines(), beginnings, strict=True):
        assert line.startswith(beginning)


def test_one_of_several_sources_is_named() -> None:
    text = RIGHT.replace("  format: jsonl\n", "  - {format: jsonl, path: a}\n").replace("  path:", "  - path:")
    with pytest.raises(SpecError, match=r"^dataset.yaml:4: source.1: needs a `format: …`, got `path`$"):
        parse_spec(text)


def test_what_was_merged_in_is_wrong_where_it_is_written() -> None:
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
    assert str(error.value).splitlines() == [
        "dataset.yaml:4: features.one.quality: should be 100 or less, got `500`",
        "dataset.yaml:7: features.two.size.0: should be 1 or more, got `0`",
        "dataset.yaml:4: features.three.quality: should be 100 or less, got `500`",
    ]


@pytest.mark.parametrize("text", ["name: &name [*name]", "a: " + "[" * 5000])
def test_yaml_without_an_end_is_no_crash(text: str) -> None:
    with pytest.raises(SpecError, match="nested too deep, or an alias stands inside what it is an alias of"):
        parse_spec(text)
