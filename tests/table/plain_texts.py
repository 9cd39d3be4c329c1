"""Cases of texts, one or several a row.

Expected ids are written as pieces, the rows with ; between them. A piece's id is its place in a list of all: `the cat`
is 2 3 in `[PAD] [UNK] the cat`.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import yaml
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.farm_hash import fingerprint64
from tests.table.case import ABSENT, Case, int64

RAW = ["The cat sat", "the cats", "the", "", "cat, the dog!", "the dogs' cat", "the hat", "dog_1 cat's"]
"""The first six are `train`: there `the` occurs five times, `cat` three times."""
Values = Mapping[str, Sequence[Any]]
"""Values by part."""


def ids(pieces: str, rows: str) -> list[Any]:
    """Returns the ids of rows."""
    place = {piece: id_ for id_, piece in enumerate(pieces.split())}
    return int64([[place[piece] for piece in row.split()] for row in rows.split(";")])


def full(rows: Sequence[Any], length: int, padding: int = 0) -> list[Any]:
    """Returns rows padded to a length."""
    return int64([[*row, *[padding] * (length - len(row))] for row in rows])


def case(options: str, raw: Sequence[Any], values: Values | list[Any], padding: int = 0, **more: Any) -> Case:
    """Makes a case of rows that are padded only beside longer ones."""
    parts = values if isinstance(values, Mapping) else {"": values}
    return Case(f"{{kind: {options}}}", raw, parts, padding={"": padding}, **more)


def cut(options: str, raw: Sequence[Any], values: Values | list[Any], padding: int = 0, **more: Any) -> Case:
    """Makes a case of rows that are padded to `max_length` in any batch."""
    made = case(options, raw, values, padding, **more)
    length = made.feature["max_length"] if "max_length" in made.feature else more["columns"]["length"]
    return replace(made, read=in_full(made.read, length, padding), stored=made.read)


def in_full(parts: Values, length: int, padding: int) -> dict[str, Sequence[Any]]:
    """Returns parts with their lists padded to a length, those beside the ids by 0."""
    return {
        part: full(rows, length, 0 if part else padding) if np.ndim(rows[0]) else rows for part, rows in parts.items()
    }


def lines(words: str | Sequence[str]) -> bytes:
    """Returns a file of words, one a line."""
    return "".join(f"{word}\n" for word in (words.split() if isinstance(words, str) else words)).encode()


def file(name: str, words: str) -> Any:
    """Returns a file of words by its name."""
    return {name: lines(words)}


def hashed(word: str, buckets: int) -> int:
    """Returns a word's bucket; a + is a space."""
    return fingerprint64(word.replace("+", " ").encode()) % buckets


