"""Tokenizers: training from word counts, and models as stored in a version.

Texts are cleaned and split as in the graph. Equal counts give equal bytes, in whatever order they were added up.
Trained models have the ids of any text: 0 pads, 1 is unknown, then begin and end. Given models keep their own.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import NOTHING, SpecialIds
from recordmill.transforms.texts.text_ids_spec import TextIds
from recordmill.transforms.texts.text_spec import Texts, Tokenized
from recordmill.transforms.texts.text_stored import SPACE
from recordmill.transforms.texts.tokenizers import PairTokenizer, open_tokenizer
from recordmill.transforms.texts.tokenizers_graph import LEARNS_FROM, clean

FOLDER = "tokenizers"
SPECIAL_PIECES = {"padding": "[PAD]", "unknown": "[UNK]", "begin": "[CLS]", "end": "[SEP]"}
"""BERT's names of the special pieces in a WordPiece file."""
SUFFIXES = {"wordpiece": "vocab.txt", "sentencepiece": "model", "huggingface": "tokenizer.json", "tiktoken": "tiktoken"}
"""The suffixes of the models' files, by tokenizer."""
LINE_BREAKS = str.maketrans({"\n": "<0x0A>", "\r": "<0x0D>"})
NO_PIECE = "[\x00\x11]"  # TensorFlow Text cannot load the first, and crashes at the second


@dataclass(frozen=True)
class TokenizerModel:
    """A loaded model."""

    data: bytes  # the bytes in the graph: a SentencePiece model, or WordPieces, one per line
    suffix: str
    pieces: tuple[str, ...]  # by id
    special: SpecialIds
    joins: str | None = None  # the way from a library's pieces to a text
    separator_id: int | None = None  # of a tokenizer of pairs, as are `types`: see `Learned`
    types: tuple[tuple[int, ...], ...] = NOTHING.types

    def statistics(self, owner: str) -> dict[str, Any]:
        """Returns the statistics for `Text.describe`; the model is named after the feature `owner`."""
        return {
            "model": f"{FOLDER}/{owner}.{self.suffix}",
            "vocabulary": f"{FOLDER}/{vocabulary_name(owner)}",
            "words": len(self.pieces) - self.special.first,
            "special_ids": asdict(self.special),
            "joins": self.joins,
        }

    def files(self, owner: str) -> dict[str, bytes]:
        """Returns its files in a version by path: the model, and the pieces from `first_id` on, one per line."""
        paths = self.statistics(owner)
        lines = [piece.translate(LINE_BREAKS) + "\n" for piece in self.pieces[self.special.first :]]
        return {paths["model"]: self.data, paths["vocabulary"]: "".join(lines).encode()}


def read_model(data: bytes, options: TextIds, where: str = "the model", padding: str | None = None) -> TokenizerModel:
    """Reads a feature's model, padded by the piece `padding`, if any. Raises: UserError: it is invalid."""
    read = READERS[options.tokenizer](data, options, where)
    if padding in read.pieces:
        read = replace(read, special=replace(read.special, padding=read.pieces.index(padding)))
    has_padding = read.special.padding < len(read.pieces)
    return read if has_padding else replace(read, pieces=(*read.pieces, SPECIAL_PIECES["padding"]))


def tokenizer(context: PlannedBuild, owner: str) -> TokenizerModel:
    """Reads the build's model named after this feature."""
    learned = context.learned[owner]
    return read_model(learned.model or b"", context.texts()[owner], padding=learned.padding)


def _read_wordpiece(data: bytes, options: Tokenized, where: str) -> TokenizerModel:
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not a file of WordPieces: invalid UTF-8 at byte {error.start}") from None
    pieces = tuple(text.split("\n"))
    ids: dict[str, int] = {}
    for id_, piece in enumerate(pieces):
        if not piece or piece in ids or re.search(NO_PIECE, piece):
            what = "occurs twice" if piece in ids else "holds U+0000 or U+0011" if piece else "is blank"
            raise UserError(f"{where}, line {id_ + 1}: the piece {cut(repr(piece))} {what}: each line is one piece")
        ids[piece] = id_
    found = {name: ids.get(piece, -1) for name, piece in SPECIAL_PIECES.items()}
    special, lines = _special(found, len(pieces), options, where), "".join(f"{piece}\n" for piece in pieces)
    return TokenizerModel(lines.encode(), SUFFIXES["wordpiece"], pieces, special)


def _read_sentencepiece(data: bytes, options: Tokenized, where: str) -> TokenizerModel:
    try:
        model = SentencePieceProcessor()
        model.LoadFromSerializedProto(data)
    except RuntimeError:
        raise UserError(f"{where} is not a SentencePiece model: give the trainer's `….model` file") from None
    pieces = tuple(model.id_to_piece(list(range(model.vocab_size()))))
    special = {"padding": model.pad_id(), "unknown": model.unk_id(), "begin": model.bos_id(), "end": model.eos_id()}
    return TokenizerModel(data, SUFFIXES["sentencepiece"], pieces, _special(special, len(pieces), options, where))


def _read_library(data: bytes, options: TextIds, where: str) -> TokenizerModel:
    read = open_tokenizer(data, options.tokenizer_options, where)
    model = TokenizerModel(data, SUFFIXES[options.tokenizer], read.pieces, read.special, read.joins)
    if not isinstance(read, PairTokenizer):
        return model
    return replace(model, separator_id=read.separator_id, types=read.types)


