r"""Texts cleaned and cut into tokens: Unicode's form, case, then ragged rows of strings or ids; the same in any batch.

Words are runs of letters, marks, digits and underscores (Unicode categories L, M and N), as in Python's `\w+` with the
marks that Indic and Arabic scripts write their vowels with.
"""

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

import tensorflow as tf

from recordmill.transforms.contract.kinds.text import TextOptions

WHITE_SPACE = r"[\p{Z}\x{9}-\x{d}\x{85}]+"  # runs of Unicode white space; RE2's own `\s` is ASCII only


@tf.autograph.experimental.do_not_convert
def text_ops() -> ModuleType:
    """Loads TensorFlow Text, here and nowhere else: most specs and every training machine do without."""
    import tensorflow_text  # type: ignore[import-untyped]

    return tensorflow_text


MARK = "\U0010ffff"
"""No character. `lower` writes it with a 1 after it, and NUL with a 0."""
BEFORE_LOWER = ((MARK, MARK + "1"), (r"\x00", MARK + "0"), *zip("İĮÌÍĨ", ("i̇", "į", "ì", "í", "ĩ"), strict=True))
AFTER_LOWER = ((MARK + "0", b"\0"), (MARK + "1", MARK))


def clean(text: tf.Tensor, options: TextOptions) -> tf.Tensor:
    """Normalizes UTF-8 texts of any shape by `normalize` and `case`; an empty text stays empty.

    `fold` is Unicode's NFKC_Casefold, which normalizes too. `lower` keeps the form.
    """
    if options.case == "fold":
        return text_ops().case_fold_utf8(text)
    if options.normalize != "none":
        text = text_ops().normalize_utf8(text, options.normalize.upper())
    return lower(text) if options.case == "lower" else text


def lower(text: tf.Tensor) -> tf.Tensor:
    """Makes letters lower case, as Python's `str.lower` does; those that Unicode has since version 14 stay.

    TensorFlow's op ends a text at its first NUL, and treats these letters, I and J by the machine's language:
    Turkish and Lithuanian have rules for them.
    """
    text = tf.strings.lower(_replaced(text, BEFORE_LOWER))  # ASCII: I and J, and most letters at less cost
    return _replaced(tf.strings.lower(text, encoding="utf-8"), AFTER_LOWER)


def _replaced(text: tf.Tensor, pairs: Iterable[tuple[str, str | bytes]]) -> tf.Tensor:
    for pattern, replacement in pairs:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def single_spaces(text: tf.Tensor) -> tf.Tensor:
    """Makes every run of white space one space, and strips the ends."""
    return tf.strings.strip(tf.strings.regex_replace(text, WHITE_SPACE, " "))


NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"
SPACE = "▁"  # U+2581 stands for a space in tokens, as in SentencePiece: a vocabulary holds no blank line
ALONE = (
    r"([\p{P}$+<=>^`|~]"  # punctuation, and the ASCII symbols that BERT counts as such
    r"|[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}])"
)
"""The characters that are words by themselves before WordPiece, as in BERT's tokenizer."""
MAX_WORD_BYTES = 1 << 30
"""The limit on a word's length, never reached: BERT's 100 bytes are 33 letters of Thai, which has no spaces."""


def words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits into runs of letters, marks, digits and underscores."""
    return tf.strings.split(tf.strings.regex_replace(text, NO_WORD, " "))


def whitespace(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits at white space, Unicode's."""
    return tf.strings.split(tf.strings.regex_replace(text, WHITE_SPACE, " "))


def characters(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits into Unicode code points; a run of white space is one `▁`; white space at the ends is dropped."""
    return tf.strings.unicode_split(tf.strings.regex_replace(single_spaces(text), " ", SPACE), "UTF-8")


def bytes_of(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits into bytes: int64 0..255."""
    values = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int64), lengths, validate=False)


def wordpiece_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits as BERT does before WordPiece: at white space and around punctuation and Chinese characters."""
    return whitespace(tf.strings.regex_replace(text, ALONE, r" \1 "))


def wordpiece(text: tf.Tensor, options: TextOptions) -> tf.RaggedTensor:
    """WordPiece (Song et al. 2021): the longest piece first; int64 ids are lines of the file of pieces."""
    pieces = _model(options).decode().removesuffix("\n").split("\n")
    tokenizer = text_ops().FastWordpieceTokenizer(
        vocab=pieces,
        suffix_indicator="##",
        max_bytes_per_word=MAX_WORD_BYTES,
        token_out_type=tf.int64,
        unknown_token=pieces[options.special.unknown or 0],
        no_pretokenization=True,
    )
    row_words = wordpiece_words(text)
    ids = tokenizer.tokenize(row_words.flat_values)
    splits = tf.gather(ids.row_splits, row_words.row_splits)
    return tf.RaggedTensor.from_row_splits(ids.flat_values, splits, validate=False)


def _model(options: TextOptions) -> bytes:
    assert options.model_bytes is not None  # noqa: S101 - trained or read before the graph is made
    return options.model_bytes


def sentencepiece(text: tf.Tensor, options: TextOptions) -> tf.RaggedTensor:
    """SentencePiece: the model's own ids, int64. A model that the build trained saw single spaces only."""
    tokenizer = text_ops().SentencepieceTokenizer(model=_model(options), out_type=tf.int32)
    return tf.cast(tokenizer.tokenize(text if options.model else single_spaces(text)), tf.int64)


WORDS: Mapping[str, Callable[[tf.Tensor], tf.RaggedTensor]] = {
    "words": words,
    "whitespace": whitespace,
    "characters": characters,
    "bytes": bytes_of,
}
MODELS: Mapping[str, Callable[[tf.Tensor, TextOptions], tf.RaggedTensor]] = {
    "wordpiece": wordpiece,
    "sentencepiece": sentencepiece,
}
LEARNS_FROM: Mapping[str, Callable[[tf.Tensor], tf.RaggedTensor]] = {
    "wordpiece": wordpiece_words,
    "sentencepiece": whitespace,
}
"""The words that are counted to train a model, which cuts them into pieces."""


def tokenize(text: tf.Tensor, options: TextOptions) -> tf.RaggedTensor:
    """Cuts cleaned texts, shape [rows], into tokens: strings, or int64 where the tokenizer gives numbers.

    An empty text gives an empty row, except that a given model's own rules hold.
    """
    if options.tokenizer in MODELS:
        return MODELS[options.tokenizer](text, options)
    tokens = WORDS[options.tokenizer](text)
    widths = tuple(options.ngrams)
    return tokens if widths == (1,) else tf.strings.ngrams(tokens, widths, separator=" ")