# Words
LOWER = "straße ﬁn e\u0301 é i\u0307 strasse fin tail"
FORMS = ["Straße", "ﬁn", "e\u0301", "é", "İ", "STRASSE", "Fin ℡", "tail of\u00adf"]
HASHED = ["a ; b ; c ; a+b ; b+c", "a", "", "a ; b ; a+b", "c", "b", "b ; c ; b+c", "d"]
WORDS = {
    "text": case(
        "text",
        RAW,
        ids(
            "[PAD] [UNK] the cat sat dogs dog cats",  # equal counts descend by UTF-8
            "the cat sat ; the cats ; the ; ; cat the dog ; the dogs cat ; the [UNK] ; [UNK] cat [UNK]",
        ),
        shown=["the cat sat", "the cats", "the", "", "cat the dog", "the dogs cat", "the [UNK]", "[UNK] cat [UNK]"],
    ),
    "text_optional": case(
        "text, optional: true, column: note, case: keep, begin: true, end: true, vocabulary: 2",
        [],
        ids(
            "[PAD] [UNK] [BEGIN] [END] the cat",
            "[BEGIN] [UNK] cat [UNK] [END] ; [BEGIN] [END] ; [BEGIN] the [END] ; [BEGIN] [END] ;"
            "[BEGIN] cat the [UNK] [END] ; [BEGIN] the [UNK] cat [END] ; [BEGIN] the [UNK] [END] ;"
            "[BEGIN] [UNK] cat [UNK] [END]",
        ),
        columns={"note": [RAW[0], ABSENT, *RAW[2:]]},
        shown=["[UNK] cat [UNK]", "", "the", "", "cat the [UNK]", "the [UNK] cat", "the [UNK]", "[UNK] cat [UNK]"],
    ),
    "text_lower": case(
        "text, vocabulary: lower.txt",
        FORMS,
        ids(f"[PAD] [UNK] {LOWER}", "straße ; ﬁn ; e\u0301 ; é ; i\u0307 ; strasse ; fin ; tail [UNK] [UNK]"),
        files=file("lower.txt", LOWER),
    ),
    "text_nfc": case(
        "text, normalize: nfc, tokenizer: characters, case: keep, vocabulary: nfc.txt",
        ["e\u0301 E\u0301", "\u3000é\t \n b ", "ﬁ", "b", "", "b", "e", "\u00a0x"],
        ids("[PAD] [UNK] é É ﬁ ▁ b e", "é ▁ É ; é ▁ b ; ﬁ ; b ; ; b ; e ; [UNK]"),
        files=file("nfc.txt", "é É ﬁ ▁ b e"),
    ),
    "text_nfkc": case(
        "text, normalize: nfkc, vocabulary: nfkc.txt",
        FORMS,
        ids("[PAD] [UNK] straße fin é tel", "straße ; fin ; é ; é ; [UNK] ; [UNK] ; fin tel ; [UNK] [UNK] [UNK]"),
        files=file("nfkc.txt", "straße fin é tel"),
    ),
    "text_fold": case(
        "text, case: fold, vocabulary: fold.txt",
        FORMS,
        ids("[PAD] [UNK] strasse fin é tel off", "strasse ; fin ; é ; é ; [UNK] ; strasse ; fin tel ; [UNK] off"),
        files=file("fold.txt", "strasse fin é tel off"),
    ),
    "text_whitespace": cut(
        "text, tokenizer: whitespace, minimum_count: 4, max_length: 2, truncate: start, keep_length: true",
        RAW,
        {
            "": ids(
                "[PAD] [UNK] the",  # five times, of which three are kept
                "[UNK] [UNK] ; the [UNK] ; the ; ; the [UNK] ; [UNK] [UNK] ; the [UNK] ; [UNK] [UNK]",
            ),
            "length": [3, 2, 1, 0, 3, 3, 2, 2],
        },
    ),
    "text_bytes": cut(
        "text, tokenizer: bytes, begin: true, end: true, max_length: 6, keep_length: true",
        FORMS,
        {
            "": int64([[1, *(byte + 3 for byte in text.lower().encode()[:4]), 2] for text in FORMS]),
            "length": [2 + len(text.lower().encode()) for text in FORMS],
        },
        shown=[text.lower().encode()[:4].decode() for text in FORMS],
    ),
    "text_buckets": case(
        "text, vocabulary: the.txt, oov_buckets: 3, begin: true",
        RAW,
        int64(
            [
                [4, *(5 if word == "the" else 1 + hashed(word, 3) for word in row.split())]
                for row in "the cat sat/the cats/the//cat the dog/the dogs cat/the hat/dog_1 cat s".split("/")
            ]
        ),
        files=file("the.txt", "the"),
    ),
    "text_hashed": case(
        "text, hash_buckets: 50, end: true, ngrams: [1, 2]",
        ["a b c", "a", "", "A b", "c", "b", "b c", "d"],
        int64([[*(2 + hashed(each.strip(), 50) for each in row.split(";") if each), 1] for row in HASHED]),
    ),
    "text_ngrams": case(
        "text, ngrams: 2, vocabulary: 3",
        ["a b a b", "b a b", "a", "", "c a b", "c a", "a b d", "d a b"],  # a b 4, b a 2, c a 2 times
        ids("[PAD] [UNK] a_b c_a b_a", "a_b b_a a_b ; b_a a_b ; ; ; c_a a_b ; c_a ; a_b [UNK] ; [UNK] a_b"),
    ),
    "text_owner": case(
        "text, vocabulary: 3, minimum_count: 2",  # with the next case a 3, b 2, c 5, d 2 times
        ["a a b", "b", "c", "", "", "d", "e e", "a e"],
        ids("[PAD] [UNK] c a d", "a a [UNK] ; [UNK] ; c ; ; ; d ; [UNK] [UNK] ; a [UNK]"),
    ),
    "text_shared": case(
        "text, vocabulary: {shared_with: text_owner}",
        ["a", "c c", "c d", "", "", "c", "e", "b"],
        ids("[PAD] [UNK] c a d", "a ; c c ; c d ; ; ; c ; [UNK] ; [UNK]"),
    ),
}

