"""Labels of tokens: equal to those that plain Python makes of the package's words and offsets; and what is refused."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Encoding, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from recordmill.pipeline.build.texts.encode import Labeller, RowEncoder, check_sequence, encoded_name
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.spec.model import SpecError, load_spec, parse_spec
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.texts.text_stored import PREFIXES, TextError
from recordmill.transforms.texts.token_labels_spec import TokenLabels
from tests import models
from tests.messages import assert_names, raises

TYPES = ("PER", "LOC")
CLASSES = {scheme: ("O", *(f"{each}{name}" for name in TYPES for each in PREFIXES[scheme])) for scheme in PREFIXES}
ROWS = 10_000
ODD = ["", "日本", "naïve", "a b", "😀", "don't", "1996-08-22", "ﬁn", "x" * 40]


def made_words(draw: random.Random) -> list[str]:
    known = [word for text in models.corpus(40) for word in text.split()]
    return [draw.choice(ODD) if draw.random() < 0.2 else draw.choice(known)[:20] for _ in range(draw.randint(0, 9))]


def made_tags(draw: random.Random, words: int, scheme: str) -> list[str]:
    tags: list[str] = []
    while len(tags) < words:
        name, size = draw.choice(TYPES), draw.randint(1, min(3, words - len(tags)))
        if draw.random() < 0.4:
            tags.append("O")
        elif scheme == "none":
            tags.append(name)
        elif scheme == "bioes" and size == 1:
            tags.append(f"S-{name}")
        else:
            last = "E" if scheme == "bioes" else "I"
            tags += [f"B-{name}", *[f"I-{name}"] * (size - 2), *[f"{last}-{name}"] * (size > 1)]
    return tags


def encoder(data: bytes, text: dict[str, Any], labels: dict[str, Any]) -> RowEncoder:
    body = Text(kind="text", tokenizer="huggingface", model="m", **text)
    tags = TokenLabels(kind="token_labels", text="body", **labels)
    return RowEncoder({"body": body, "tags": tags}, {"body": Learned(model=data)}, {"body": "b", "tags": "t"})


def encoded(rows: RowEncoder, texts: list[Any], cells: list[Any]) -> tuple[list[Any], list[Any], dict[int, Fault]]:
    kind = pa.list_(pa.binary()) if isinstance(texts[0], list) else pa.binary()
    plain = [[word.encode() for word in each] if isinstance(each, list) else each.encode() for each in texts]
    table, faults = rows(pa.table({"body": pa.array(plain, kind), "tags": pa.array(cells, kind)}))
    return (*(table[encoded_name(name)].to_pylist() for name in ("body", "tags")), faults)


def theirs(name: str) -> tuple[Tokenizer, bytes]:
    data = models.MADE[name]().to_str().encode()
    made = Tokenizer.from_str(data.decode())
    made.no_padding()
    made.no_truncation()
    return made, data


def plainly(encoding: Encoding, tags: list[str], classes: tuple[str, ...], label: str, ignore: int) -> list[int]:
    """The labels of words' tokens: the first has its tag; with `all`, B- is followed by I-."""
    labels, before = [], None
    for word in encoding.word_ids:
        if word is None:
            labels.append(ignore)
        elif word != before:
            labels.append(classes.index(tags[word]))
        else:
            labels.append(ignore if label == "first" else classes.index(tags[word].replace("B-", "I-")))
        before = word
    return labels


