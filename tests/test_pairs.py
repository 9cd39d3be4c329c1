"""Two texts as one list of ids: equal to what the package `tokenizers` makes of them; built, read, served, refused."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer, processors

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.spec.model import SpecError, load_spec, parse_spec
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.graph import Context
from recordmill.transforms.texts.text_graph import prepare_pairs
from recordmill.transforms.texts.text_stored import TextError, TokenizerOptions
from recordmill.transforms.texts.tokenizers import PairTokenizer
from tests import models
from tests.messages import raises
from tests.tables import FILES

ROWS = 10_000
LENGTHS = (5, 9, 16, 31)
STRATEGIES = ("longest_first", "only_first", "only_second")


def bert() -> Tokenizer:
    """Puts [CLS] before, [SEP] between and after; the second text and its [SEP] are of type 1."""
    return read_again(models.wordpiece())


def read_again(made: Tokenizer) -> Tokenizer:
    """Reads a tokenizer's file: its digits round the scores of Unigram."""
    read = Tokenizer.from_str(made.to_str())
    read.no_padding()
    read.no_truncation()
    return read


def roberta() -> Tokenizer:
    """Puts <s> before, two </s> between, </s> after; all are of type 0."""
    made = models.byte_level()
    made.add_special_tokens(["<s>", "</s>"])
    sep, cls = (("</s>", made.token_to_id("</s>")), ("<s>", made.token_to_id("<s>")))
    made.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=False, add_prefix_space=False)
    return made


def t5() -> Tokenizer:
    """Puts </s> after each text."""
    return with_template(models.unigram(), "$A </s> $B:1 </s>:1", "</s>")


def with_template(made: Tokenizer, pair: str, *tokens: str) -> Tokenizer:
    made, named = read_again(made), [(token, made.token_to_id(token)) for token in tokens]
    made.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=named)
    return made


MADE = {"bert": bert, "roberta": roberta, "t5": t5}


