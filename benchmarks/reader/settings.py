"""What every pipeline of the reader's benchmark is asked for.

A pipeline is a module of `images/` or `text/` with two names:

    WORKERS: int            # threads or processes: the fastest of those that `run.py tune` tries on 2 cores
    def batches(data: Path, settings: Settings) -> Iterator[Batch]      # without end, shuffled

`data` is the task's folder, with one folder for each format. A batch of pictures is `(pixels, labels)`: uint8, or
float32 normalized as for ImageNet, [batch, 224, 224, 3] or, where that is the peer's habit, [batch, 3, 224, 224]. A
batch of text is `(ids, real, labels)`: `ids` [rows, length]; `real` is each row's length, or an array that is not 0
where a token is. Libraries that a pipeline needs are imported by its module, before the first batch's clock starts.
"""

from dataclasses import dataclass
from typing import Any

SIDE = 224
"""Pixels of a picture's side in a batch."""
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels, each from 0 to 1: what torchvision's `Normalize` is given."""
ROW_TOKENS = 1024
"""The length of a row into which several documents are packed."""

Batch = tuple[Any, ...]


@dataclass(frozen=True)
class Settings:
    """One run's settings."""

    batch_size: int
    seed: int
    workers: int
    """Threads, or processes where the pipeline works in processes."""
    dtype: str = "uint8"
    """Of pictures: uint8 or float32."""
    processes: int | None = None
    """Worker processes of our reader; 0: threads alone; None: as it chooses."""
    cores: int = 0
    """Cores that the pipeline may use; 0: all."""
    remote: str = ""
    """The URL of the task's data in a bucket; otherwise it is on this machine."""
    cache: str = ""
    """The folder in which remote data is kept."""
    rows: int = 0
    """The window ends after so many, and begins with the first batch's clock; 0: it is some seconds after a warm-up."""
