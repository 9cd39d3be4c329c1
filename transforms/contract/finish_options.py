"""The user's choices of how stored values become model-ready, beside the manifest's, for both engines."""

from dataclasses import dataclass

from recordmill.pipeline.errors import DatasetError

DTYPES = ("uint8", "float32", "bfloat16")
TEXTS = ("padded", "bucketed", "ragged", "packed")
LONGEST = "longest"
CAPTIONS = ("all", "first", "random")


@dataclass(frozen=True, kw_only=True)
class FinishOptions:
    """Forms of images and texts; the defaults are the serving model's.

    Raises:
        DatasetError: a value is not allowed.
    """

    dtype: str | None = None
    """The dtype of images: `uint8` as stored, `float32` or `bfloat16` normalized; None as the spec says."""
    text: str = "padded"
    """The form of texts: `padded` to one length; `bucketed`, padded in batches of like sizes; `ragged`; `packed`, the
    batch's documents in the fewest rows of `text_length` ids."""
    text_length: int | str | None = None
    """The length of padded texts: a number of ids, or `longest` for the batch's longest; by default the feature's
    `max_length`, else the batch's longest."""
    captions: str = "all"
    """The texts of a row that has several: `all`; the `first`; or a `random` one, another each epoch."""
    masks: bool = False
    """Adds `<feature>_mask` to padded texts: bool, True where there is a token."""

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise DatasetError(f"dtype is one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.text not in TEXTS:
            raise DatasetError(f"text is one of {', '.join(TEXTS)}, got {self.text!r}")
        if self.captions not in CAPTIONS:
            raise DatasetError(f"captions is one of {', '.join(CAPTIONS)}, got {self.captions!r}")
        length = self.text_length
        if length not in (None, LONGEST) and not (isinstance(length, int) and length >= 1):
            raise DatasetError(f"text_length is a number of ids, at least 1, or '{LONGEST}', got {length!r}")

    def length_of(self, max_length: int | None) -> int | None:
        """Returns the length of padded rows of a text with this `max_length`; None for the batch's longest."""
        if self.text_length is None:
            return max_length
        return self.text_length if isinstance(self.text_length, int) else None


SERVED = FinishOptions()
"""The serving model's options."""
