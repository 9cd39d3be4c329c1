r"""Texts cleaned and tokenized: Unicode form, case, then ragged rows of strings or ids; the same in any batch.

Words are runs of letters, marks, digits and underscores (Unicode categories L, M and N), as in Python's `\w+` plus the
marks for vowels in Indic and Arabic scripts.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import tensorflow as tf

from recordmill.transforms.base.description import NOTHING, Learned
from recordmill.transforms.texts.text_stored import SPACE

if TYPE_CHECKING:
    from recordmill.transforms.texts.text_spec import Tokenized

WHITE_SPACE = r"[\p{Z}\x{9}-\x{d}\x{85}]+"  # runs of Unicode white space; RE2's own `\s` is ASCII only


@tf.autograph.experimental.do_not_convert
def text_ops() -> ModuleType:
    """Imports TensorFlow Text, the only place: most specs and all training machines work without it."""
    import tensorflow_text  # type: ignore[import-untyped]

    return tensorflow_text


MARK = "\U0010ffff"  # a noncharacter: `lower` escapes it as itself with 1, and NUL as it with 0
BEFORE_LOWER = ((MARK, MARK + "1"), (r"\x00", MARK + "0"), *zip("İĮÌÍĨ", ("i̇", "į", "ì", "í", "ĩ"), strict=True))
AFTER_LOWER = ((MARK + "0", b"\0"), (MARK + "1", MARK))


def clean(text: tf.Tensor, options: "Tokenized") -> tf.Tensor:
    """Normalizes UTF-8 texts of any shape by `normalize` and `case`; empty texts stay empty."""
    if options.case == "fold":
        return text_ops().case_fold_utf8(text)
    if options.normalize != "none":
        text = text_ops().normalize_utf8(text, options.normalize.upper())
    return lower(text) if options.case == "lower" else text


def lower(text: tf.Tensor) -> tf.Tensor:
    """Makes letters lower case as Python's `str.lower`, except letters newer than Unicode 13.

    TensorFlow's op stops at the first NUL, and treats these letters, I and J by the machine's language.
    """
    text = tf.strings.lower(_replaced(text, BEFORE_LOWER))  # ASCII: I and J, and most letters at less cost
    return _replaced(tf.strings.lower(text, encoding="utf-8"), AFTER_LOWER)


def _replaced(text: tf.Tensor, pairs: Iterable[tuple[str, str | bytes]]) -> tf.Tensor:
    for pattern, replacement in pairs:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def single_spaces(text: tf.Tensor) -> tf.Tensor:
    """Replaces each run of white space by one space, and strips the ends."""
    return tf.strings.strip(tf.strings.regex_replace(text, WHITE_SPACE, " "))


NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"
ALONE = (
    r"([\p{P}$+<=>^`|~]"  # punctuation, and ASCII symbols as in BERT
    r"|[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}])"
)
"""Single-character words before WordPiece, as in BERT's tokenizer."""
MAX_WORD_BYTES = 1 << 30  # no limit in practice: BERT's 100 bytes are 33 letters of Thai, a script without spaces


def words(text: tf.Tensor, between: str = r"[^\p{L}\p{M}\p{N}_]+") -> tf.RaggedTensor:
    """Splits at a pattern; by default into runs of letters, marks, digits and underscores."""
    return tf.strings.split(tf.strings.regex_replace(text, between, " "))


def whitespace(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits at Unicode white space."""
    return words(text, WHITE_SPACE)


def characters(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits into Unicode code points; inner runs of white space become one `▁`, outer ones are dropped."""
    return tf.strings.unicode_split(tf.strings.regex_replace(single_spaces(text), " ", SPACE), "UTF-8")


def bytes_of(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits into bytes: int64 0..255."""
    values = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int64), lengths, validate=False)


def wordpiece_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits as BERT does before WordPiece: at white space and around punctuation and Chinese characters."""
    return whitespace(tf.strings.regex_replace(text, ALONE, r" \1 "))


def wordpiece(text: tf.Tensor, options: "Tokenized", learned: Learned) -> tf.RaggedTensor:
    """WordPiece (Song et al. 2021): the longest piece first; int64 ids are lines of the pieces' file."""
    pieces = _model(learned).decode().removesuffix("\n").split("\n")
    tokenizer = text_ops().FastWordpieceTokenizer(
        vocab=pieces,
        suffix_indicator="##",
        max_bytes_per_word=MAX_WORD_BYTES,
        token_out_type=tf.int64,
        unknown_token=pieces[options.special(learned).unknown or 0],
        no_pretokenization=True,
    )
    row_words = wordpiece_words(text)
    ids = tokenizer.tokenize(row_words.flat_values)
    splits = tf.gather(ids.row_splits, row_words.row_splits)
    return tf.RaggedTensor.from_row_splits(ids.flat_values, splits, validate=False)


def _model(learned: Learned) -> bytes:
    assert learned.model is not None  # noqa: S101 - trained or read before the graph is made
    return learned.model


def sentencepiece(text: tf.Tensor, options: "Tokenized", learned: Learned) -> tf.RaggedTensor:
    """SentencePiece: the model's ids, int64. The build trains its models on single spaces."""
    tokenizer = text_ops().SentencepieceTokenizer(model=_model(learned), out_type=tf.int32)
    return tf.cast(tokenizer.tokenize(text if options.model else single_spaces(text)), tf.int64)


WORDS = {"words": words, "whitespace": whitespace, "characters": characters, "bytes": bytes_of}
MODELS = {"wordpiece": wordpiece, "sentencepiece": sentencepiece}
LEARNS_FROM = {"wordpiece": wordpiece_words, "sentencepiece": whitespace}
"""Splits texts into the words to train a model on."""


def tokenize(text: tf.Tensor, options: "Tokenized", learned: Learned = NOTHING) -> tf.RaggedTensor:
    """Splits cleaned texts, shape [rows], into tokens, strings or int64 ids; empty texts have none, or a model's."""
    if options.tokenizer in MODELS:
        return MODELS[options.tokenizer](text, options, learned)
    tokens = WORDS[options.tokenizer](text)
    return tokens if options.ngrams == (1,) else tf.strings.ngrams(tokens, options.ngrams, separator=" ")
