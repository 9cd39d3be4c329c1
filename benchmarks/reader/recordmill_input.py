"""Our own pipelines: the training input of a dataset that `recordmill build` made, through each of its engines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from settings import Batch, Settings

from recordmill import open_dataset


def training_input(dataset: Path, settings: Settings, **options: Any) -> Any:
    """Opens the train split, without end."""
    if settings.remote:
        options["cache"] = settings.cache
    return open_dataset(f"{settings.remote}/{dataset.name}" if settings.remote else dataset).training_input(
        "train",
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=-1,
        threads=None if settings.processes is None else settings.workers,
        workers=settings.processes,
        start_step=settings.start_step,
        **options,
    )


def pictures(rows: Any) -> Iterator[Batch]:
    """Gives batches of pictures."""
    for features, labels in rows:
        yield features["image"], labels
