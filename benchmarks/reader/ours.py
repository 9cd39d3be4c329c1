"""Our own pipelines: the training input of a dataset that `recordmill build` made, through each of its engines.

Names: `recordmill_numpy` or `recordmill_tf_data`; `recordmill_adopted_numpy` over the files of TensorFlow Datasets; of
texts `recordmill_packed` by the build, `recordmill_packing` here, `recordmill_padded_tf_data`
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings import ROW_TOKENS, SIDE, Batch, Settings

from recordmill import open_dataset
from recordmill.augment import RandomFlip, RandomResizedCrop

THREADS = {"images": 2, "text": 1}
TF_DATA, ADOPTED, PACKING = "tf_data", "recordmill_adopted", "recordmill_packing"


@dataclass(frozen=True)
class Ours:
    """One of our pipelines; it imports TensorFlow before the first batch's clock starts if it feeds `tf.data`."""

    task: str
    name: str

    def __post_init__(self) -> None:
        """Imports TensorFlow if this needs it."""
        if self.name.endswith(TF_DATA):
            importlib.import_module("tensorflow")

    @property
    def WORKERS(self) -> int:  # noqa: N802 - as the peers' modules call it
        """The number of threads."""
        return THREADS[self.task]

    def batches(self, data: Path, settings: Settings) -> Iterator[Batch]:
        """Yields batches without end; padding ids are 0."""
        train = training_input(data / self._folder, settings, **self._options(settings))
        for batch in train.as_tf_data().as_numpy_iterator() if self.name.endswith(TF_DATA) else train.as_numpy():
            yield self._batch(batch)

    @property
    def _packs(self) -> bool:
        return "pack" in self.name

    @property
    def _folder(self) -> str:
        return next((name for name in ("recordmill_packed", ADOPTED) if self.name.startswith(name)), "recordmill")

    def _options(self, settings: Settings) -> dict[str, Any]:
        if self.task == "images":
            return {"augment": [RandomResizedCrop(SIDE), RandomFlip()], "dtype": settings.dtype}
        if self.name.startswith(PACKING):
            return {"text": "packed", "text_length": ROW_TOKENS, "features": ["text"], "label": None}
        return {} if self._packs else {"text": self.name.split("_")[1]}

    def _batch(self, batch: Any) -> Batch:
        if self._packs:  # rows without labels
            return batch["text"], batch["text_segments"], None
        features, labels = batch
        return (features["image"], labels) if self.task == "images" else (features["text"], features["text"], labels)


def training_input(dataset: Path, settings: Settings, **options: Any) -> Any:
    """Opens the train split, without end."""
    if settings.remote:
        options["cache"] = settings.cache
    place = f"{settings.remote}/{dataset.name}" if settings.remote else dataset
    return open_dataset(place, files=dataset.parent / "tfds").training_input(
        "train",
        batch_size=settings.batch_size,
        seed=settings.seed,
        epochs=-1,
        threads=None if settings.processes is None else settings.workers,
        workers=settings.processes,
        **options,
    )