def made_pairs(rows: int) -> list[tuple[str, str]]:
    draw = random.Random(11)
    words = [word for text in models.corpus(60)[:-1] for word in text.split(" ")]
    words += ["[SEP]", "</s>"] * 2
    texts = [" ".join(draw.choices(words, k=draw.choice((0, 1, 3, 8, 20)))) for _ in range(2 * rows)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def ours(made: Tokenizer, **options: Any) -> PairTokenizer:
    given = TokenizerOptions(kind="pair", tokenizer="huggingface", **options)
    return PairTokenizer(made.to_str().encode(), given)


def joined(tokenizer: PairTokenizer, pairs: Sequence[tuple[str, str]]) -> list[list[int] | str]:
    """The ids of each pair, or the code of its reject."""
    found: list[list[int] | str] = []
    for first, second in tokenizer.tokens(pairs):
        try:
            found.append(tokenizer.join(first, second))
        except TextError as error:
            found.append(error.reason)
    return found


def theirs(tokenizer: Tokenizer, pair: tuple[str, str], separator: int) -> list[int] | str:
    try:
        made = tokenizer.encode(*pair)
    except Exception:  # of the package, for a text that is too short to cut
        return "uncuttable_pair"
    of_first = [id_ for id_, sequence in zip(made.ids, made.sequence_ids, strict=True) if sequence == 0]
    return "separator_in_text" if separator in of_first else list(made.ids)


@pytest.mark.first(1)
@pytest.mark.parametrize("name", MADE)
def test_ids_are_those_of_the_package(name: str) -> None:
    made, pairs, reasons = MADE[name](), made_pairs(ROWS), Counter[str]()
    for number, how in enumerate(STRATEGIES):
        for at, length in enumerate(LENGTHS):
            part = pairs[number * len(LENGTHS) + at :: len(STRATEGIES) * len(LENGTHS)]
            tokenizer = ours(made, max_length=length, truncate=how)
            cut = read_again(made)
            cut.enable_truncation(length, strategy=how)
            wanted = [theirs(cut, pair, tokenizer.separator_id) for pair in part]
            assert joined(tokenizer, part) == wanted
            reasons.update(each if isinstance(each, str) else how for each in wanted)
    assert min(reasons[each] for each in (*STRATEGIES, "separator_in_text", "uncuttable_pair")) > 20
    whole = ours(made)
    assert joined(whole, pairs[:99]) == [theirs(made, pair, whole.separator_id) for pair in pairs[:99]]


def xlnet() -> Tokenizer:
    """Puts [SEP] after each text, and [CLS], of type 2, last."""
    return with_template(models.wordpiece(), "$A [SEP] $B:1 [SEP]:1 [CLS]:2", "[SEP]", "[CLS]")


def types_of(ids: Sequence[Sequence[int]], tokenizer: PairTokenizer) -> list[list[int]]:
    """The types that the graph makes of ids."""
    rows = tf.ragged.constant(ids, tf.int64, row_splits_dtype=tf.int64)
    context = Context(learned=Learned(separator_id=tokenizer.separator_id, types=tokenizer.types))
    parts: Any = prepare_pairs(None, rows, context).store(None)  # type: ignore[arg-type]
    assert parts[""].to_list() == [*map(list, ids)]
    return list(parts["token_types"].to_list())


@pytest.mark.first(1)
@pytest.mark.parametrize("name", [*MADE, "xlnet"])
def test_types_are_those_of_the_package(name: str) -> None:
    made = (MADE | {"xlnet": xlnet})[name]()
    made.enable_truncation(24)
    tokenizer = ours(made)
    separator = tokenizer.separator_id
    pairs = [pair for pair in made_pairs(2000) if isinstance(theirs(made, pair, separator), list)]
    encodings = made.encode_batch(pairs)
    assert types_of([each.ids for each in encodings], tokenizer) == [each.type_ids for each in encodings]
    assert types_of([[], [1], [separator], []], tokenizer) == [[], [0], [0], []]


def test_files_that_do_not_tell_the_texts_apart_are_refused() -> None:
    facts = ("the model", "`separator`", "`special_tokens: false`")
    with raises(UserError, *facts):
        ours(models.byte_level())
    with raises(UserError, *facts):
        ours(with_template(models.unigram(), "</s> $A </s> $B", "</s>"))
    with raises(UserError, "`special_tokens: false`"):
        ours(with_template(models.unigram(), "$B </s> $A", "</s>"))
    with raises(UserError, "3 ids", "max_length", "4"):
        ours(bert(), max_length=3)
    with raises(UserError, "[SEP]"):
        ours(bert()).encode(("a [SEP]", "b"))
    with raises(UserError, "7 ids", "may have 2", "`truncate: longest_first`"):
        ours(bert(), max_length=5, truncate="only_first").encode(("a", "b c d e f g h"))


PAIR = "kind: pair, first: q, second: a"


@pytest.mark.parametrize(("options", "place", "facts"), [
    (f"{PAIR}", "features.qa.model", []),
    (f"{PAIR}, model: m, tokenizer: words", "features.qa.tokenizer", ["huggingface", "tiktoken", "words"]),
    (f"{PAIR}, model: m, tokenizer: tiktoken, separator: s", "features.qa.pattern", ["o200k_base"]),
    (f"{PAIR}, model: m, tokenizer: tiktoken, pattern: r50k_base", "features.qa.separator", ["<|endoftext|>"]),
    (f"{PAIR}, model: m, special_tokens: false", "features.qa.separator", ["<|endoftext|>"]),
    (f"{PAIR}, model: m, separator: s", "features.qa.separator", ["`special_tokens: false`"]),
    (f"{PAIR}, model: m, truncate: only_first", "features.qa.truncate", ["`max_length`"]),
    (f"{PAIR}, model: m, column: q", "features.qa.column", ["leave it out"]),
    (f"{PAIR}, model: m, optional: true", "features.qa.optional", ["leave it out"]),
    (f"{PAIR}, model: m, window: {{length: 9}}", "features.qa", ["`window`"]),
    (f"{PAIR}, model: m}}, t: {{kind: text, vocabulary: {{shared_with: qa}}", "features.t.vocabulary", ["'qa'"]),
])  # fmt: skip
def test_contradictions_are_told_when_the_spec_is_read(options: str, place: str, facts: list[str]) -> None:
    with raises(SpecError, place, *facts):
        parse_spec(f"name: a\nsource: {{format: jsonl, path: a.jsonl}}\nfeatures: {{qa: {{{options}}}}}\n")


def test_init_suggests_a_pair(tmp_path: Path) -> None:
    texts = [text for text in models.corpus(40)[:40] if text]
    for second, is_pair in (("hypothesis", True), ("answer", False)):
        rows = [json.dumps({"premise": text, second: text[::-1]}) for text in texts]
        (tmp_path / "rows.jsonl").write_text("\n".join(rows))
        assert ("# kind: pair" in starter(str(tmp_path / "rows.jsonl"), FILES)) == is_pair


SPEC = """
name: pairs
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 80, test: 20}
features:
  qa: {kind: pair, first: question, second: answer, model: bert.json, max_length: 24}
"""


@pytest.mark.slow
def test_a_servable_cuts_types_as_it_cuts_ids(tmp_path: Path) -> None:
    import keras

    from recordmill.keras import servable

    pairs = {str(number): pair for number, pair in enumerate(made_pairs(80)) if "[SEP]" not in pair[0]}
    lines = (json.dumps({"id": key, "question": first, "answer": second}) for key, (first, second) in pairs.items())
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    bert().save(str(tmp_path / "bert.json"))
    (tmp_path / "dataset.yaml").write_text(SPEC)
    dataset = open_dataset(build(load_spec(tmp_path / "dataset.yaml"), str(tmp_path / "out")).folder)
    inputs = {name: keras.Input((10,), name=name, dtype="int64") for name in ("qa", "qa_token_types")}
    model = keras.Model(inputs, {name: keras.ops.cast(each, "int64") for name, each in inputs.items()})
    read = dataset.evaluation_input("test", batch_size=4, text_length=10)
    served = servable(model, read)
    batch = next(iter(read.as_numpy()))
    of_rows = [dataset.tokenizer("qa").encode(pairs[each.key]) for each in [*dataset.records("test")][:4]]
    got = served(qa=np.concatenate(of_rows), qa_lengths=[len(each) for each in of_rows])
    for name in inputs:
        assert sorted(got[name].numpy().tolist()) == sorted(batch[name].tolist())
