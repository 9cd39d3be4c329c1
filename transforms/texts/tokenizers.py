"""Tokenizers that models bring: texts to ids and back, by their own packages, without TensorFlow or the network.

`huggingface` is a `tokenizer.json`, run by the package `tokenizers` without its truncation, padding and dropout.
`tiktoken` is a file of ranks, run by the package `tiktoken`; the file lacks the pattern that splits a text into words.
The ids of a text depend on no other text, on no number of threads, and on no chance. A file may be a stranger's: what
would end the process is refused before a package sees it, and all that a package raises becomes an error.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError, UserError, did_you_mean
from recordmill.pipeline.json_values import Count, parse_json, read_as
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.bounds import TOKENIZED
from recordmill.transforms.base.description import SpecialIds
from recordmill.transforms.base.stored import Ragged, splits_of
from recordmill.transforms.texts.text_stored import BYTE_CHARACTERS, TextError, TokenizerOptions

Ids: TypeAlias = npt.NDArray[np.int64]
Made = TypeVar("Made")
Text: TypeAlias = str | Sequence[str]  # a text, or with `pretokenized` its words
Types: TypeAlias = tuple[tuple[int, ...], ...]
NO_IDS: Ids = np.zeros(0, np.int64)
PADDING = ("[PAD]", "<pad>", "<|pad|>", "<PAD>")
"""Names of special tokens that pad, where a `tokenizer.json` has no section for padding."""
MOST_BYTES = 128 << 20  # 128 MiB: four times the largest of published files
MOST_PIECES = 1 << 22  # 4,194,304: ids, and commas of a file; half a gigabyte of memory
MOST_GROWTH = 64  # times; of published files, 12
LENGTHENING = ("content", "prepend", "continuing_subword_prefix", "end_of_word_suffix")
JOINS = {"ByteLevel": "byte_level", "WordPiece": "wordpiece", "Metaspace": "characters", "ByteFallback": "characters"}
"""The ways from pieces to a text, by decoder."""
FAILS = "has no token for a part of the text, or fails at it"
NO_TEXT = "the tokenizer cannot decode these ids: give those that it made"
COMPONENTS = """BPE BPEDecoder BertNormalizer BertPreTokenizer BertProcessing ByteFallback ByteLevel CTC
    CharDelimiterSplit Digits FixedLength Fuse Lowercase Metaspace NFC NFD NFKC NFKD Nmt Precompiled Prepend Punctuation
    Replace RobertaProcessing Sequence Split Strip StripAccents TemplateProcessing UnicodeScripts Unigram Whitespace
    WhitespaceSplit WordLevel WordPiece""".split()
"""The components that a `tokenizer.json` may hold: none draws."""


@dataclass(frozen=True)
class Library:
    """A tokenizer of a package, with ids that it adds nothing to."""

    encode: Callable[[Sequence[Text]], list[list[int]]]
    decode: Callable[[Sequence[int]], str]
    pieces: Mapping[int, str]  # by id; numbers without a piece are left out
    special: SpecialIds
    around: tuple[Ids, ...]  # the ids that the file puts before and after each text, of two as one also between them
    joins: str  # the way from pieces to a text (`text_stored.JOINED`)
    offsets: Callable[[Sequence[Text]], list[Any]] | None = None
    """Returns the encodings of the package `tokenizers`, with places of tokens in their texts."""
    words: Callable[[str], list[tuple[str, tuple[int, int]]]] | None = None
    """Cuts a text into BERT's words, with their places; None if the tokenizer has words of its own."""
    types: Types = ((), (0,), (), (1,), ())
    """The types of the ids of `around` for pairs, and of an id of each text between them."""


class Encoded(NamedTuple):
    """Ids of texts."""

    ids: Ragged  # int64; cut at `max_length`, with the ids before and after each text
    lengths: Ids  # int64 [texts]: the number of ids before the cut


class TokenizerError(UserError):
    """A package cannot read a model, or fails at a text; the message holds nothing of the text."""

    feature = ""  # of the text

    def __init__(self, message: str, reason: str = "unencodable_text") -> None:
        super().__init__(message)
        self.reason = reason