@pytest.mark.first(1)
@pytest.mark.parametrize("name", models.MADE)
@pytest.mark.parametrize("label", ["first", "all"])
def test_labels_are_those_of_the_packages_words(name: str, label: str) -> None:
    package, data = theirs(name)
    draw = random.Random(1)
    words = [made_words(draw) for _ in range(ROWS // 6)]
    tags = [made_tags(draw, len(each), "bio") for each in words]
    rows = encoder(data, {"pretokenized": True}, {"classes": CLASSES["bio"], "label": label, "ignore": -7})
    ids, labels, faults = encoded(rows, words, [[tag.encode() for tag in each] for each in tags])
    if isinstance(package.pre_tokenizer, pre_tokenizers.ByteLevel):
        package.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)  # as RoBERTa's needs for words
    wanted = [package.encode(each, is_pretokenized=True) for each in words]
    assert not faults
    assert ids == [each.ids for each in wanted]
    assert labels == [plainly(*each, CLASSES["bio"], label, -7) for each in zip(wanted, tags, strict=True)]


def spans_plainly(text: str, encoding: Encoding, spans: list[dict[str, Any]], scheme: str, label: str) -> Any:
    """The labels of a text, character by character; None if a span has no token."""
    at = {place: number for number, span in enumerate(spans) for place in range(span["start"], span["end"])}
    kept: list[tuple[int, int | None]] = []
    before: Any = None
    for token, ((start, end), word) in enumerate(zip(encoding.offsets, encoding.word_ids, strict=True)):
        marks = [place for place in range(start, end) if not text[place].isspace()]
        found = next((at[place] for place in marks if place in at), None)
        if not marks and at.get(start - 1, -1) == at.get(end, -2):
            found = at[end]
        if label == "all" or before != (word, found):
            kept.append((token, found))
        before = (word, found)
    labels = [-100] * len(encoding.ids)
    for number in (None, *range(len(spans))):
        tokens = [token for token, found in kept if found == number]
        if number is not None and not tokens:
            return None
        for place, token in enumerate(tokens):
            is_first, is_last = place == 0, place == len(tokens) - 1
            bioes = "S-" if is_first and is_last else "B-" if is_first else "E-" if is_last else "I-"
            start = {"none": "", "bio": "B-" if is_first else "I-", "bioes": bioes}[scheme]
            labels[token] = CLASSES[scheme].index("O" if number is None else start + spans[number]["label"])
    return labels


def made_spans(draw: random.Random, text: str) -> list[dict[str, Any]]:
    cuts = sorted(draw.sample(range(len(text) + 1), min(len(text) + 1, 2 * draw.randint(0, 3)) // 2 * 2))
    return [span(start, end, draw.choice(TYPES)) for start, end in zip(cuts[::2], cuts[1::2], strict=True)]


@pytest.mark.first(1)
@pytest.mark.parametrize("name", models.MADE)
@pytest.mark.parametrize(("scheme", "label"), [("bio", "all"), ("bioes", "first"), ("bioes", "all"), ("none", "first")])
def test_labels_of_spans_are_those_of_characters(name: str, scheme: str, label: str) -> None:
    package, data = theirs(name)
    draw = random.Random(3)
    texts = ["  ".join(made_words(draw)) + draw.choice(["", "\n", " 🙂"]) for _ in range(ROWS // 12)]
    spans = [made_spans(draw, text) for text in texts]
    rows = encoder(data, {}, {"classes": CLASSES[scheme], "label": label, "scheme": scheme, "spans": True})
    shuffled = [draw.sample(each, len(each)) for each in spans]
    ids, labels, faults = encoded(rows, texts, [json.dumps(each).encode() for each in shuffled])
    bare = [package.encode(text, add_special_tokens=False) for text in texts]
    assert ids == [package.encode(text).ids for text in texts]
    assert {each.reason for each in faults.values()} == {"malformed_span"}
    around = package.encode("a").special_tokens_mask
    before, after = (-100,) * (around[0] == 1), (-100,) * (around[-1] == 1)
    for row, (text, encoding) in enumerate(zip(texts, bare, strict=True)):
        wanted = spans_plainly(text, encoding, spans[row], scheme, label)
        assert (row in faults) == (wanted is None)
        if wanted is not None:
            assert labels[row] == [*before, *wanted, *after]


def llama(pre_tokenizer: Any = None) -> Tokenizer:
    """A BPE of characters whose one word is the whole text, as of Llama 2, Mistral and Gemma."""
    pieces = {piece: id_ for id_, piece in enumerate(["<unk>", *"▁abdeinory,."])}
    made = Tokenizer(BPE(pieces, [], unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    return made


WHOLE = [None, pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(" ", "merged_with_previous")]


@pytest.mark.parametrize("pre_tokenizer", WHOLE)
def test_a_tokenizer_of_one_word_labels_words_of_the_text(pre_tokenizer: Any) -> None:
    text, spans = "adda, be  in rio. andy", [[0, 4, "PER"], [13, 16, "LOC"]]
    rows = encoder(llama(pre_tokenizer).to_str().encode(), {}, {"classes": CLASSES["bio"], "spans": True})
    _, [labels], _ = encoded(rows, [text], [json.dumps(spans).encode()])
    offsets = llama(pre_tokenizer).encode(text).offsets
    labelled = [(text[start:end], label) for (start, end), label in zip(offsets, labels, strict=True) if label != -100]
    assert labelled == [("a", 1), (",", 0), *[(" ", 0)] * 3, ("r", 3), (".", 0), (" ", 0)], "a piece may be a space"


SEQUENCES = [
    ("bio", "I-PER", (1, "I-PER", "the beginning")),
    ("bio", "O I-PER", (2, "I-PER", "O")),
    ("bio", "B-LOC I-PER", (2, "I-PER", "B-LOC")),
    ("bio", "B-LOC B-LOC I-LOC O", None),
    ("bioes", "B-PER O", (2, "O", "B-PER")),
    ("bioes", "B-PER S-PER", (2, "S-PER", "B-PER")),
    ("bioes", "S-PER E-PER", (2, "E-PER", "S-PER")),
    ("bioes", "O B-PER", (2, "B-PER", "last")),
    ("bioes", "B-PER I-PER E-PER S-LOC O", None),
    ("none", "I-PER E-LOC", None),
]


@pytest.mark.parametrize(("scheme", "tags", "facts"), SEQUENCES)
def test_the_order_of_tags(scheme: str, tags: str, facts: tuple[Any, ...] | None) -> None:
    if facts is None:
        check_sequence(tags.split(), scheme)
        return
    with raises(TextError, f"word {facts[0]}", *facts[1:], f"`scheme: {scheme}`", "`scheme: none`") as caught:
        check_sequence(tags.split(), scheme)
    assert caught.value.reason == "tags_out_of_order"


def span(start: Any, end: Any, label: Any = "PER") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


FAULTS: list[tuple[Any, Any, str, tuple[Any, ...]]] = [
    (["a", "b"], ["O"], "unequal_lists", ("2 words", "1 tag")),
    (["a"], [], "unequal_lists", ("1 word", "0 tags")),
    (["a", "b"], ["O", "Zorro"], "unknown_tag", ("word 2", "`classes`")),
    (["a", "b"], ["O", "5"], "unknown_tag", ("word 2", "id")),
    (["a", "b"], ["O", "-1"], "unknown_tag", ("word 2",)),
    (["a", "b"], ["O", "I-PER"], "tags_out_of_order", ("word 2", "I-PER", "O")),
    ("ab cd", [span(0, 2), span(3, 6)], "malformed_span", ("span 2", "from 3 to 6", "5 characters")),
    ("ab cd", [span(-1, 2)], "malformed_span", ("span 1", "-1")),
    ("ab cd", [span(2, 1)], "malformed_span", ("span 1", "from 2 to 1")),
    ("ab cd", [span(3, 5), span(0, 4)], "malformed_span", ("span 1 ", "span 2")),
    ("ab cd", [span(2, 3)], "malformed_span", ("span 1", "no token")),
    ("ab cd", [span(1, 1)], "malformed_span", ("span 1", "no token")),
    ("ab cd", [span(0, 2, "Zorro")], "unknown_tag", ("span 1", "`classes`")),
    ("ab cd", [span(0, 2, None)], "malformed_span", ("span 1", "`label`")),
    ("ab cd", [span(0.0, 2)], "malformed_span", ("span 1", "`start`")),
    ("ab cd", [{}], "malformed_span", ("span 1", "`end`")),
    ("ab cd", [[0, 2]], "malformed_span", ("span 1", "`label`")),
    ("ab cd", [[0, 2, "PER"], [1, 3, "LOC"]], "malformed_span", ("span 2", "span 1")),
]


@pytest.mark.parametrize(("text", "tags", "reason", "facts"), FAULTS)
def test_faults_name_the_place_and_no_text(text: Any, tags: Any, reason: str, facts: tuple[Any, ...]) -> None:
    by_word = isinstance(text, list)
    rows = encoder(theirs("bpe")[1], {"pretokenized": by_word}, {"classes": CLASSES["bio"], "spans": not by_word})
    cell = [tag.encode() for tag in tags] if by_word else json.dumps(tags).encode()
    good = ([["a"], text], [[b"O"], cell]) if by_word else (["a", text], [b"[]", cell])
    _, _, faults = encoded(rows, *good)
    assert faults.keys() == {1}
    assert (faults[1].reason, faults[1].column) == (reason, "t")
    assert_names(faults[1].message, *facts)
    assert "Zorro" not in faults[1].message


def test_a_name_comes_before_an_id() -> None:
    words = ["ab", "c"]
    encoding = theirs("bpe")[0].encode(words, is_pretokenized=True)
    labeller = Labeller(TokenLabels(kind="token_labels", text="body", classes=("1", "0"), scheme="none"))
    assert labeller(words, encoding, [b"1", b"0"]) == [0, -100, 1]


SPEC_FAULTS = [
    ("text: body", "tags.classes", ("`classes: [O, B-PER, I-PER]`", "`classes_file`")),
    ("text: body, classes: [O], classes_file: a.txt", "tags.classes", ("`classes_file`",)),
    ("text: body, classes: [O, NOUN]", "tags.classes", ("'NOUN'", "`scheme: none`")),
    ("text: body, classes: [O, E-PER]", "tags.classes", ("'E-PER'", "B-")),
    ("text: body, classes: [O, B-PER], label: all", "tags.classes", ("'I-PER'", "`label: all`")),
    ("text: chars, spans: true, classes: [B-PER, I-PER]", "tags.classes", ("'O'", "`spans: true`")),
    ("text: body, classes: [O, B-PER], ignore: 1", "tags.classes", ("'B-PER'", "`ignore`", "-100")),
    ("text: bodi, classes: [O]", "tags.text", ("'bodi'", "body")),
    ("text: plain, classes: [O]", "tags.text", ("'plain'", "words", "`tokenizer: huggingface`")),
    ("text: number, classes: [O]", "tags.text", ("'number'", "kind number", "`tokenizer: huggingface`")),
    ("text: chars, classes: [O]", "tags.text", ("'chars'", "`pretokenized: true`", "`spans: true`")),
    ("text: body, spans: true, classes: [O]", "tags.text", ("'body'", "`pretokenized`", "`spans`")),
]
FEATURES = """
  body: {kind: text, tokenizer: huggingface, model: a.json, pretokenized: true, max_length: 9}
  chars: {kind: text, tokenizer: huggingface, model: a.json}
  plain: {kind: text}
  number: {kind: number}
"""


@pytest.mark.parametrize(("options", "place", "facts"), SPEC_FAULTS)
def test_contradictions_are_told_when_the_spec_is_read(options: str, place: str, facts: tuple[str, ...]) -> None:
    features = f"{FEATURES}  tags: {{kind: token_labels, {options}}}\n"
    with raises(SpecError, f"features.{place}", *facts):
        parse_spec(f"name: a\nsource: {{format: jsonl, path: a.jsonl}}\nfeatures:{features}")


def test_a_cut_text_packs_with_its_labels_alone() -> None:
    with raises(SpecError, "features.text.pretokenized", "huggingface"):  # others take no words
        parse_spec("name: a\nsource: {format: jsonl, path: a}\nfeatures: {text: {kind: text, pretokenized: true}}\n")
    tags = "  tags: {kind: token_labels, text: body, classes: [O]}\n  ids: {kind: raw, type: int64, many: true}\n"
    text = f"name: a\nsource: {{format: jsonl, path: a}}\nfeatures:{FEATURES}{tags}pack: {{length: 9, features: %s}}\n"
    parse_spec(text % "[body, tags]")
    with raises(SpecError, "features.body.max_length", "'body'"):
        parse_spec(text % "[body, tags, ids]")


def test_a_file_of_tags(tmp_path: Path) -> None:
    spec = "name: a\nsource: {format: jsonl, path: a}\nfeatures:%s  tags: {kind: token_labels, text: body, %s}\n"
    (tmp_path / "tags.txt").write_text("O\nB-PER\nNOUN\n")
    (tmp_path / "a.yaml").write_text(spec % (FEATURES, "classes_file: tags.txt, scheme: none"))
    assert load_spec(str(tmp_path / "a.yaml")).features["tags"].classes == ("O", "B-PER", "NOUN")  # type: ignore[union-attr]
    (tmp_path / "a.yaml").write_text(spec % (FEATURES, "classes_file: tags.txt"))
    with raises(SpecError, "features.tags.classes_file", "tags.txt", "'NOUN'", "`scheme: none`"):
        load_spec(str(tmp_path / "a.yaml"))