READERS: Mapping[str, Callable[[bytes, Any, str], TokenizerModel]] = {
    "wordpiece": _read_wordpiece,
    "sentencepiece": _read_sentencepiece,
    "huggingface": _read_library,
    "tiktoken": _read_library,
}


def _special(special: Mapping[str, int], size: int, options: Tokenized, where: str) -> SpecialIds:
    """Returns the special ids of a model (-1: missing); without a padding piece, the next free id pads."""
    asked = {name: special[name] for name in ("unknown", "begin", "end") if name == "unknown" or getattr(options, name)}
    for name, id_ in asked.items():
        if id_ < 0:
            message = f"{where} has no piece for {name} ({SPECIAL_PIECES[name]} in WordPieces)"
            raise UserError(message + ("" if name == "unknown" else f": leave out `{name}: true`, or add the piece"))
    return SpecialIds(
        padding=special["padding"] if special["padding"] >= 0 else size,
        unknown=asked["unknown"],
        begin=asked.get("begin"),
        end=asked.get("end"),
        first=0 if options.model else 1 + len(asked),
    )


def training_words(texts: pa.Array, options: Tokenized) -> tf.Tensor:
    """Returns the words of texts, or lists of them, for training: UTF-8, with repeats, string [words]."""
    if isinstance(options, Texts):
        texts = pc.list_flatten(pc.list_slice(texts, 0, options.max_texts, return_fixed_size_list=False))
    present = tf.constant(texts.drop_null().to_pylist(), tf.string)
    return LEARNS_FROM[options.tokenizer](clean(present, options)).flat_values


def train(counts: Mapping[bytes, int], options: Tokenized, name: str = "text") -> bytes:
    """Learns a SentencePiece model, or a file of WordPieces, one per line, from word counts of the train split.

    It has up to `vocabulary` pieces besides the special ones. Raises: UserError: no counts, or more characters than
    pieces.
    """
    frequent = {word: count for word, count in counts.items() if count >= options.minimum_count}
    if not frequent:
        words = f"no word {options.minimum_count} times or more" if counts else "no words"
        raise UserError(f"features.{name}: there is nothing to learn a tokenizer from: the train split holds {words}")
    where, size = f"features.{name}", options.vocabulary
    assert isinstance(size, int)  # noqa: S101 - the spec's check: a trained model has a size
    if options.tokenizer != "wordpiece":
        # SentencePiece (Kudo and Richardson 2018) by byte-pair merges or a unigram model (Kudo 2018).
        ids = ("pad", "unk", *(["bos"] if options.begin else []), *(["eos"] if options.end else []))
        return _learn(frequent, options.model_type, size, ids, where)
    # WordPieces by byte-pair merges, as Hugging Face does; each letter is a piece in both forms.
    frequent = {word: count for word, count in frequent.items() if not re.search(NO_PIECE.encode(), word)}
    model = SentencePieceProcessor(model_proto=_learn(frequent, "bpe", size, ("pad", "unk"), where, spare=1))  # ▁
    learned = [model.id_to_piece(id_) for id_ in range(2, model.vocab_size())]
    letters = sorted({piece for piece in learned if len(piece) == 1} - {SPACE})
    if 2 * len(letters) > size:
        raise UserError(_too_small(where, size, 2 * len(letters)))
    merged = [piece[1:] if piece.startswith(SPACE) else f"##{piece}" for piece in learned if len(piece) > 1]
    special = [piece for name, piece in SPECIAL_PIECES.items() if getattr(options, name, True)]
    pieces = dict.fromkeys([*letters, *(f"##{letter}" for letter in letters), *merged])
    return "".join(f"{piece}\n" for piece in [*special, *list(pieces)[:size]]).encode()


def _learn(
    counts: Mapping[bytes, int], model_type: str, size: int, special: tuple[str, ...], where: str, spare: int = 0
) -> bytes:
    """Trains a SentencePiece model; its special pieces get the ids 0, 1, … in order."""
    model, names = io.BytesIO(), ("pad", "unk", "bos", "eos")
    ids: dict[str, Any] = {f"{name}_id": special.index(name) if name in special else -1 for name in names}
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word.decode()}\t{count}" for word, count in sorted(counts.items())),
            input_format="tsv",
            model_writer=model,
            model_type=model_type,
            vocab_size=size + spare + len(special),
            hard_vocab_limit=False,
            normalization_rule_name="identity",  # the graph cleans
            max_sentence_length=1 << 16,  # bytes: longer words are ignored
            num_threads=1,  # more add floating-point numbers in varying order
            minloglevel=2,
            **ids,
        )
    except RuntimeError as error:
        if needed := re.search(r"required_chars\D*\d+ vs (\d+)", str(error)):
            raise UserError(_too_small(where, size, int(needed[1]) - len(special))) from None
        raise UserError(f"{where}: SentencePiece cannot learn from these {len(counts)} words: {error}") from None
    return model.getvalue()


def _too_small(where: str, size: int, needed: int) -> str:
    few = f"{size} pieces are too few, the train split's characters alone take {needed}"
    return f"{where}.vocabulary: {few}: take more, or the tokenizer bytes"