@contextmanager
def _package(message: str, *, shown: bool = False) -> Iterator[None]:
    """Turns what a package raises into a TokenizerError; its panics are no `Exception`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{message}: {cut(str(error))}" if shown else message) from None
        raise


def _guarded(message: str, function: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """Makes a function of ids, or of texts that are not too long."""

    def call(values: Any) -> Made:
        texts = (each if isinstance(each, str) else "".join(each) for each in values if not isinstance(each, int))
        if (longest := max(map(len, texts), default=0)) > TOKENIZED.most:
            raise TokenizerError(TOKENIZED.beyond(longest), TOKENIZED.reason)
        with _package(message):
            return function(values)

    return call


class TextTokenizer:
    """Makes the ids of a feature as its build does; may be called from several threads."""

    separator_id: int | None = None  # the id that ends the first text of a pair

    def __init__(self, data: bytes, options: TokenizerOptions, where: str = "the model") -> None:
        """Reads a model. Raises: UserError: it is invalid, lacks a named token, or its package is missing."""
        self._library = LIBRARIES[options.tokenizer](data, options, where)
        self._options, self.words = options, self._library.words
        around = [ids.tolist() for ids in self._library.around]
        between = options.separator if options.kind == "pair" else None  # else of the source's cells
        tokens = {"begin": (options.begin, 0), "separator": (between, 1), "end": (options.end, -1)}
        for name, (token, place) in tokens.items():
            ids = around[place]
            if isinstance(token, str):
                known = {piece: id_ for id_, piece in self._library.pieces.items()}
                if token not in known:
                    raise UserError(f"{where} has no token {token!r} for `{name}`{did_you_mean(token, known)}")
                if known[token] in ids:
                    raise UserError(f"{where} adds {token!r} itself: leave `{name}` out")
                ids.insert(0 if name == "begin" else len(ids), known[token])
        self.around = tuple(np.array(ids, np.int64) for ids in around)
        self.before, self.after = self.around[0], self.around[-1]
        if options.max_length is not None and options.max_length <= (added := sum(map(len, around))):
            raise UserError(f"{where} adds {added} ids to each text: `max_length` should be {added + 1} or more")

    @property
    def special(self) -> SpecialIds:
        """The special ids; begin and end only if they are one id each."""
        begin, end = (int(ids[0]) if len(ids) == 1 else None for ids in (self.before, self.after))
        found = self._library.special
        return SpecialIds(padding=found.padding, unknown=found.unknown, begin=begin, end=end, first=0)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces by id; `[UNUSED 7]` for a number without one."""
        there = self._library.pieces
        return tuple(there.get(id_, f"[UNUSED {id_}]") for id_ in range(max(there) + 1))

    @property
    def joins(self) -> str:
        return self._library.joins

    def encode(self, text: Text) -> Ids:
        """Returns a text's ids as the dataset stores them: int64 [ids]. Raises: TokenizerError: it has another form."""
        if isinstance(text, str) == (is_list := self._options.pretokenized or self._options.kind == "pair"):
            takes = "a list, of the row's words or of the pair's two texts" if is_list else "one text, a string"
            raise TokenizerError(f"encode takes {takes}, got a {type(text).__name__}")
        return self.encode_batch([text]).ids.values

    def encode_batch(self, texts: Sequence[Text]) -> Encoded:
        """Returns the ids of texts, also of none."""
        return self.stored(self._library.encode(texts))

    def encodings(self, texts: Sequence[Text]) -> list[Any]:
        """Returns the encodings of the package `tokenizers`, without the ids around texts; `stored` adds these."""
        assert self._library.offsets is not None  # noqa: S101 - the spec requires a library with places
        return self._library.offsets(texts)

    def stored(self, tokens: Sequence[Sequence[int]], fill: int | None = None) -> Encoded:
        """Returns tokens' ids with those around them, cut at `max_length`; or values, with `fill` around."""
        before, after = ([id_ if fill is None else fill for id_ in ids.tolist()] for ids in (self.before, self.after))
        rows = [[*before, *ids, *after] for ids in tokens] if before or after else tokens
        whole = _joined(rows)
        return Encoded(self._cut(whole), whole.lengths())

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Returns the text of a row's ids, without padding and the ids around it; separators of a pair stay."""
        if isinstance(ids, Ragged) or getattr(ids, "ndim", 1) != 1:
            raise TokenizerError("decode takes the ids of one row, got those of a batch: decode row by row")
        padding, outer = self.special.padding, {*self.before.tolist(), *self.after.tolist()} - {self.separator_id}
        return self._library.decode([int(id_) for id_ in ids if id_ != padding and id_ not in outer])

    def _cut(self, rows: Ragged) -> Ragged:
        """Cuts tokens on one side; the ids around them stay."""
        most, lengths = self._options.max_length, rows.lengths()
        if most is None or lengths.max(initial=0) <= most:
            return rows
        outer = len(self.before) if self._options.truncate == "start" else most - len(self.after)
        positions = np.arange(len(rows.values)) - np.repeat(rows.splits[:-1], lengths)
        surplus = np.repeat(np.maximum(lengths - most, 0), lengths)
        kept = (positions < outer) | (positions >= outer + surplus)
        return Ragged(rows.values[kept], splits_of(np.minimum(lengths, most)))


