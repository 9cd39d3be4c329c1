"""TensorFlow Text's ops: `cleaning.text_ops` loads them by name, where a spec needs them."""

from tensorflow_text import (  # type: ignore[import-untyped]
    FastWordpieceTokenizer,
    SentencepieceTokenizer,
    case_fold_utf8,
    normalize_utf8,
)

__all__ = ["FastWordpieceTokenizer", "SentencepieceTokenizer", "case_fold_utf8", "normalize_utf8"]
