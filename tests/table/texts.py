"""Cases of texts: those of `plain_texts`, pairs, chats, labels of tokens, windows, packs, and rejects."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.table.case import ABSENT, Case, Rejected, Windows, int64
from tests.table.plain_texts import (
    ENDS,
    HUGGINGFACE,
    NAMES,
    TEXT,
    TEXTS,
    TIKTOKEN,
    TOKENIZER,
    Values,
    case,
    cut,
    file,
    full,
    ids,
    in_full,
    texts,
)

# Pairs
PAIR = {
    "question": ["the cat", "the cat sat!", "the", "", "cats", "the dog", "hat", "the cat, the dog"],
    "answer": ["sat", "the dogs", "the cats sat !", "the", "", "the hat sat !", "cat", "sat"],
    "short": ["sat", "the dogs", "cat", "the", "", "the hat", "cat", "sat"],
}
ONE, OTHER = ["a", "", "ab", "é", "a b", "d", "e", "f"], ["x", "y", "", "z", "1", "2", "u", "v w"]


def pair(begin: str, separator: str, end: str, rows: str) -> Values:
    """Returns the ids of rows of two texts with | between them, and types: 0 through the separator, then 1."""
    both = [row.split("|") for row in rows.split(";")]
    sides = [(f"{begin} {first} {separator}", f"{second} {end}") for first, second in both]
    types = int64([[*[0] * len(first.split()), *[1] * len(second.split())] for first, second in sides])
    return {"": ids(NAMES, ";".join(f"{first} {second}" for first, second in sides)), "token_types": types}


def _of_bytes() -> Values:
    both = list(zip(map(str.encode, ONE), map(str.encode, OTHER), strict=True))
    return {
        "": int64([[ord("T"), *one, 50256, *other, ord("E")] for one, other in both]),
        "token_types": int64([[*[0] * (len(one) + 2), *[1] * (len(other) + 1)] for one, other in both]),
    }


IN_PAIRS = {"padding": 3, "columns": PAIR, "files": TOKENIZER}
JOINED = "pair, model: tokenizer.json"
PAIRS = {
    "pair": case(
        f"{JOINED}, first: question, second: answer",
        [],
        pair(
            *("[CLS]", "[SEP]", "[SEP]"),
            "the cat | sat ; the cat sat ! | the dog ##s ; the | the cat ##s sat ! ; | the ; cat ##s | ;"
            "the dog | the hat sat ! ; hat | cat ; the cat , the dog | sat",
        ),
        **IN_PAIRS,
    ),
    "pair_cut": cut(
        f"{JOINED}, first: question, second: answer, max_length: 7",
        [],
        pair(
            *("[CLS]", "[SEP]", "[SEP]"),
            "the cat | sat ; the cat | the dog ; the | the cat ##s ; | the ; cat ##s | ; the dog | the hat ;"
            "hat | cat ; the cat , | sat",
        ),
        **IN_PAIRS,
    ),
    "pair_first": cut(
        f"{JOINED}, first: question, second: short, max_length: 7, truncate: only_first",
        [],
        pair(
            *("[CLS]", "[SEP]", "[SEP]"),
            "the cat | sat ; the | the dog ##s ; the | cat ; | the ; cat ##s | ; the dog | the hat ; hat | cat ;"
            "the cat , | sat",
        ),
        **IN_PAIRS,
    ),
    "pair_second": cut(
        f"{JOINED}, first: short, second: question, max_length: 7, truncate: only_second",
        [],
        pair(
            *("[CLS]", "[SEP]", "[SEP]"),
            "sat | the cat ; the dog ##s | the ; cat | the ; the | ; | cat ##s ; the hat | the dog ; cat | hat ;"
            "sat | the cat ,",
        ),
        **IN_PAIRS,
    ),
    "pair_plain": case(
        f"{JOINED}, first: short, second: question, special_tokens: false, begin: <user>, separator: <system>,"
        " end: </s>",
        [],
        pair(
            *("<user>", "<system>", "</s>"),
            "sat | the cat ; the dog ##s | the cat sat ! ; cat | the ; the | ; | cat ##s ; the hat | the dog ;"
            "cat | hat ; sat | the cat , the dog",
        ),
        **IN_PAIRS,
    ),
    "pair_tiktoken": case(
        "pair, first: one, second: other, tokenizer: tiktoken, model: ranks.tiktoken, pattern: p50k_base, begin: T,"
        " separator: <|endoftext|>, end: E",
        [],
        _of_bytes(),
        50257,
        columns={"one": ONE, "other": OTHER},
        files=TIKTOKEN,
    ),
}

# Chats
MESSAGES = "{{ bos_token }} {% for m in messages %}<{{ m.role }}> {{ m.content }} </s> {% endfor %}"
PROMPT = "{% if add_generation_prompt %}<assistant> {% endif %}"
BLOCKS = (
    "{% for m in messages %}<{{ m.role }}> {% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}"
)
TOOLS = "{% if tools %}<tool> {{ tools[0].name }} {% endif %}"


def model(folder: str, template: str | None = None, **config: str) -> dict[str, bytes]:
    """Returns a tokenizer with its config, and maybe a template beside."""
    described = json.dumps({"bos_token": "[CLS]", "pad_token": "</s>", **config}).encode()
    beside = {} if template is None else {"chat_template.jinja": template.encode()}
    files = {**TOKENIZER, "tokenizer_config.json": described, **beside}
    return {f"{folder}/{name}": content for name, content in files.items()}


def said(turns: str, role: str = "role", content: str = "content") -> list[Any]:
    """Makes messages of turns such as `user: text`, with | between them."""
    return [dict(zip((role, content), each.strip().split(": "), strict=True)) for each in turns.split("|")]


def chat(rows: str) -> Values:
    """Returns ids, and the mask: 1 for pieces with a star."""
    mask = [[int(piece.endswith("*")) for piece in row.split()] for row in rows.split(";")]
    return {"": ids(NAMES, rows.replace("*", "")), "loss_mask": int64(mask)}


ASKED = said("user: the cat|assistant: sat")
IN_PARTS = [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]}, ASKED[1]]
ANSWER = "<assistant> sat* </s>*"
CHATS = {
    "chat": case(
        "chat, model: said/tokenizer.json",
        [
            *(ASKED, said("human: the|gpt: hat|human: cat|gpt: dogs", "from", "value"), json.dumps(ASKED), IN_PARTS),
            said("user: the|gpt: cat|observation: dog|assistant: sat"),
            said("system: the|user: dog|assistant: cat, dog"),
            said("assistant: hat|tool: the|assistant: cat"),
            said("developer: the|function: dog|assistant: cat"),
        ],
        chat(
            f"[CLS] <user> the cat </s> {ANSWER} ;"
            "[CLS] <user> the </s> <assistant> hat* </s>* <user> cat </s> <assistant> dog* ##s* </s>* ;"
            f"[CLS] <user> the cat </s> {ANSWER} ; [CLS] <user> the cat </s> {ANSWER} ;"
            f"[CLS] <user> the </s> <assistant> cat* </s>* <tool> dog </s> {ANSWER} ;"
            "[CLS] <system> the </s> <user> dog </s> <assistant> cat* ,* dog* </s>* ;"
            "[CLS] <assistant> hat* </s>* <tool> the </s> <assistant> cat* </s>* ;"
            "[CLS] <developer> the </s> <function> dog </s> <assistant> cat* </s>*"
        ),
        ENDS,
        files=model("said", chat_template=MESSAGES + PROMPT),
    ),
    "chat_last": case(
        "chat, column: talk, optional: true, model: beside/tokenizer.json, train: last, system: rules, prompt: before,"
        " roles: {me: user, bot: assistant, boss: system, it: tool, dev: developer, fn: function}",
        [],
        chat(
            f"[CLS] <user> the </s> <assistant> cat </s> <user> dog </s> {ANSWER} ; ;"
            f"[CLS] <system> hat </s> <assistant> cat </s> <user> the </s> {ANSWER} ;"
            f"[CLS] <system> the </s> <user> hat </s> {ANSWER} ; [CLS] <user> the </s> <tool> cat </s> {ANSWER} ; ;"
            f"[CLS] <developer> the </s> <function> cat </s> {ANSWER} ;"
        ),
        ENDS,
        columns={
            "talk": [
                *(said("me: the|bot: cat|me: dog|bot: sat"), ABSENT, said("user: the|assistant: sat")),
                *(said("boss: the|me: hat|bot: sat"), said("me: the|it: cat|bot: sat"), ABSENT),
                *(said("dev: the|fn: cat|bot: sat"), ABSENT),
            ],
            "rules": [ABSENT, "the", "hat", "dog", *[ABSENT] * 4],
            "before": [*[ABSENT] * 2, said("bot: cat"), *[ABSENT] * 5],
        },
        files=model("beside", MESSAGES + PROMPT, chat_template=BLOCKS),
    ),
    "chat_blocks": cut(
        "chat, column: blocks, model: said/tokenizer.json, config: config.json, template: blocks.jinja, max_length: 4,"
        " truncate: start",
        [],
        chat(
            "the cat <assistant> sat* ; <user> sat <assistant> cat* ; <user> the <assistant> dog* ;"
            "<assistant> the* dog* ##s*" + "; <assistant> cat*" * 4
        ),
        NAMES.split().index("dog"),
        columns={
            "blocks": [
                *(ASKED, said("user: the|assistant: dog|user: sat|assistant: cat"), said("user: the|assistant: dog")),
                *(said("user: hat|assistant: the dogs"), *[said("assistant: cat")] * 4),
            ]
        },
        files={
            **model("said", chat_template=MESSAGES + PROMPT),
            "config.json": b'{"pad_token": "dog"}',
            "blocks.jinja": BLOCKS.encode(),
        },
    ),
    "chat_tools": cut(
        "chat, column: asked, tools: given, model: tools/tokenizer.json, train: all, max_length: 6",
        [],
        chat(
            "<tool>* hat* [CLS]* <user>* the* cat* ; [CLS]* <user>* the* cat* </s>* <assistant>* ;"
            "[CLS]* <user>* the* cat* </s>* <assistant>* ; <tool>* dog* [CLS]* <user>* the* cat*"
            + "; <tool>* sat* [CLS]* <user>* the* cat*"
            * 4
        ),
        ENDS,
        columns={
            "asked": [ASKED] * 8,
            "given": [[{"name": "hat"}], [], ABSENT, '[{"name": "dog"}]', *[[{"name": "sat"}]] * 4],
        },
        files=model("tools", TOOLS + MESSAGES),
    ),
    "chat_columns": case(
        "chat, model: said/tokenizer.json,"
        " columns: {instruction: instruction, output: output, input: more, system: rule, history: turns}",
        [],
        chat(
            f"[CLS] <system> cat </s> <user> the hat </s> {ANSWER} ;"
            f"[CLS] <user> the </s> <assistant> dog* </s>* <user> cat </s> {ANSWER} ;"
            f"[CLS] <system> the </s> <user> dog </s> {ANSWER} ; [CLS] <user> hat dog ##s </s> {ANSWER}"
            + f"; [CLS] <user> the </s> {ANSWER}"
            * 4
        ),
        ENDS,
        columns={
            "instruction": ["the", "cat", "dog", "hat", *["the"] * 4],
            "output": ["sat"] * 8,
            "more": ["hat", "", ABSENT, "dogs", *[ABSENT] * 4],
            "rule": ["cat", ABSENT, "the", "", *[ABSENT] * 4],
            "turns": [[], [["the", "dog"]], *[ABSENT] * 6],
        },
        files=model("said", chat_template=MESSAGES + PROMPT),
    ),
}

# Labels of tokens
BIOES = "O B-PER I-PER E-PER S-PER"
OF_SPANS = "token_labels, spans: true, classes: [O, B-X, I-X]"


def labels(tags: str, ignore: int, rows: str) -> list[Any]:
    """Returns the labels of rows of tags; - is a token to ignore."""
    place = {"-": ignore, **{tag: id_ for id_, tag in enumerate(tags.split())}}
    return int64([[place[tag] for tag in row.split()] for row in rows.split(";")])


def of_text(text: str, options: str, raw: Sequence[Any], values: list[Any], ignore: int = -100, **more: Any) -> Case:
    """Makes a case of labels, which are as long as the text."""
    made = case(f"token_labels, text: {text}, {options}", raw, values, ignore, **more)
    return replace(made, read=in_full(made.read, TEXT[text].feature["max_length"], ignore), stored=made.read)


LABELS = {
    "token_labels": of_text(
        "text_words",
        "classes: [O, B-PER, I-PER]",
        [["O", "B-PER", "I-PER"], ["B-PER", "O"], "O 1", [], ["O", "B-PER", "I-PER"], ["O"], ["1", "2"], ["B-PER"]],
        labels(
            BIOES,
            -100,
            "- O B-PER - I-PER - ; - B-PER - O - ; - O B-PER - ; - - ; - - B-PER - I-PER - ; - O - ; - B-PER I-PER - ;"
            "- B-PER - -",
        ),
    ),
    "token_labels_all": of_text(
        "text_words",
        "column: tags, optional: true, classes_file: tags.txt, scheme: bioes, label: all, ignore: -1",
        [],
        labels(
            BIOES,
            -1,
            "- O B-PER I-PER E-PER - ; - B-PER E-PER O - ; - - - - ; - - ; - I-PER I-PER E-PER O - ; - S-PER - ;"
            "- B-PER E-PER - ; - O O -",
        ),
        -1,
        columns={
            "tags": [
                *(["O", "B-PER", "E-PER"], ["S-PER", "O"], ABSENT, [], ["B-PER", "E-PER", "O"], ["S-PER"]),
                *(["1", "3"], ["O"]),
            ]
        },
        files=file("tags.txt", BIOES),
    ),
    "token_labels_spans": of_text(
        "text_huggingface",
        "spans: true, classes: [O, B-X, I-X]",
        [
            *([{"start": 4, "end": 11, "label": "X"}], [[4, 8, "X"]], [], "[]", [[5, 8, "X"], [0, 3, "X"]]),
            *([[4, 8, "X"]], [[3, 7, "X"]], [[6, 7, "X"]]),  # behind white space; of a token that is cut off
        ],
        labels(
            "O B-X I-X",
            -100,
            "- O B-X I-X - ; - O B-X - - ; - O - ; - - ; - B-X O B-X - ; - O B-X - - ; - O B-X - ; - O O O -",
        ),
    ),
    "token_labels_any": of_text(
        "text_huggingface",
        "spans: true, scheme: none, label: all, classes: [Y, O, X], fields: {start: at, end: to, label: is}",
        [
            [{"at": 4, "to": 11, "is": "X"}],
            [[4, 8, "X"]],
            [],
            [],
            [[5, 8, "Y"], [0, 3, "X"]],
            [[4, 8, "X"]],
            [[4, 7, "Y"]],
            [],
        ],
        labels("Y O X", -100, "- O X X - ; - O X X - ; - O - ; - - ; - X O Y - ; - O X X - ; - O Y - ; - O O O -"),
    ),
}

# Windows and packs
LONG_TEXTS = [
    *("the cat sat the dog", "the", "", "cat cat", "the hat sat", "the dog sat the hat cat", "the cat sat hat", "dog")
]
SPANS = [[[4, 11, "X"]], [], [], [[4, 7, "X"]], [[0, 11, "X"]], [[8, 15, "X"]], [[12, 15, "X"]], [[0, 3, "X"]]]


def in_windows(options: str, raw: Sequence[Any], rows: Sequence[Any], padding: int, stride: int, dataset: str) -> Case:
    """Makes a case of windows of at most 4 values, in a dataset."""
    made = case(options, raw, {}, padding, dataset=dataset, files=TOKENIZER)
    numbers = [range(len(row)) for row in rows]
    places = {"window": numbers, "start": [[number * stride for number in row] for row in numbers]}
    parts = {} if made.kind == "token_labels" else {part: list(map(Windows, each)) for part, each in places.items()}
    read = [Windows(full(row, 4, padding)) for row in rows]
    return replace(made, read={"": read, **parts}, stored={"": list(map(Windows, rows)), **parts})


WINDOWS = {
    "text_windows": in_windows(
        f"text, {HUGGINGFACE}, window: {{length: 4, stride: 3}}, pack: 8",
        LONG_TEXTS,
        texts(
            NAMES,
            "[CLS] the cat sat | sat the dog [SEP] ; [CLS] the [SEP] ; [CLS] [SEP] ; [CLS] cat cat [SEP] ;"
            "[CLS] the hat sat | sat [SEP] ; [CLS] the dog sat | sat the hat cat | cat [SEP] ;"
            "[CLS] the cat sat | sat hat [SEP] ; [CLS] dog [SEP]",
        ),
        *(3, 3, "windows"),
    ),
    "token_labels_windows": in_windows(
        f"{OF_SPANS}, text: text_windows",
        SPANS,
        [
            labels("O B-X I-X", -100, row.replace("|", ";"))
            for row in (
                *("- O B-X I-X | I-X O O -", "- O -", "- -", "- O B-X -", "- B-X I-X I-X | I-X -"),
                *("- O O B-X | B-X I-X O O | O -", "- O O O | O B-X -", "- B-X -"),
            )
        ],
        *(-100, 3, "windows"),
    ),
    "text_repeated": case(
        "text", LONG_TEXTS, ids("[PAD] [UNK] the cat sat hat dog", ";".join(LONG_TEXTS)), dataset="windows"
    ),
    "text_apart": in_windows(
        f"text, {HUGGINGFACE}, special_tokens: false, window: {{length: 4}}",
        LONG_TEXTS,
        texts(
            NAMES,
            "the cat sat the | dog ; the ; ; cat cat ; the hat sat ; the dog sat the | hat cat ; the cat sat hat ; dog",
        ),
        *(3, 4, "packs"),
    ),
    "token_labels_apart": in_windows(
        f"{OF_SPANS}, text: text_apart",
        SPANS,
        [
            labels("O B-X I-X", -100, row.replace("|", ";"))
            for row in (*("O B-X I-X O | O", "O", "", "O B-X", "B-X I-X I-X", "O O B-X I-X | O O", "O O O B-X", "B-X"),)
        ],
        *(-100, 4, "packs"),
    ),
    "raw_apart": Case(
        "{kind: raw, type: int64, many: true}",
        [[row] * row for row in range(8)],
        {"": int64([[row] * row for row in range(8)]), "+length": int64(range(8))},
        dataset="packs",
    ),
    "pair_apart": case(
        f"{JOINED}, first: question, second: short",
        [],
        pair(
            *("[CLS]", "[SEP]", "[SEP]"),
            "the cat | sat ; the cat sat ! | the dog ##s ; the | cat ; | the ; cat ##s | ; the dog | the hat ;"
            "hat | cat ; the cat , the dog | sat",
        ),
        **IN_PAIRS,
        dataset="packs",
    ),
    "chat_apart": case(
        "chat, model: said/tokenizer.json, columns: {instruction: question, output: answer}",
        [],
        chat(
            "; ".join(
                f"[CLS] <user> {first} </s> <assistant> {second}"
                for first, second in (
                    *(("the cat", "sat* </s>*"), ("the cat sat !", "the* dog* ##s* </s>*")),
                    *(("the", "the* cat* ##s* sat* !* </s>*"), ("", "the* </s>*"), ("cat ##s", "</s>*")),
                    *(
                        ("the dog", "the* hat* sat* !* </s>*"),
                        ("hat", "cat* </s>*"),
                        ("the cat , the dog", "sat* </s>*"),
                    ),
                )
            )
        ),
        ENDS,
        columns=PAIR,
        files=model("said", chat_template=MESSAGES + PROMPT),
        dataset="packs",
    ),
}


# Rejects
def faulty(options: str, row: int, code: str, raw: Sequence[Any], good: Values, **more: Any) -> Case:
    """Makes a case of equal rows and one at fault; `raw` is what the others hold, and what that one holds."""
    read = {part: [*values] * 8 for part, values in good.items()}
    read[""][row] = Rejected(code)
    columns = {name: [raw[each == row].get(name, ABSENT) for each in range(8)] for name in raw[0]}
    return case(options, [], read, 3, columns=columns, files=more.get("files", TOKENIZER), dataset="faults")


FAULTS = {
    "text_faults": faulty(
        f"text, {HUGGINGFACE}, pretokenized: true, column: cells",
        *(1, "missing_value", [{"cells": ["cat"]}, {}], {"": ids(NAMES, "[CLS] cat [SEP]")}),
    ),
    "texts_faults": replace(
        faulty(
            f"texts, {HUGGINGFACE}, texts_per_row: 1, special_tokens: false, column: lists",
            *(2, "wrong_type", [{"lists": ["cat"]}, {"lists": ["cat", "the"]}]),
            {"": [np.stack(ids(NAMES, "cat"))], "lengths": int64([[1]])},
        ),
        stored={"": ids(NAMES, "cat") * 8, "lengths": int64([[1]] * 8)},
    ),
    "token_labels_faults": faulty(
        "token_labels, text: text_faults, classes: [O, I-X], column: marks",
        *(3, "tags_out_of_order", [{"marks": ["O"]}, {"marks": ["I-X"]}], {"": labels("O", -100, "- O -")}),
    ),
    "pair_faults": faulty(
        f"{JOINED}, first: left, second: right",
        *(4, "separator_in_text", [{"left": "the", "right": "cat"}, {"left": "[SEP]", "right": "cat"}]),
        pair("[CLS]", "[SEP]", "[SEP]", "the | cat"),
    ),
    "chat_faults": faulty(
        "chat, model: said/tokenizer.json, column: talks",
        *(5, "no_trainable_token", [{"talks": ASKED}, {"talks": ASKED[:1]}]),
        chat(f"[CLS] <user> the cat </s> {ANSWER}"),
        files=model("said", chat_template=MESSAGES + PROMPT),
    ),
}


def spoken(rows: Sequence[Any], names: str, dropped: str) -> list[str]:
    """Returns the texts of rows of ids for people: names with spaces between them, without the dropped ones."""
    left = {id_: name for id_, name in enumerate(names.split()) if name not in dropped.split()}
    return [" ".join(left[id_] for id_ in row.tolist() if id_ in left) for row in rows]


SPOKEN = {"text_huggingface": "[CLS] [SEP]", "pair": "[CLS]", "pair_plain": "<user>", "chat": "", "chat_blocks": ""}
LABELLED = {"token_labels": "O B-PER I-PER", "token_labels_any": "Y O X"}
CASES: dict[str, Case] = {**TEXT, **TEXTS, **PAIRS, **CHATS, **LABELS, **WINDOWS, **FAULTS}
CASES |= {
    name: replace(CASES[name], shown=spoken(CASES[name].in_records()[""], NAMES, dropped))
    for name, dropped in SPOKEN.items()
}
for name, tags in LABELLED.items():
    tag_of = dict(enumerate(tags.split()))
    tagged = [[tag_of.get(id_) for id_ in row.tolist()] for row in CASES[name].in_records()[""]]
    CASES[name] = replace(CASES[name], shown=tagged)
BOTH = ["text_apart", "token_labels_apart"]
SPECS: dict[str, dict[str, object]] = {
    "windows": {},
    "faults": {"rejects": {"max_share": 1}},
    "packs": {
        "pack": [
            {"length": 6, "features": BOTH, "padding": {"token_labels_apart": -7}},
            {"length": 3, "features": BOTH},
            {"length": 2, "features": BOTH, "split": True},
            {"length": 9, "features": ["pair_apart"], "split": True},
            {"length": 20, "features": ["chat_apart"]},
            {"length": 4, "features": ["raw_apart"], "padding": {"raw_apart": -1}},
        ]
    },
}
"""The further options of datasets."""