def _joined(rows: Sequence[Sequence[int]]) -> Ragged:
    splits = splits_of(np.fromiter(map(len, rows), np.int64, len(rows)))
    return Ragged(np.fromiter(chain.from_iterable(rows), np.int64, int(splits[-1])), splits)


class PairTokenizer(TextTokenizer):
    """Makes the ids of pairs, sequences of two texts, as their build does; may be called from several threads."""

    separator_id: int
    types: Types

    def __init__(self, data: bytes, options: TokenizerOptions, where: str = "the model") -> None:
        """Reads a model. Raises: UserError: as `TextTokenizer`, or no token of its own ends the first text."""
        super().__init__(data, options, where)
        between = self.around[1]
        if not len(between) or between[0] in self.before:
            message = "puts no token of its own between two texts: name a `separator`, with `special_tokens: false`"
            raise UserError(f"{where} {message}")
        self._added = sum(map(len, self.around))
        self.separator_id = int(between[0])
        before, first, middle, second, after = self._library.types
        more = [len(ids) - len(each) for ids, each in zip(self.around, (before, middle, after), strict=True)]
        self.types = (0,) * more[0] + before, first, middle + (0,) * more[1], second, after + (1,) * more[2]

    def tokens(self, texts: Sequence[Text]) -> list[tuple[list[int], list[int]]]:
        first, second = (self._library.encode([pair[place] for pair in texts]) for place in (0, 1))
        return list(zip(first, second, strict=True))

    def encode_batch(self, texts: Sequence[Text]) -> Encoded:
        """Returns the ids of pairs, also of none. Raises: TextError: a pair cannot be stored."""
        tokens = self.tokens(texts)
        whole = [len(first) + len(second) + self._added for first, second in tokens]
        return Encoded(_joined([self.join(first, second) for first, second in tokens]), np.array(whole, np.int64))

    def join(self, first: list[int], second: list[int]) -> list[int]:
        """Returns a pair's ids as stored. Raises: TextError: a separator in the first text, or no cut fits."""
        before, between, after = (ids.tolist() for ids in self.around)
        kept = self._kept(len(first), len(second))
        first, second = first[: kept[0]], second[: kept[1]]
        if self.separator_id in first:
            separator = self.pieces[self.separator_id]
            raise TextError("separator_in_text", f"the first text holds {separator}, which ends it")
        return [*before, *first, *between, *second, *after]

    def _kept(self, first: int, second: int) -> tuple[int, int]:
        """Returns the numbers of ids that stay of both texts; of `longest_first` the shorter one is cut last."""
        room = first + second if self._options.max_length is None else self._options.max_length - self._added
        surplus = first + second - room
        if surplus <= 0:
            return first, second
        if self._options.truncate in ("longest_first", None):
            shorter = min(first, second, room // 2)
            return (shorter, room - shorter) if first <= second else (room - shorter, shorter)
        cut, other = (first, second) if self._options.truncate == "only_first" else (second, first)
        if cut <= surplus:
            allowed = f"the other text has {other} ids, both may have {room}"
            raise TextError("uncuttable_pair", f"{allowed}: take `truncate: longest_first`")
        return (cut - surplus, other) if self._options.truncate == "only_first" else (other, cut - surplus)


def open_tokenizer(data: bytes, options: TokenizerOptions, where: str = "the model") -> TextTokenizer:
    """Opens the tokenizer of texts or pairs. Raises: UserError: as these."""
    return (PairTokenizer if options.kind == "pair" else TextTokenizer)(data, options, where)


def _missing(package: str) -> UserError:
    return UserError(f'the package {package} is missing: pip install "recordmill[tokens]"')


def _huggingface(data: bytes, options: TokenizerOptions, where: str) -> Library:
    try:
        from tokenizers import Tokenizer, pre_tokenizers
    except ImportError:
        raise _missing("tokenizers") from None
    with _package(f"{where} is not a tokenizer.json", shown=True):
        described = _described(data)
        padding = read_as((described.pop("padding", None) or {}).get("pad_id"), Count | None, "`pad_id`")
        tokenizer = Tokenizer.from_str(json.dumps(described))
        pieces = {id_: piece for piece, id_ in tokenizer.get_vocab(with_added_tokens=True).items()}
        _check_ids([*pieces, padding or 0])
        ids = {piece: id_ for id_, piece in pieces.items()}
        model, decoder = described["model"], described.get("decoder") or {}
        decoders = {each.get("type") for each in (decoder, *decoder.get("decoders", ()))}
        joins = next((joins for kind, joins in JOINS.items() if kind in decoders), "whitespace")
        special = [each["content"] for each in described.get("added_tokens") or [] if each.get("special")]
        plain = tokenizer.normalizer.normalize_str("a b") if tokenizer.normalizer else "a b"
        cuts = tokenizer.pre_tokenizer is not None and len(tokenizer.pre_tokenizer.pre_tokenize_str(plain)) > 1
        unknown = read_as(model.get("unk_id", ids.get(model.get("unk_token"))), Count | None, "`unk_id`")
    if not pieces:
        raise UserError(f"{where} has no vocabulary: give the tokenizer.json of a trained model")
    if padding is None:
        padding = next((ids[piece] for piece in PADDING if piece in special), max(pieces) + 1)
    given: dict[str, bool] = {"is_pretokenized": options.pretokenized, "add_special_tokens": False}
    before = described.get("pre_tokenizer") or {}
    unmarked = any(each.get("add_prefix_space") is False for each in (before, *before.get("pretokenizers", ())))

    def words(texts: Any) -> Any:  # with the space before them, as by `add_prefix_space`
        if not (options.pretokenized and unmarked):
            return texts
        return [[word if not word[:1].strip() or word in special else f" {word}" for word in text] for text in texts]

    encode, nothing = tokenizer.encode_batch_fast, ((NO_IDS,) * (options.joined + 1),)
    adds_special = options.special_tokens and options.kind != "chat"  # whose template has them
    around, *types = _around(tokenizer, where, options.joined) if adds_special else nothing
    return Library(
        _guarded(f"{where} {FAILS}", lambda texts: [each.ids for each in encode(words(texts), **given)]),
        _guarded(NO_TEXT, lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))),
        pieces,
        SpecialIds(padding=padding, unknown=unknown, begin=None, end=None, first=0),
        around,
        joins,
        _guarded(f"{where} {FAILS}", lambda texts: list(tokenizer.encode_batch(words(texts), **given))),
        None if cuts else pre_tokenizers.BertPreTokenizer().pre_tokenize_str,
        *types,
    )