# Subwords, learned and given
PIECES = "[UNK] the cat ##s [CLS] [SEP] [PAD] dog , ! ' _"


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
    "text_wordpiece": case(
        "text, tokenizer: wordpiece, vocabulary: 14, minimum_count: 2, end: true",
        RAW,
        ids(
            "[PAD] [UNK] [SEP] a c e h t ##a ##c ##e ##h ##t ##he the ##at cat",  # letters, then merges
            "the cat [UNK] [SEP] ; the [UNK] [SEP] ; the [SEP] ; [SEP] ; cat [UNK] the [UNK] [UNK] [SEP] ;"
            "the [UNK] [UNK] cat [SEP] ; the h ##at [SEP] ; [UNK] [UNK] [UNK] cat [UNK] [UNK] [SEP]",
        ),
    ),
    "text_wordpiece_model": case(
        "text, tokenizer: wordpiece, model: pieces.txt, case: keep, begin: true, end: true",
        RAW,
        ids(
            PIECES,
            "[CLS] [UNK] cat [UNK] [SEP] ; [CLS] the cat ##s [SEP] ; [CLS] the [SEP] ; [CLS] [SEP] ;"
            "[CLS] cat , the dog ! [SEP] ; [CLS] the dog ##s ' cat [SEP] ; [CLS] the [UNK] [SEP] ;"
            "[CLS] dog _ [UNK] cat ' [UNK] [SEP]",
        ),
        6,
        files=file("pieces.txt", PIECES),
        shown=[
            *("[UNK] cat [UNK]", "the cats", "the", "", "cat , the dog !", "the dogs ' cat", "the [UNK]"),
            "dog _ [UNK] cat ' [UNK]",
        ],
    ),
    "text_bpe": case(
        "text, tokenizer: sentencepiece, model_type: bpe, vocabulary: 9, minimum_count: 2, begin: true",
        RAW,
        ids(
            "[PAD] [UNK] [BEGIN] he ▁t ▁the t ▁ e h a c",  # of `the` five times and `cat` twice
            "[BEGIN] ▁the ▁ c a t ▁ [UNK] a t ; [BEGIN] ▁the ▁ c a t [UNK] ; [BEGIN] ▁the ; [BEGIN] ;"
            "[BEGIN] ▁ c a t [UNK] ▁the ▁ [UNK] ; [BEGIN] ▁the ▁ [UNK] ▁ c a t ; [BEGIN] ▁the ▁ h a t ;"
            "[BEGIN] ▁ [UNK] ▁ c a t [UNK]",
        ),
    ),
    "text_unigram": case(
        "text, tokenizer: sentencepiece, vocabulary: 20, end: true",
        ["cats", "Cat dogs", "dogs dog the", "the the", "the s", "cats cat dog", "s\t\u00a0Dog", "the xs"],
        ids(
            "[PAD] [UNK] [END] s ▁cat ▁dog ▁the o h g e d c a t ▁",
            "▁cat s [END] ; ▁cat ▁dog s [END] ; ▁dog s ▁dog ▁the [END] ; ▁the ▁the [END] ; ▁the ▁ s [END] ;"
            "▁cat s ▁cat ▁dog [END] ; ▁ s ▁dog [END] ; ▁the ▁ [UNK] s [END]",
        ),
    ),
    "text_sentencepiece_model": case(
        "text, tokenizer: sentencepiece, model: given.model, case: lower, begin: true, end: true",
        RAW,
        int64([[1, *GIVEN.encode(text.lower()), 0] for text in RAW]),
        3,
        files={"given.model": GIVEN.serialized_model_proto()},
    ),
}

# Tokenizers of models
SPECIAL = "[UNK] [CLS] [SEP] [PAD] <user> <assistant> <system> <tool> <developer> <function> </s>"
NAMES = SPECIAL + " the cat dog sat hat ##s , ! '"
ENDS = NAMES.split().index("</s>")


def tokenizer_json(padding: str | None = None) -> bytes:
    """Makes WordPieces like BERT's, with [CLS] and [SEP] around texts and pairs, maybe with rules to pad and cut."""
    place = {name: id_ for id_, name in enumerate(NAMES.split())}
    made = Tokenizer(models.WordPiece(place, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(*((name, place[name]) for name in ("[SEP]", "[CLS]")))
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL.split()])
    if padding:
        made.enable_padding(pad_id=place[padding], pad_token=padding, length=9)
        made.enable_truncation(2)
    return made.to_str().encode()


