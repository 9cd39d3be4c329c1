"""TensorFlow Text's ops: loaded by name where a spec needs them (`cleaning.text_ops`), never else."""

from tensorflow_text import (  # type: ignore[import-untyped]
    FastWordpieceTokenizer,
    SentencepieceTokenizer,
    case_fold_utf8,
    normalize_utf8,
)

__all__ = ["FastWordpieceTokenizer", "SentencepieceTokenizer", "case_fold_utf8", "normalize_utf8"]