def _described(data: bytes) -> dict[str, Any]:
    """Reads a `tokenizer.json`, without what cuts and draws. Raises: DatasetError: it could exhaust memory."""
    if (commas := data.count(b",")) > MOST_PIECES:
        raise DatasetError(f"it has {commas:,} commas; the limit is {MOST_PIECES:,}")
    described = read_as(parse_json(data, MOST_PIECES), dict[str, Any], "it")
    described["model"]["dropout"] = described["truncation"] = None
    model = {name: value for name, value in described["model"].items() if name not in ("vocab", "merges")}
    growth = _growth([model, *map(described.get, ("normalizer", "pre_tokenizer", "post_processor", "decoder"))])
    if growth > MOST_GROWTH:
        raise DatasetError(f"it may make a text {growth:,} times as long; the limit is {MOST_GROWTH}")
    return described


def _growth(part: Any) -> int:
    """Returns the most times that components lengthen a text. Raises: DatasetError: one is unknown or damaged."""
    if isinstance(part, list):
        return math.prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1
    if (kind := str(part.get("type", "BPE"))) not in COMPONENTS:
        raise DatasetError(f"it has the unknown component {cut(kind)}{did_you_mean(kind, COMPONENTS)}")
    grown = _growth(list(part.values()))
    if kind == "Precompiled":  # a trie behind its size, and texts that it points to, each up to a zero
        table = base64.b64decode(part["precompiled_charsmap"])
        end = 4 + int.from_bytes(table[:4], "little")
        if end > len(table):
            raise DatasetError(f"its precompiled_charsmap states {end:,} bytes and has {len(table):,}")
        grown *= 1 + max(map(len, table[end:].split(b"\0"))) // 64
    added = [len(text) for name in LENGTHENING if isinstance(text := part.get(name), str)]
    return grown * max(1, *added, 0)


