"""Cases of texts: one or several a row, pairs, chats, and labels of tokens.

Expected ids are written as pieces, which stand in a list by id: `2 3` is `the cat` of `[PAD] [UNK] the cat`.
"""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import yaml
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.farm_hash import fingerprint64
from tests.table.case import ABSENT, Case, Windows, int64

RAW = ["The cat sat", "the cats", "the", "", "cat, the dog!", "the dogs' cat", "the hat", "dog_1 cat's"]
"""Of `train` are the first six: `the` occurs five times, `cat` three times."""
LENGTHS = [3, 2, 1, 0, 3, 3, 2, 2]  # of words between spaces


def ids(pieces: str, *rows: str) -> list[Any]:
    """Returns the ids of rows of pieces, which are their places in a list."""
    place = {piece: id_ for id_, piece in enumerate(pieces.split(" "))}
    return int64([[place[piece] for piece in row.split()] for row in rows])


def full(rows: Sequence[Any], length: int, padding: int = 0) -> list[Any]:
    """Returns rows padded to a length."""
    return int64([[*row, *[padding] * (length - len(row))] for row in rows])


def cut(options: str, raw: Sequence[Any], rows: Sequence[Any], length: int, padding: int = 0, **more: Any) -> Case:
    """Makes a case of rows that are stored as they are, and padded to `max_length` in any batch."""
    stored = {"": rows, **more.pop("parts", {})}
    read = {
        part: full(each, length, 0 if part else padding) if np.ndim(each[0]) else each for part, each in stored.items()
    }
    return Case(options, raw, read, stored, {"": padding}, **more)


def lines(*words: str) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


# Words
BY_COUNT = "[PAD] [UNK] the cat sat dogs dog cats"  # equal counts descend by UTF-8
LOWER = "[PAD] [UNK] straße ﬁn e\u0301 é i\u0307 strasse fin tail"
FORMS = ["Straße", "ﬁn", "e\u0301", "é", "İ", "STRASSE", "Fin ℡", "tail of\u00adf"]
WORDS = {
    "text": Case(
        "{kind: text}",
        RAW,
        {
            "": ids(
                BY_COUNT,
                *("the cat sat", "the cats", "the", "", "cat the dog", "the dogs cat", "the [UNK]", "[UNK] cat [UNK]"),
            )
        },
    ),
    "text_optional": Case(
        "{kind: text, optional: true, column: note, case: keep, begin: true, end: true, vocabulary: 2}",
        [],
        {
            "": ids(
                "[PAD] [UNK] [BEGIN] [END] the cat",
                "[BEGIN] [UNK] cat [UNK] [END]",
                "[BEGIN] [END]",
                "[BEGIN] the [END]",
                "[BEGIN] [END]",
                "[BEGIN] cat the [UNK] [END]",
                "[BEGIN] the [UNK] cat [END]",
                "[BEGIN] the [UNK] [END]",
                "[BEGIN] [UNK] cat [UNK] [END]",
            )
        },
        columns={"note": [RAW[0], ABSENT, *RAW[2:]]},
    ),
    "text_lower": Case(
        "{kind: text, vocabulary: lower.txt}",
        FORMS,
        {"": ids(LOWER, "straße", "ﬁn", "e\u0301", "é", "i\u0307", "strasse", "fin", "tail [UNK] [UNK]")},
        files={"lower.txt": lines(*LOWER.split()[2:])},
    ),
    "text_nfc": Case(
        "{kind: text, normalize: nfc, tokenizer: characters, case: keep, vocabulary: nfc.txt}",
        ["e\u0301 E\u0301", "\u3000é\t \n b ", "ﬁ", "b", "", "b", "e", "\u00a0"],
        {"": ids("[PAD] [UNK] é É ﬁ ▁ b e", "é ▁ É", "é ▁ b", "ﬁ", "b", "", "b", "e", "")},
        files={"nfc.txt": lines("é", "É", "ﬁ", "▁", "b", "e")},
    ),
    "text_nfkc": Case(
        "{kind: text, normalize: nfkc, vocabulary: nfkc.txt}",
        FORMS,
        {
            "": ids(
                "[PAD] [UNK] straße fin é tel",
                "straße",
                "fin",
                "é",
                "é",
                "[UNK]",
                "[UNK]",
                "fin tel",
                "[UNK] [UNK] [UNK]",
            )
        },
        files={"nfkc.txt": lines("straße", "fin", "é", "tel")},
    ),
    "text_fold": Case(
        "{kind: text, case: fold, vocabulary: fold.txt}",
        FORMS,
        {
            "": ids(
                "[PAD] [UNK] strasse fin é tel off",
                "strasse",
                "fin",
                "é",
                "é",
                "[UNK]",
                "strasse",
                "fin tel",
                "[UNK] off",
            )
        },
        files={"fold.txt": lines("strasse", "fin", "é", "tel", "off")},
    ),
    "text_whitespace": cut(
        "{kind: text, tokenizer: whitespace, minimum_count: 2, max_length: 2, truncate: start, keep_length: true}",
        RAW,
        ids(
            "[PAD] [UNK] the cat",
            *("cat [UNK]", "the [UNK]", "the", "", "the [UNK]", "[UNK] cat", "the [UNK]", "[UNK] [UNK]"),
        ),
        2,
        parts={"length": LENGTHS},
    ),
    "text_bytes": cut(
        "{kind: text, tokenizer: bytes, begin: true, end: true, max_length: 6, keep_length: true}",
        FORMS,
        int64([[1, *(byte + 3 for byte in text.lower().encode()[:4]), 2] for text in FORMS]),
        6,
        parts={"length": [2 + len(text.lower().encode()) for text in FORMS]},
    ),
    "text_buckets": Case(
        "{kind: text, vocabulary: the.txt, oov_buckets: 3, begin: true}",
        RAW,
        {
            "": int64(
                [
                    [4, *(5 if word == "the" else 1 + fingerprint64(word.encode()) % 3 for word in row.split())]
                    for row in (
                        "the cat sat",
                        "the cats",
                        "the",
                        "",
                        "cat the dog",
                        "the dogs cat",
                        "the hat",
                        "dog_1 cat s",
                    )
                ]
            )
        },
        files={"the.txt": lines("the")},
    ),
    "text_hashed": Case(
        "{kind: text, hash_buckets: 50, end: true, ngrams: [1, 2]}",
        ["a b c", "a", "", "A b", "c", "b", "b c", "d"],
        {
            "": int64(
                [
                    [*(2 + fingerprint64(words.encode()) % 50 for words in row), 1]
                    for row in (
                        ["a", "b", "c", "a b", "b c"],
                        ["a"],
                        [],
                        ["a", "b", "a b"],
                        ["c"],
                        ["b"],
                        ["b", "c", "b c"],
                        ["d"],
                    )
                ]
            )
        },
    ),
    "text_ngrams": Case(
        "{kind: text, ngrams: 2, vocabulary: 3}",
        ["a b a b", "b a b", "a", "", "c a b", "c a", "a b d", "d a b"],  # a b 4, b a 2, c a 2 times
        {
            "": ids(
                "[PAD] [UNK] a_b c_a b_a",
                *("a_b b_a a_b", "b_a a_b", "", "", "c_a a_b", "c_a", "a_b [UNK]", "[UNK] a_b"),
            )
        },
    ),
    "text_owner": Case(
        "{kind: text, vocabulary: 3, minimum_count: 2}",
        ["a a b", "b", "c", "", "", "d", "e e", "a e"],
        {"": ids("[PAD] [UNK] c a d", *("a a [UNK]", "[UNK]", "c", "", "", "d", "[UNK] [UNK]", "a [UNK]"))},
    ),
    "text_shared": Case(
        "{kind: text, vocabulary: {shared_with: text_owner}}",
        ["a", "c c", "c d", "", "", "c", "e", "b"],
        {"": ids("[PAD] [UNK] c a d", *("a", "c c", "c d", "", "", "c", "[UNK]", "[UNK]"))},
    ),
}

