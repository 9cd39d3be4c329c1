"""Training of tokenizers: texts are cut into words as the graph cleans and cuts them, and pieces are learned.

The same counts give the same bytes, whatever the order in which they were added up.

>>> model = train({b"a": 2, b"cat": 1, b"hat": 1}, options)  # doctest: +SKIP
"""

import io
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from recordmill.pipeline.build.analysis.tokenizer_models import SPECIAL_PIECES
from recordmill.pipeline.errors import UserError
from recordmill.transforms.contract.kinds.text import TextOptions, TextsOptions
from recordmill.transforms.tensorflow.cleaning import clean
from recordmill.transforms.tensorflow.tokenizers import LEARNS_FROM

MAX_WORD_BYTES = 1 << 16
SPECIAL_IDS = ("pad", "unk", "bos", "eos")
SPACE = "▁"  # how SentencePiece writes the space before a word


def training_words(texts: pa.Array, options: TextOptions) -> tf.Tensor:
    """Returns the words of texts, or of lists of texts, that a tokenizer with these options learns from.

    The texts are strings or binary; missing ones hold no words. Of a list those count that are kept.

    Returns:
        The words in UTF-8, with repeats: string, shape [words].
    """
    if isinstance(options, TextsOptions):
        texts = pc.list_flatten(pc.list_slice(texts, 0, options.max_texts, return_fixed_size_list=False))
    present = tf.constant(texts.drop_null().to_pylist(), tf.string)
    return LEARNS_FROM[options.tokenizer](clean(present, options)).flat_values


def train(counts: Mapping[bytes, int], options: TextOptions, name: str = "text") -> bytes:
    """Learns a model from counted words: a SentencePiece model, or a file of WordPieces, one a line.

    There are at most `vocabulary` pieces beside the special ones, fewer where the words give no more.

    Args:
        counts: how often each word stands in the train split.
        options: the feature's.
        name: the feature's, for messages.

    Raises:
        UserError: there are no words, or more characters than pieces.
    """
    frequent = {word: count for word, count in counts.items() if count >= options.minimum_count}
    if not frequent:
        words = f"no word {options.minimum_count} times or more" if counts else "no words"
        raise UserError(f"features.{name}: there is nothing to learn a tokenizer from: the train split holds {words}")
    learn = _wordpiece if options.tokenizer == "wordpiece" else _sentencepiece
    return learn(frequent, options, f"features.{name}")


def _sentencepiece(counts: Mapping[bytes, int], options: TextOptions, where: str) -> bytes:
    """SentencePiece (Kudo and Richardson 2018) by byte-pair merges or a unigram model (Kudo 2018)."""
    ids = ("pad", "unk", *(["bos"] if options.begin else []), *(["eos"] if options.end else []))
    return _learn(counts, options.model_type, _size(options), ids, where)


def _wordpiece(counts: Mapping[bytes, int], options: TextOptions, where: str) -> bytes:
    """WordPieces by byte-pair merges, as Hugging Face's trainer learns them; each letter is a piece in both forms."""
    size = _size(options)
    model = SentencePieceProcessor(model_proto=_learn(counts, "bpe", size, ("pad", "unk"), where, spare=1))  # ▁
    learned = [model.id_to_piece(id_) for id_ in range(2, model.vocab_size())]
    letters = sorted({piece for piece in learned if len(piece) == 1} - {SPACE})
    if 2 * len(letters) > size:
        raise UserError(_too_small(where, size, 2 * len(letters)))
    merged = [piece[1:] if piece.startswith(SPACE) else f"##{piece}" for piece in learned if len(piece) > 1]
    special = [piece for name, piece in SPECIAL_PIECES.items() if getattr(options, name, True)]
    pieces = dict.fromkeys([*letters, *(f"##{letter}" for letter in letters), *merged])
    return "".join(f"{piece}\n" for piece in [*special, *list(pieces)[:size]]).encode()


def _size(options: TextOptions) -> int:
    assert isinstance(options.vocabulary, int)  # noqa: S101 - the spec's check: a trained model has a size
    return options.vocabulary


def _learn(
    counts: Mapping[bytes, int], model_type: str, size: int, special: tuple[str, ...], where: str, spare: int = 0
) -> bytes:
    """Trains a SentencePiece model; its special pieces have the ids 0, 1, … in the order given."""
    model = io.BytesIO()
    ids: dict[str, Any] = {f"{name}_id": special.index(name) if name in special else -1 for name in SPECIAL_IDS}
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word.decode()}\t{count}" for word, count in sorted(counts.items())),
            input_format="tsv",
            model_writer=model,
            model_type=model_type,
            vocab_size=size + spare + len(special),
            hard_vocab_limit=False,
            normalization_rule_name="identity",  # the graph cleans
            max_sentence_length=MAX_WORD_BYTES,  # nothing is learned from a longer one
            num_threads=1,  # several add up floating-point numbers in any order
            minloglevel=2,
            **ids,
        )
    except RuntimeError as error:
        if needed := re.search(r"required_chars\D*\d+ vs (\d+)", str(error)):
            raise UserError(_too_small(where, size, int(needed[1]) - len(special))) from None
        raise UserError(f"{where}: SentencePiece cannot learn from these {len(counts)} words: {error}") from None
    return model.getvalue()


def _too_small(where: str, size: int, needed: int) -> str:
    return (
        f"{where}.vocabulary: {size} pieces are too few, the train split's characters alone take {needed}: "
        "take more, or the tokenizer bytes"
    )
