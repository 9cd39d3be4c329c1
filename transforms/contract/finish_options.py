"""How stored values are made ready: what a user may choose beside what the manifest says, for both engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

DTYPES = ("uint8", "float32", "bfloat16")
TEXTS = ("padded", "bucketed", "ragged", "packed")
LONGEST = "longest"


@dataclass(frozen=True)
class FinishOptions:
    """Of pictures and texts; the default is what the serving model gives."""

    dtype: str | None = None
    """Of pictures: None as the manifest says, `uint8` as stored, `float32` or `bfloat16` normalized."""
    text: str = "padded"
    """One of TEXTS; `bucketed` is padded, in batches of like sizes."""
    text_length: int | str | None = None
    """How long padded rows are: None for the feature's `max_length`, else the batch's longest; a number; LONGEST."""
    masks: bool = False
    """Whether padded texts have the part `mask`: bool, True where there is a token."""

    def __post_init__(self) -> None:
        """Refuses what is none of these: ValueError."""
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"dtype is one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.text not in TEXTS:
            raise ValueError(f"text is one of {', '.join(TEXTS)}, got {self.text!r}")
        length = self.text_length
        if length not in (None, LONGEST) and not (isinstance(length, int) and length >= 1):
            raise ValueError(f"text_length is a number of ids, at least 1, or '{LONGEST}', got {length!r}")

    def length_of(self, description: Mapping[str, Any]) -> int | None:
        """How long a text's padded rows are; None: as the batch's longest."""
        if self.text_length is None:
            return description["max_length"]
        return self.text_length if isinstance(self.text_length, int) else None


SERVED = FinishOptions()
"""What the serving model gives."""


class Augment(NamedTuple):
    """What is done to the pictures of a feature before they are normalized."""

    changes: Sequence[Any]
    """Of `transforms.contract.augment`."""
    parameters: Any
    """float64 [rows, numbers], of `transforms.contract.augment.parameters`; all pictures of a row are changed alike."""
    mask: bool = False
    """Whether the values are no colours: then pixels move, and do not change."""