# Subwords, learned and given
PIECES = "[UNK] the cat ##s [CLS] [SEP] [PAD] dog , ! ' _"
BPE = "[PAD] [UNK] [BEGIN] he ▁t ▁the t ▁ e h a c"
"""Of `the` five times and `cat` twice: three merges, then letters by count."""


def _given_model() -> SentencePieceProcessor:
    """Returns a SentencePiece model with ids as no learned one has."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the cats"] * 3),
        model_writer=model,
        **{"model_type": "bpe", "vocab_size": 20, "hard_vocab_limit": False, "num_threads": 1, "minloglevel": 2},
        **{"pad_id": 3, "unk_id": 2, "bos_id": 1, "eos_id": 0},
    )
    return SentencePieceProcessor(model_proto=model.getvalue())


GIVEN = _given_model()
SUBWORDS = {
    "text_wordpiece": Case(
        "{kind: text, tokenizer: wordpiece, vocabulary: 14, minimum_count: 2, end: true}",
        RAW,
        {
            "": ids(
                "[PAD] [UNK] [SEP] a c e h t ##a ##c ##e ##h ##t ##he the ##at cat",
                *("the cat [UNK] [SEP]", "the [UNK] [SEP]", "the [SEP]", "[SEP]", "cat [UNK] the [UNK] [UNK] [SEP]"),
                *("the [UNK] [UNK] cat [SEP]", "the h ##at [SEP]", "[UNK] [UNK] [UNK] cat [UNK] [UNK] [SEP]"),
            )
        },
    ),
    "text_wordpiece_model": Case(
        "{kind: text, tokenizer: wordpiece, model: pieces.txt, case: keep, begin: true, end: true}",
        RAW,
        {
            "": ids(
                PIECES,
                *("[CLS] [UNK] cat [UNK] [SEP]", "[CLS] the cat ##s [SEP]", "[CLS] the [SEP]", "[CLS] [SEP]"),
                *("[CLS] cat , the dog ! [SEP]", "[CLS] the dog ##s ' cat [SEP]", "[CLS] the [UNK] [SEP]"),
                "[CLS] dog _ [UNK] cat ' [UNK] [SEP]",
            )
        },
        padding={"": 6},
        files={"pieces.txt": lines(*PIECES.split())},
    ),
    "text_bpe": Case(
        "{kind: text, tokenizer: sentencepiece, model_type: bpe, vocabulary: 9, minimum_count: 2, begin: true}",
        RAW,
        {
            "": ids(
                BPE,
                *("[BEGIN] ▁the ▁ c a t ▁ [UNK] a t", "[BEGIN] ▁the ▁ c a t [UNK]", "[BEGIN] ▁the", "[BEGIN]"),
                *("[BEGIN] ▁ c a t [UNK] ▁the ▁ [UNK]", "[BEGIN] ▁the ▁ [UNK] ▁ c a t", "[BEGIN] ▁the ▁ h a t"),
                "[BEGIN] ▁ [UNK] ▁ c a t [UNK]",
            )
        },
    ),
    "text_unigram": Case(
        "{kind: text, tokenizer: sentencepiece, vocabulary: 20, end: true}",
        ["cats", "Cat dogs", "dogs dog the", "the the", "the s", "cats cat dog", "s  Dog", "the xs"],
        {
            "": ids(
                "[PAD] [UNK] [END] s ▁cat ▁dog ▁the o h g e d c a t ▁",
                *("▁cat s [END]", "▁cat ▁dog s [END]", "▁dog s ▁dog ▁the [END]", "▁the ▁the [END]", "▁the ▁ s [END]"),
                *("▁cat s ▁cat ▁dog [END]", "▁ s ▁dog [END]", "▁the ▁ [UNK] s [END]"),
            )
        },
    ),
    "text_sentencepiece_model": Case(
        "{kind: text, tokenizer: sentencepiece, model: given.model, case: lower, begin: true, end: true}",
        RAW,
        {"": int64([[1, *GIVEN.encode(text.lower()), 0] for text in RAW])},
        padding={"": 3},
        files={"given.model": GIVEN.serialized_model_proto()},
    ),
}

# Tokenizers of models
NAMES = "[UNK] [CLS] [SEP] [PAD] <user> <assistant> <system> <tool> <developer> <function> </s> the cat dog sat hat ##s , ! '"


def tokenizer_json(padding: str | None = None) -> bytes:
    """Makes WordPieces like BERT's, with [CLS] and [SEP] around texts and pairs, and a section for padding."""
    place = {name: id_ for id_, name in enumerate(NAMES.split())}
    made = Tokenizer(models.WordPiece(place, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(*((name, place[name]) for name in ("[SEP]", "[CLS]")))
    made.add_special_tokens([AddedToken(name, special=True) for name in place if name[0] in "[<"])
    if padding:
        made.enable_padding(pad_id=place[padding], pad_token=padding, length=9)
        made.enable_truncation(2)
    return made.to_str().encode()


TOKENIZER = {"tokenizer.json": tokenizer_json()}
MERGED = "eC th the at cat 12 123 dog".split()
RANKS = {
    **{bytes([byte]): byte for byte in range(256)},
    **{piece.encode(): 256 + at for at, piece in enumerate(MERGED)},
}
TIKTOKEN = {"ranks.tiktoken": lines(*(f"{base64.b64encode(piece).decode()} {rank}" for piece, rank in RANKS.items()))}
CODE = ["theCat 3123", "don'T", "the\n\n", "", "  cat", "é", "3123", "<|endoftext|>"]


def ranked(*rows: str, begin: Sequence[int] = (), end: Sequence[int] = ()) -> list[Any]:
    """Returns the ids of rows of pieces with ~ between them: ranks, or a piece's bytes."""
    pieces = [[each.encode() for each in row.split("~")] for row in rows]
    return int64(
        [
            [*begin, *(id_ for piece in row for id_ in ([RANKS[piece]] if piece in RANKS else piece)), *end]
            for row in pieces
        ]
    )


END = "<|endoftext|>"
LIBRARIES = {
    "text_huggingface": cut(
        "{kind: text, tokenizer: huggingface, model: tokenizer.json, max_length: 5, keep_length: true}",
        RAW,
        ids(
            NAMES,
            *("[CLS] the cat sat [SEP]", "[CLS] the cat ##s [SEP]", "[CLS] the [SEP]", "[CLS] [SEP]"),
            *("[CLS] cat , the [SEP]", "[CLS] the dog ##s [SEP]", "[CLS] the hat [SEP]", "[CLS] dog [UNK] [UNK] [SEP]"),
        ),
        5,
        3,
        parts={"length": [5, 5, 3, 2, 7, 7, 4, 8]},
        files=TOKENIZER,
    ),
    "text_words": cut(
        "{kind: text, tokenizer: huggingface, model: tokenizer.json, pretokenized: true, special_tokens: false,"
        " begin: <system>, end: </s>, max_length: 6, truncate: start}",
        [
            ["The", "cats", "sat"],
            ["dogs", "!"],
            "the hat",
            [],
            ["cats", "dogs", "hat"],
            ["the"],
            ["no", "cat"],
            ["cats"],
        ],
        ids(
            NAMES,
            *("<system> the cat ##s sat </s>", "<system> dog ##s ! </s>", "<system> the hat </s>", "<system> </s>"),
            *("<system> ##s dog ##s hat </s>", "<system> the </s>", "<system> [UNK] cat </s>", "<system> cat ##s </s>"),
        ),
        6,
        3,
        files=TOKENIZER,
    ),
    "text_plain": cut(
        "{kind: text, tokenizer: huggingface, model: padded.json, special_tokens: false, max_length: 3, end: <tool>}",
        RAW,
        ids(
            NAMES,
            *("the cat <tool>", "the cat <tool>", "the <tool>", "<tool>", "cat , <tool>", "the dog <tool>"),
            *("the hat <tool>", "dog [UNK] <tool>"),
        ),
        3,
        10,
        files={"padded.json": tokenizer_json("</s>")},
    ),
    "text_tiktoken": Case(
        f"{{kind: text, tokenizer: tiktoken, model: ranks.tiktoken, pattern: r50k_base, end: '{END}'}}",
        CODE,
        {"": ranked(*("th~eC~at~ 3~123", "don'T", "the~\n\n", "", "  ~cat", "é", "3~123", END), end=[50256])},
        padding={"": 50257},
        files=TIKTOKEN,
    ),
    "text_cl100k": Case(
        f"{{kind: text, tokenizer: tiktoken, model: ranks.tiktoken, pattern: cl100k_base, begin: '{END}'}}",
        CODE,
        {"": ranked(*("th~eC~at~ 3~12~3", "don'T", "the~\n\n", "", "  ~cat", "é", "3~12~3", END), begin=[100257])},
        padding={"": 100258},
        files=TIKTOKEN,
    ),
    "text_o200k": Case(
        f"{{kind: text, tokenizer: tiktoken, model: ranks.tiktoken, pattern: o200k_base, end: '{END}'}}",
        CODE,
        {"": ranked(*("the~C~at~ 3~12~3", "don'T", "the~\n\n", "", "  ~cat", "é", "3~12~3", END), end=[199999])},
        padding={"": 200000},
        files=TIKTOKEN,
    ),
    "text_regex": Case(
        r"{kind: text, tokenizer: tiktoken, model: ranks.tiktoken, pattern: '.', end: A}",
        ["the", "a", "123", "", "b", "c", "d", "e"],
        {"": ranked(*("t~h~e", "a", "1~2~3", "", "b", "c", "d", "e"), end=[65])},
        padding={"": 264},
        files=TIKTOKEN,
    ),
}

TEXT = {**WORDS, **SUBWORDS, **LIBRARIES}
DOUBLED = (
    *("nfc", "nfkc", "fold", "whitespace", "bytes", "buckets", "hashed", "owner", "shared"),
    *("wordpiece", "bpe", "sentencepiece_model", "plain", "tiktoken"),
)
"""Cases of one text a row that are also cases of two: all but those of the same options."""
REVERSED = [5, 4, 3, 2, 1, 0, 6, 7]
"""For each row another one of its split."""


def twice(case: Case) -> Case:
    """Makes rows of two texts, a row's and another one's, of a case of one text a row: counts of words double."""
    feature = {**case.feature, "kind": "texts", "texts_per_row": 2}
    feature.pop("keep_length", None)
    if "minimum_count" in feature:
        feature["minimum_count"] *= 2
    if isinstance(owner := feature.get("vocabulary"), dict):
        feature["vocabulary"] = {"shared_with": owner["shared_with"].replace("text", "texts")}
    stored, padding = case.in_records()[""], case.padding.get("", 0)
    rows = [(stored[row], stored[other]) for row, other in enumerate(REVERSED)]
    length = feature.get("max_length")
    read = [np.stack(full(both, length or max(map(len, both)), padding)) for both in rows]
    lengths = int64([[len(first), len(second)] for first, second in rows])
    ids_of_rows = [np.concatenate(both) for both in rows]
    raw = [[case.raw[row], case.raw[other]] for row, other in enumerate(REVERSED)]
    parts = {"lengths": lengths}
    return replace(
        case, options=yaml.safe_dump(feature), raw=raw, read={"": read, **parts}, stored={"": ids_of_rows, **parts}
    )


def several(names: str, *rows: str, width: int | None = None, most: int | None = None) -> dict[str, Any]:
    """Returns what is stored and read of rows of texts with | between them; `-` is a row without texts."""
    texts = [ids(names, *row.split("|")) if row != "-" else [] for row in rows]
    lengths = int64([[len(text) for text in row] for row in texts])
    stored = {"": [np.concatenate([np.zeros(0, np.int64), *row]) for row in texts], "lengths": lengths}
    read = {"": [], "lengths": full(lengths, most) if most else lengths, "+length": int64([len(row) for row in texts])}
    for row in texts:
        wide = width if width is not None else max(map(len, row), default=0)
        values = np.zeros((most or len(row), wide), np.int64)
        for place, text in enumerate(row):
            values[place, : len(text)] = text
        read[""].append(values)
    return {"read": read, "stored": stored}


TEXTS = {
    "texts": Case(
        "{kind: texts}",
        [["The cat", "the"], "the cat\nThe", [], [""], ["sat"], ["dog", "cat", "dog"], ["the hat"], "\n"],
        **several(
            "[PAD] [UNK] the cat dog sat", "the cat|the", "the cat|the", "-", "", "sat", "dog cat dog", "the [UNK]", "-"
        ),
    ),
    "texts_most": Case(
        "{kind: texts, column: notes, optional: true, max_texts: 2, separator: ;, max_length: 3, truncate: start, end: true}",
        [],
        **several(
            "[PAD] [UNK] [END] b a",
            *("a b [END]|b [END]", "-", "a b [END]", "b [END]|a [END]", "-", "[END]|b [END]"),
            *("[UNK] [END]|[END]", "b b [END]"),
            width=3,
            most=2,
        ),
        columns={"notes": ["b a b;b;c c c", ABSENT, ["a b"], "b;a;c", [], ["", "b", "c"], "x;", ["b b b"]]},
    ),
    **{
        name.replace("text", "texts"): twice(case)
        for name, case in TEXT.items()
        if name.removeprefix("text_") in DOUBLED
    },
}

# Pairs
PAIR = {
    "question": ["the cat", "the cat sat!", "the", "", "cats", "the dog", "hat", "the cat, the dog"],
    "answer": ["sat", "the dogs", "the cats sat !", "the", "", "the hat sat !", "cat", "sat"],
    "short": ["sat", "the dogs", "cat", "the", "", "the hat", "cat", "sat"],
}


def pair(*rows: str) -> dict[str, Sequence[Any]]:
    """Returns ids, and types: 0 through the first separator, before the |."""
    both = [row.split("|") for row in rows]
    types = int64([[*[0] * len(first.split()), *[1] * len(second.split())] for first, second in both])
    return {"": ids(NAMES, *(row.replace("|", " ") for row in rows)), "token_types": types}


def cut_pair(options: str, *rows: str) -> Case:
    """Makes a case of pairs cut at 7 ids, 4 beside the special ones."""
    stored = pair(*("[CLS] " + row.replace("|", " [SEP]|") + " [SEP]" for row in rows))
    read = {"": full(stored[""], 7, 3), "token_types": full(stored["token_types"], 7)}
    options = f"{{kind: pair, model: tokenizer.json, max_length: 7, {options}}}"
    return Case(options, [], read, stored, {"": 3}, PAIR, files=TOKENIZER)


def of_bytes(first: Sequence[str], second: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Returns pairs of bytes between the tokens T, <|endoftext|> and E."""
    both = list(zip(map(str.encode, first), map(str.encode, second), strict=True))
    return {
        "": int64([[84, *one, 50256, *other, 69] for one, other in both]),
        "token_types": int64([[*[0] * (len(one) + 2), *[1] * (len(other) + 1)] for one, other in both]),
    }


ONE, OTHER = ["a", "", "ab", "é", "a b", "d", "e", "f"], ["x", "y", "", "z", "1", "2", "u", "v w"]
PAIRS = {
    "pair": Case(
        "{kind: pair, first: question, second: answer, model: tokenizer.json}",
        [],
        pair(
            *("[CLS] the cat [SEP]|sat [SEP]", "[CLS] the cat sat ! [SEP]|the dog ##s [SEP]"),
            *("[CLS] the [SEP]|the cat ##s sat ! [SEP]", "[CLS] [SEP]|the [SEP]", "[CLS] cat ##s [SEP]|[SEP]"),
            *("[CLS] the dog [SEP]|the hat sat ! [SEP]", "[CLS] hat [SEP]|cat [SEP]"),
            "[CLS] the cat , the dog [SEP]|sat [SEP]",
        ),
        padding={"": 3},
        columns=PAIR,
        files=TOKENIZER,
    ),
    "pair_cut": cut_pair(
        "first: question, second: answer",
        *("the cat|sat", "the cat|the dog", "the|the cat ##s", "|the", "cat ##s|", "the dog|the hat", "hat|cat"),
        "the cat ,|sat",
    ),
    "pair_first": cut_pair(
        "first: question, second: short, truncate: only_first",
        *(
            "the cat|sat",
            "the|the dog ##s",
            "the|cat",
            "|the",
            "cat ##s|",
            "the dog|the hat",
            "hat|cat",
            "the cat ,|sat",
        ),
    ),
    "pair_second": cut_pair(
        "first: short, second: question, truncate: only_second",
        *(
            "sat|the cat",
            "the dog ##s|the",
            "cat|the",
            "the|",
            "|cat ##s",
            "the hat|the dog",
            "cat|hat",
            "sat|the cat ,",
        ),
    ),
    "pair_plain": Case(
        "{kind: pair, first: short, second: question, model: tokenizer.json, special_tokens: false,"
        " begin: <user>, separator: <system>, end: </s>}",
        [],
        pair(
            *("<user> sat <system>|the cat </s>", "<user> the dog ##s <system>|the cat sat ! </s>"),
            *("<user> cat <system>|the </s>", "<user> the <system>|</s>", "<user> <system>|cat ##s </s>"),
            *("<user> the hat <system>|the dog </s>", "<user> cat <system>|hat </s>"),
            "<user> sat <system>|the cat , the dog </s>",
        ),
        padding={"": 3},
        columns=PAIR,
        files=TOKENIZER,
    ),
    "pair_tiktoken": Case(
        "{kind: pair, first: one, second: other, tokenizer: tiktoken, model: ranks.tiktoken, pattern: p50k_base,"
        " begin: T, separator: <|endoftext|>, end: E}",
        [],
        of_bytes(ONE, OTHER),
        padding={"": 50257},
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


def model(folder: str, template: str | None, **config: str) -> dict[str, bytes]:
    """Returns a tokenizer with its config, and maybe a template beside."""
    described = json.dumps({"bos_token": "[CLS]", "pad_token": "</s>", **config}).encode()
    beside = {} if template is None else {"chat_template.jinja": template.encode()}
    files = {**TOKENIZER, "tokenizer_config.json": described, **beside}
    return {f"{folder}/{name}": content for name, content in files.items()}


def turns(*said: str, role: str = "role", content: str = "content") -> list[Any]:
    """Makes messages such as `user: text`."""
    return [dict(zip((role, content), each.split(": "), strict=True)) for each in said]


def chat(*rows: str) -> dict[str, Sequence[Any]]:
    """Returns ids, and the mask: 1 for pieces with a star."""
    return {
        "": ids(NAMES, *(row.replace("*", "") for row in rows)),
        "loss_mask": int64([[int(piece.endswith("*")) for piece in row.split()] for row in rows]),
    }


def cut_chat(
    options: str, raw: Sequence[Any], length: int, padding: str, *rows: str, column: str, files: Any, **columns: Any
) -> Case:
    """Makes a case of chats of a column, cut at a length and padded by a token."""
    stored = chat(*rows)
    given = {"columns": {column: raw, **columns}, "files": files, "parts": {"loss_mask": stored["loss_mask"]}}
    return cut(f"{{kind: chat, {options}}}", [], stored[""], length, NAMES.split().index(padding), **given)


ASKED = turns("user: the cat", "assistant: sat")
LONG = [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]}, ASKED[1]]
ASK = {"instruction": ["the", "cat", "dog", "hat", "sat", "the", "the cat", "dog"]}
CHATS = {
    "chat": Case(
        "{kind: chat, model: said/tokenizer.json}",
        [
            ASKED,
            turns("human: the", "gpt: hat", "human: cat", "gpt: dogs", role="from", content="value"),
            json.dumps(ASKED),
            LONG,
            turns("user: the", "function_call: cat", "observation: dog", "assistant: sat"),
            turns("system: the", "user: dog", "assistant: cat, dog"),
            turns("assistant: hat", "tool: the", "assistant: cat"),
            turns("developer: the", "function: dog", "assistant: cat"),
        ],
        chat(
            "[CLS] <user> the cat </s> <assistant> sat* </s>*",
            "[CLS] <user> the </s> <assistant> hat* </s>* <user> cat </s> <assistant> dog* ##s* </s>*",
            *("[CLS] <user> the cat </s> <assistant> sat* </s>*",) * 2,
            "[CLS] <user> the </s> <assistant> cat* </s>* <tool> dog </s> <assistant> sat* </s>*",
            "[CLS] <system> the </s> <user> dog </s> <assistant> cat* ,* dog* </s>*",
            "[CLS] <assistant> hat* </s>* <tool> the </s> <assistant> cat* </s>*",
            "[CLS] <developer> the </s> <function> dog </s> <assistant> cat* </s>*",
        ),
        padding={"": 10},
        files=model("said", None, chat_template=MESSAGES + PROMPT),
    ),
    "chat_last": Case(
        "{kind: chat, column: talk, optional: true, model: beside/tokenizer.json, train: last,"
        " roles: {me: user, bot: assistant, boss: system, it: tool, dev: developer, fn: function}}",
        [],
        chat(
            *("[CLS] <user> the </s> <assistant> cat </s> <user> dog </s> <assistant> sat* </s>*", ""),
            "[CLS] <user> the </s> <assistant> cat* </s>*",
            "[CLS] <system> the </s> <user> hat </s> <assistant> cat* </s>*",
            *("[CLS] <user> the </s> <tool> cat </s> <assistant> dog* </s>*", ""),
            *("[CLS] <developer> the </s> <function> cat </s> <assistant> dog* </s>*", ""),
        ),
        padding={"": 10},
        columns={
            "talk": [
                turns("me: the", "bot: cat", "me: dog", "bot: sat"),
                ABSENT,
                turns("user: the", "assistant: cat"),
                turns("boss: the", "me: hat", "bot: cat"),
                turns("me: the", "it: cat", "bot: dog"),
                ABSENT,
                turns("dev: the", "fn: cat", "bot: dog"),
                ABSENT,
            ]
        },
        files=model("beside", MESSAGES + PROMPT, chat_template=BLOCKS),
    ),
    "chat_blocks": cut_chat(
        "column: blocks, model: said/tokenizer.json, config: config.json, template: blocks.jinja, max_length: 4,"
        " truncate: start",
        [
            ASKED,
            turns("user: the", "assistant: dog", "user: sat", "assistant: cat"),
            turns("user: the", "assistant: dog"),
            turns("user: hat", "assistant: the dogs"),
            *[turns("assistant: cat")] * 4,
        ],
        4,
        "dog",
        *("the cat <assistant> sat*", "<user> sat <assistant> cat*", "<user> the <assistant> dog*"),
        *("<assistant> the* dog* ##s*", *["<assistant> cat*"] * 4),
        column="blocks",
        files={
            **model("said", None, chat_template=MESSAGES + PROMPT),
            "config.json": b'{"pad_token": "dog"}',
            "blocks.jinja": BLOCKS.encode(),
        },
    ),
    "chat_tools": cut_chat(
        "column: asked, tools: given, model: tools/tokenizer.json, train: all, max_length: 6",
        [ASKED] * 8,
        6,
        "</s>",
        "<tool>* hat* [CLS]* <user>* the* cat*",
        *["[CLS]* <user>* the* cat* </s>* <assistant>*"] * 2,
        "<tool>* dog* [CLS]* <user>* the* cat*",
        *["<tool>* sat* [CLS]* <user>* the* cat*"] * 4,
        column="asked",
        given=[[{"name": "hat"}], [], ABSENT, '[{"name": "dog"}]', *[[{"name": "sat"}]] * 4],
        files=model("tools", TOOLS + MESSAGES),
    ),
    "chat_columns": Case(
        "{kind: chat, model: said/tokenizer.json, columns: {instruction: instruction, output: output, input: more, system: rule}}",
        [],
        chat(
            "[CLS] <system> sat </s> <user> the hat </s> <assistant> the* cat* </s>*",
            "[CLS] <user> cat </s> <assistant> sat* </s>*",
            "[CLS] <system> the </s> <user> dog </s> <assistant> hat* </s>*",
            "[CLS] <user> hat dog ##s </s> <assistant> sat* </s>*",
            *(f"[CLS] <user> {word} </s> <assistant> cat* </s>*" for word in ("sat", "the", "the cat", "dog")),
        ),
        padding={"": 10},
        columns={
            **ASK,
            "output": ["the cat", "sat", "hat", "sat", *["cat"] * 4],
            "more": ["hat", "", ABSENT, "dogs", *[ABSENT] * 4],
            "rule": ["sat", ABSENT, "the", "", *[ABSENT] * 4],
        },
        files=model("said", None, chat_template=MESSAGES + PROMPT),
    ),
}

# Labels of tokens
TAGS = "O B-PER I-PER E-PER S-PER"
TAGS_OF_WORDS = [
    ["O", "B-PER", "I-PER"],
    ["B-PER", "O"],
    "O 1",
    [],
    ["O", "B-PER", "I-PER"],
    ["O"],
    ["1", "2"],
    ["B-PER"],
]


def labels(tags: str, ignore: int, *rows: str) -> list[Any]:
    """Returns labels of rows of tags; - is a token to ignore."""
    place = {"-": ignore, **{tag: id_ for id_, tag in enumerate(tags.split())}}
    return int64([[place[tag] for tag in row.split()] for row in rows])


LABELS = {
    "token_labels": cut(
        "{kind: token_labels, text: text_words, classes: [O, B-PER, I-PER]}",
        TAGS_OF_WORDS,
        labels(
            TAGS,
            -100,
            *("- O B-PER - I-PER -", "- B-PER - O -", "- O B-PER -", "- -", "- - B-PER - I-PER -", "- O -"),
            *("- B-PER I-PER -", "- B-PER - -"),
        ),
        6,
        -100,
    ),
    "token_labels_all": cut(
        "{kind: token_labels, text: text_words, column: tags, optional: true, classes_file: tags.txt, scheme: bioes,"
        " label: all, ignore: -1}",
        [],
        labels(
            TAGS,
            -1,
            *("- O B-PER I-PER E-PER -", "- B-PER E-PER O -", "- - - -", "- -", "- I-PER I-PER E-PER O -", "- S-PER -"),
            *("- B-PER E-PER -", "- O O -"),
        ),
        6,
        -1,
        columns={
            "tags": [
                ["O", "B-PER", "E-PER"],
                ["S-PER", "O"],
                ABSENT,
                [],
                ["B-PER", "E-PER", "O"],
                ["S-PER"],
                ["1", "3"],
                ["O"],
            ]
        },
        files={"tags.txt": lines(*TAGS.split())},
    ),
    "token_labels_spans": cut(
        "{kind: token_labels, text: text_huggingface, spans: true, classes: [O, B-X, I-X]}",
        [
            [{"start": 4, "end": 11, "label": "X"}],  # cat sat
            [[4, 8, "X"]],  # cats
            [],
            "[]",
            [[5, 8, "X"], [0, 3, "X"]],  # the, and cat
            [[4, 8, "X"]],  # dogs
            [[3, 7, "X"]],  # hat, after white space
            [[6, 7, "X"]],  # cut off
        ],
        labels(
            "O B-X I-X",
            -100,
            *("- O B-X I-X -", "- O B-X - -", "- O -", "- -", "- B-X O B-X -", "- O B-X - -", "- O B-X -", "- O O O -"),
        ),
        5,
        -100,
    ),
    "token_labels_any": cut(
        "{kind: token_labels, text: text_huggingface, spans: true, scheme: none, label: all, classes: [Y, O, X]}",
        [[[4, 11, "X"]], [[4, 8, "X"]], [], [], [[5, 8, "Y"], [0, 3, "X"]], [[4, 8, "X"]], [[4, 7, "Y"]], []],
        labels(
            "Y O X",
            -100,
            *("- O X X -", "- O X X -", "- O -", "- -", "- X O Y -", "- O X X -", "- O Y -", "- O O O -"),
        ),
        5,
        -100,
    ),
}


# Windows and packs
def windows(names: str, *rows: str, stride: int) -> dict[str, Sequence[Any]]:
    """Returns the windows of rows, with | between them, and their places."""
    each = [ids(names, *row.split("|")) for row in rows]
    numbers = [Windows(range(len(row))) for row in each]
    return {
        "": [Windows(row) for row in each],
        "window": numbers,
        "start": [Windows(number * stride for number in row) for row in numbers],
    }


def in_windows(options: str, raw: Sequence[Any], stored: dict[str, Sequence[Any]], padding: int, **more: Any) -> Case:
    """Makes a case of windows of at most 4 ids."""
    read = {**stored, "": [Windows(full(row, 4, padding)) for row in stored[""]]}
    return Case(options, raw, read, stored, {"": padding}, **more)


LONG_TEXTS = [
    *("the cat sat the dog", "the", "", "cat cat", "the hat sat", "the dog sat the hat cat", "the cat sat hat", "dog"),
]
SPANS = [[[4, 11, "X"]], [], [], [[4, 7, "X"]], [[0, 11, "X"]], [[8, 15, "X"]], [[12, 15, "X"]], [[0, 3, "X"]]]
OF_SPANS = "{kind: token_labels, spans: true, classes: [O, B-X, I-X], "
WINDOWS = {
    "text_windows": in_windows(
        "{kind: text, tokenizer: huggingface, model: tokenizer.json, window: {length: 4, stride: 3}, pack: 8}",
        LONG_TEXTS,
        windows(
            NAMES,
            *("[CLS] the cat sat|sat the dog [SEP]", "[CLS] the [SEP]", "[CLS] [SEP]", "[CLS] cat cat [SEP]"),
            *("[CLS] the hat sat|sat [SEP]", "[CLS] the dog sat|sat the hat cat|cat [SEP]"),
            *("[CLS] the cat sat|sat hat [SEP]", "[CLS] dog [SEP]"),
            stride=3,
        ),
        3,
        files=TOKENIZER,
        dataset="windows",
    ),
    "token_labels_windows": in_windows(
        OF_SPANS + "text: text_windows}",
        SPANS,
        {
            "": [
                Windows(labels("O B-X I-X", -100, *row.split("|")))
                for row in (
                    *("- O B-X I-X|I-X O O -", "- O -", "- -", "- O B-X -", "- B-X I-X I-X|I-X -"),
                    *("- O O B-X|B-X I-X O O|O -", "- O O O|O B-X -", "- B-X -"),
                )
            ]
        },
        -100,
        dataset="windows",
    ),
    "text_repeated": Case(
        "{kind: text}", LONG_TEXTS, {"": ids("[PAD] [UNK] the cat sat dog hat", *LONG_TEXTS)}, dataset="windows"
    ),
    "text_apart": in_windows(
        "{kind: text, tokenizer: huggingface, model: tokenizer.json, special_tokens: false, window: {length: 4}}",
        LONG_TEXTS,
        windows(
            NAMES,
            *("the cat sat the|dog", "the", "", "cat cat", "the hat sat", "the dog sat the|hat cat", "the cat sat hat"),
            "dog",
            stride=4,
        ),
        3,
        files=TOKENIZER,
        dataset="packs",
    ),
    "token_labels_apart": in_windows(
        OF_SPANS + "text: text_apart}",
        SPANS,
        {
            "": [
                Windows(labels("O B-X I-X", -100, *row.split("|")))
                for row in (
                    *("O B-X I-X O|O", "O", "", "O B-X", "B-X I-X I-X", "O O B-X I-X|O O", "O O O B-X"),
                    "B-X",
                )
            ]
        },
        -100,
        dataset="packs",
    ),
}
CASES: dict[str, Case] = {**TEXT, **TEXTS, **PAIRS, **CHATS, **LABELS, **WINDOWS}
BOTH = ["text_apart", "token_labels_apart"]
SPECS: dict[str, dict[str, object]] = {
    "windows": {},
    "packs": {
        "pack": [
            {"length": 6, "features": BOTH, "padding": {"token_labels_apart": -7}},
            {"length": 3, "features": BOTH},
            {"length": 2, "features": BOTH, "split": True},
        ]
    },
}
"""The further options of datasets."""
