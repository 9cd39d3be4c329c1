"""The user's choices of how stored values become model-ready, beside the manifest's, for both engines."""

from dataclasses import dataclass

DTYPES = ("uint8", "float32", "bfloat16")
TEXTS = ("padded", "bucketed", "ragged", "packed")
LONGEST = "longest"


@dataclass(frozen=True)
class FinishOptions:
    """Forms of images and texts; the defaults are the serving model's."""

    dtype: str | None = None
    """The dtype of images: None as the manifest says, `uint8` as stored, `float32` or `bfloat16` normalized."""
    text: str = "padded"
    """One of TEXTS; `bucketed` is padded, in batches of like sizes."""
    text_length: int | str | None = None
    """The length of padded rows: None for the feature's `max_length`, else the batch's longest; a number; LONGEST."""
    masks: bool = False
    """Adds the part `mask` to padded texts: bool, True where there is a token."""

    def __post_init__(self) -> None:
        """Refuses other values. Raises: ValueError."""
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"dtype is one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.text not in TEXTS:
            raise ValueError(f"text is one of {', '.join(TEXTS)}, got {self.text!r}")
        length = self.text_length
        if length not in (None, LONGEST) and not (isinstance(length, int) and length >= 1):
            raise ValueError(f"text_length is a number of ids, at least 1, or '{LONGEST}', got {length!r}")

    def length_of(self, max_length: int | None) -> int | None:
        """Gives the length of padded rows of a text with this `max_length`; None for the batch's longest."""
        if self.text_length is None:
            return max_length
        return self.text_length if isinstance(self.text_length, int) else None


SERVED = FinishOptions()
"""The serving model's options."""