TOKENIZER = {"tokenizer.json": tokenizer_json()}
HUGGINGFACE = "tokenizer: huggingface, model: tokenizer.json"
MERGED = "eC th the at cat 12 123 dog".split()
RANKS = {
    **{bytes([byte]): byte for byte in range(256)},
    **{piece.encode(): 256 + at for at, piece in enumerate(MERGED)},
}
TIKTOKEN = {"ranks.tiktoken": lines([f"{base64.b64encode(piece).decode()} {rank}" for piece, rank in RANKS.items()])}
CODE = ["theCat 3123", "don'T", "the\n\n", "", "  cat", "é", "3123", "<|endoftext|>"]
CODED = "/don'T/the~\n\n//  ~cat/é/{0}/<|endoftext|>"


def ranked(
    options: str, raw: Sequence[str], rows: str, last: int, begin: int | None = None, end: int | None = None
) -> Case:
    """Makes a case of tiktoken: pieces with ~ between them are one of `RANKS`, or bytes; `last` is the largest id."""
    added = [[] if id_ is None else [id_] for id_ in (begin, end)]
    pieces = [[each.encode() for each in row.split("~")] for row in rows.split("/")]
    inner = [[id_ for piece in row for id_ in ([RANKS[piece]] if piece in RANKS else piece)] for row in pieces]
    values = int64([[*added[0], *row, *added[1]] for row in inner])
    return case(f"text, tokenizer: tiktoken, model: ranks.tiktoken, {options}", raw, values, last + 1, files=TIKTOKEN)


LIBRARIES = {
    "text_huggingface": cut(
        f"text, {HUGGINGFACE}, max_length: 5, keep_length: true",
        RAW,
        {
            "": ids(
                NAMES,
                "[CLS] the cat sat [SEP] ; [CLS] the cat ##s [SEP] ; [CLS] the [SEP] ; [CLS] [SEP] ;"
                "[CLS] cat , the [SEP] ; [CLS] the dog ##s [SEP] ; [CLS] the hat [SEP] ; [CLS] dog [UNK] [UNK] [SEP]",
            ),
            "length": [5, 5, 3, 2, 7, 7, 4, 8],
        },
        3,
        files=TOKENIZER,
    ),
    "text_words": cut(
        f"text, {HUGGINGFACE}, pretokenized: true, special_tokens: false, begin: <system>, end: </s>, max_length: 6,"
        " truncate: start",
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
            "<system> the cat ##s sat </s> ; <system> dog ##s ! </s> ; <system> the hat </s> ; <system> </s> ;"
            "<system> ##s dog ##s hat </s> ; <system> the </s> ; <system> [UNK] cat </s> ; <system> cat ##s </s>",
        ),
        3,
        files=TOKENIZER,
    ),
    "text_plain": cut(
        "text, tokenizer: huggingface, model: padded.json, special_tokens: false, max_length: 3, end: <tool>",
        RAW,
        ids(
            NAMES,
            "the cat <tool> ; the cat <tool> ; the <tool> ; <tool> ; cat , <tool> ; the dog <tool> ; the hat <tool> ;"
            "dog [UNK] <tool>",
        ),
        ENDS,
        files={"padded.json": tokenizer_json("</s>")},
    ),
    "text_tiktoken": ranked(
        "pattern: r50k_base, end: <|endoftext|>", CODE, "th~eC~at~ 3~123" + CODED.format("3~123"), 50256, end=50256
    ),
    "text_cl100k": ranked(
        "pattern: cl100k_base, begin: <|endoftext|>",
        CODE,
        "th~eC~at~ 3~12~3" + CODED.format("3~12~3"),
        100257,
        begin=100257,
    ),
    "text_o200k": ranked(
        "pattern: o200k_base, end: <|endoftext|>", CODE, "the~C~at~ 3~12~3" + CODED.format("3~12~3"), 199999, end=199999
    ),
    "text_regex": ranked(
        "pattern: '.', end: A",
        ["the", "a", "123", "", "b", "c", "d", "e"],
        "t~h~e/a/1~2~3//b/c/d/e",
        255 + len(MERGED),
        end=65,
    ),
}
TEXT = {**WORDS, **SUBWORDS, **LIBRARIES}

# Several texts
DOUBLED = """nfc nfkc fold whitespace bytes buckets hashed owner shared wordpiece bpe sentencepiece_model plain
    regex""".split()
