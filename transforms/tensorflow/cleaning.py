"""Cleaning of texts before they are cut into tokens: Unicode normalization, then case."""

from types import ModuleType

import tensorflow as tf

from recordmill.transforms.contract.kinds.text import TextOptions

WHITE_SPACE = r"[\p{Z}\x{9}-\x{d}\x{85}]+"
"""Runs of Unicode white space; RE2's own `\\s` is ASCII only."""


@tf.autograph.experimental.do_not_convert
def text_ops() -> ModuleType:
    """Loads TensorFlow Text's ops, here and nowhere else: most specs and every training machine do without."""
    from recordmill.transforms.tensorflow import text_ops as loaded

    return loaded


def clean(text: tf.Tensor, options: TextOptions) -> tf.Tensor:
    """Normalizes UTF-8 texts of any shape by `normalize` and `case`; an empty text stays empty.

    `fold` is Unicode's NFKC_Casefold, which normalizes too. `lower` is TensorFlow's own op and keeps the form.
    """
    if options.case == "fold":
        return text_ops().case_fold_utf8(text)
    if options.normalize != "none":
        text = text_ops().normalize_utf8(text, options.normalize.upper())
    return tf.strings.lower(text, encoding="utf-8") if options.case == "lower" else text


def single_spaces(text: tf.Tensor) -> tf.Tensor:
    """Makes every run of white space one space, and strips the ends."""
    return tf.strings.strip(tf.strings.regex_replace(text, WHITE_SPACE, " "))