def _check_ids(ids: Sequence[int]) -> None:
    """Refuses ids of which a list by id would exhaust memory. Raises: DatasetError."""
    if min(ids) < 0 or max(ids) >= MOST_PIECES:
        raise DatasetError(f"its ids are {min(ids):,} to {max(ids):,}; the limit is {MOST_PIECES:,}")


def _around(tokenizer: Any, where: str, joined: int) -> tuple[tuple[Ids, ...], Types]:
    """Returns the ids that the file's post-processor puts before, between and after one or two texts, and types."""
    with _package(NO_TEXT):
        texts = ["a", "1", *(tokenizer.decode([id_]) for id_ in range(min(512, tokenizer.get_vocab_size())))]
    for probe in zip(*(texts[place:] for place in range(joined)), strict=False):
        with suppress(TokenizerError), _package("a probe that it has no token for"):
            inner = [tokenizer.encode(text, add_special_tokens=False).ids for text in probe]
            whole = tokenizer.encode(*probe)
            around = _parts_around(inner, whole.ids)
            if all(inner) and len(around) > joined:
                parts, types = [*chain.from_iterable(zip(around, [*inner, []], strict=True))][:-1], iter(whole.type_ids)
                of = ([next(types) for _ in part][: 1 if place % 2 else None] for place, part in enumerate(parts))
                return tuple(np.array(ids, np.int64) for ids in around), tuple(map(tuple, of))
    raise UserError(f"{where} does more than to put ids around a text: add `special_tokens: false`")


def _parts_around(inner: Sequence[list[int]], ids: list[int]) -> list[list[int]]:
    """Returns the parts before, between and after inner lists, at their first places; fewer if one is missing."""
    parts = list[list[int]]()
    for each in inner:
        starts = (start for start in range(len(ids) - len(each) + 1) if ids[start : start + len(each)] == each)
        if (start := next(starts, None)) is None:
            return parts
        parts, ids = [*parts, ids[:start]], ids[start + len(each) :]
    return [*parts, ids]


CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
ENCODINGS = {
    "r50k_base": (R50K, 50256),
    "p50k_base": (R50K, 50256),
    "cl100k_base": (CL100K, 100257),
    "o200k_base": (O200K, 199999),
}
"""The pattern and the id of `<|endoftext|>`, as the package `tiktoken` has them, which would download the ranks."""


def _tiktoken(data: bytes, options: TokenizerOptions, where: str) -> Library:
    """Reads a file of ranks: a line is a piece in base64, a space, and its id."""
    try:
        import tiktoken
    except ImportError:
        raise _missing("tiktoken") from None
    ranks = dict[bytes, int]()
    for number, line in enumerate(data.splitlines(), 1):
        try:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
            _check_ids([int(rank), number - 1])
        except (ValueError, binascii.Error):
            form = f"a piece in base64, a space and its rank below {MOST_PIECES:,}"
            raise UserError(f"{where}, line {number}: should be {form}") from None
    if not {bytes([byte]) for byte in range(256)} <= ranks.keys() or len({*ranks.values()}) < len(ranks):
        raise UserError(f"{where} lacks the 256 single bytes, or has a rank twice: give a whole file of ranks")
    pattern, end = ENCODINGS.get(options.pattern or "", (options.pattern or "", None))
    specials = {"<|endoftext|>": end} if end is not None and end not in ranks.values() else {}
    with _package(f"{where}: the `pattern` {cut(repr(pattern))} is wrong", shown=True):
        tokenizer = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    pieces = {id_: "".join(BYTE_CHARACTERS[byte] for byte in each) for each, id_ in ranks.items()}
    pieces |= {id_: name for name, id_ in specials.items()}
    return Library(
        _guarded(f"{where} {FAILS}", partial(tokenizer.encode_ordinary_batch, num_threads=1)),
        _guarded(NO_TEXT, tokenizer.decode),
        pieces,
        SpecialIds(padding=max(pieces) + 1, unknown=None, begin=None, end=None, first=0),
        (NO_IDS,) * (options.joined + 1),
        "byte_level",
    )


LIBRARIES = {"huggingface": _huggingface, "tiktoken": _tiktoken}