"""Cases of one text a row that are also cases of two: those with other options than the rest."""
REVERSED = [5, 4, 3, 2, 1, 0, 6, 7]
"""For each row another one of its split."""


def nested(rows: Sequence[Sequence[Any]], padding: int, length: int | None, most: int | None) -> list[Any]:
    """Returns rows of texts as arrays, padded to a length and a number of texts."""
    each = [full(row, length or max(map(len, row), default=0), padding) for row in rows]
    wide = [length or max(map(len, row), default=0) for row in rows]
    return int64(
        [
            [*row, *[[padding] * width] * ((most or len(row)) - len(row))] if row or most else np.zeros((0, 0))
            for row, width in zip(each, wide, strict=True)
        ]
    )


def several(options: str, raw: Sequence[Any], rows: Sequence[Sequence[Any]], padding: int = 0, **more: Any) -> Case:
    """Makes a case of rows of several texts."""
    made = case(f"texts, {options}", raw, {}, padding, **more)
    lengths = int64([[len(text) for text in row] for row in rows])
    most = made.feature.get("max_texts")
    read = {
        "": nested(rows, padding, made.feature.get("max_length"), most),
        "lengths": full(lengths, most) if most else lengths,
    }
    if "texts_per_row" not in made.feature:
        read["+length"] = int64([len(row) for row in rows])
    flat = [np.concatenate([np.zeros(0, np.int64), *row]) for row in rows]
    return replace(made, read=read, stored={"": flat, "lengths": lengths})


def twice(one: Case) -> Case:
    """Makes a case of a row's text and another one's: counts of words double."""
    options = {key: value for key, value in one.feature.items() if key not in ("kind", "keep_length")}
    options["texts_per_row"] = 2
    if "minimum_count" in options:
        options["minimum_count"] *= 2
    if isinstance(owner := options.get("vocabulary"), dict):
        options["vocabulary"] = {"shared_with": owner["shared_with"].replace("text", "texts")}
    raw, stored = one.raw, one.in_records()[""]
    return several(
        yaml.safe_dump(options, default_flow_style=True, width=1000).strip()[1:-1],
        [[raw[row], raw[other]] for row, other in enumerate(REVERSED)],
        [[stored[row], stored[other]] for row, other in enumerate(REVERSED)],
        one.padding[""],
        files=one.files,
    )


def texts(names: str, rows: str) -> list[Any]:
    """Returns the ids of rows of texts with | between them; - is a row without texts."""
    return [ids(names, row.replace("|", ";")) if row.strip() != "-" else [] for row in rows.split(";")]


AROUND = str.maketrans({"(": " <user> [CLS] ", ")": " [SEP] </s> "})
TEXTS = {
    "texts": several(
        "vocabulary: 9",
        [["The cat", "the"], "the cat\nThe", [], [""], ["sat"], ["dog", "cat", "dog"], ["the hat"], "\n"],
        texts(
            "[PAD] [UNK] the cat dog sat",
            "the cat | the ; the cat | the ; - ; ; sat ; dog | cat | dog ; the [UNK] ; -",
        ),
        shown=[["the cat", "the"], ["the cat", "the"], [], [""], ["sat"], ["dog", "cat", "dog"], ["the [UNK]"], []],
    ),
    "texts_most": several(
        "column: notes, optional: true, max_texts: 2, separator: ;, max_length: 3, truncate: start, end: true",
        [],
        texts(
            "[PAD] [UNK] [END] b a",  # without those of further texts
            "a b [END] | b [END] ; - ; a b [END] ; b [END] | a [END] ; - ; [END] | b [END] ; [UNK] [END] | [END] ;"
            "b b [END]",
        ),
        columns={"notes": ["b a b;b;c c c", ABSENT, ["a b"], "b;a;c", [], ["", "b", "c"], "x;", ["b b b"]]},
    ),
    "texts_library": several(
        f"{HUGGINGFACE}, max_texts: 2, max_length: 6, begin: <user>, end: </s>",
        [["the cats", "dog"], [], ["the cat sat on"], ["sat", "", "hat"], "the\ncat", ["", ""], ["dog!"], []],
        texts(NAMES, "(the cat)|(dog);-;(the cat);(sat)|();(the)|(cat);()|();(dog !);-".translate(AROUND)),
        3,
        files=TOKENIZER,
    ),
    **{f"texts_{name}": twice(TEXT[f"text_{name}"]) for name in DOUBLED},
}
