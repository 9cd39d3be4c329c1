"""Records as they lie in the shards, for TensorFlow to parse, decode and augment by numbers that are drawn already."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.batches.by_step import choose, in_structure
from recordmill.pipeline.reader.batches.rows import Rows
from recordmill.pipeline.reader.batches.split import SplitSource
from recordmill.pipeline.reader.input import Source
from recordmill.pipeline.reader.options.element_spec import ArraySpec
from recordmill.pipeline.reader.options.request import Request
from recordmill.transforms.contract.augment import Augmentation, OwnFunction
from recordmill.transforms.contract.finish_options import Augment
from recordmill.transforms.numpy.texts import strings
from recordmill.transforms.tensorflow.augment_batches import apply_batch
from recordmill.transforms.tensorflow.features import parse


class SerializedSource(SplitSource):
    """A split whose batches are serialized examples, and what was drawn for each row."""

    def __init__(self, source: Source) -> None:
        if not isinstance(source, SplitSource):
            raise DatasetError("engine='tensorflow' reads one split: leave it out for a mixture")
        _check(source.request)
        super().__init__(source.request)
        request, rows = self.request, self.request.rows

        def drawn(changes: Sequence[Augmentation]) -> ArraySpec:
            return ArraySpec((rows, sum(change.numbers for change in changes)), "float64")

        self.element_spec = {
            "examples": ArraySpec((rows,), "bytes"),
            "augment": {name: drawn(changes) for name, changes in request.augment.items()},
            "mixtures": tuple(ArraySpec((rows, mixture.lanes), "float64") for mixture in request.mixtures),
            **({"weight": ArraySpec((rows,), "float32")} if request.given.pad else {}),
        }

    def open(self) -> Any:
        """Makes what makes the batches."""
        return SerializedBatches(self.rows())


class SerializedBatches:
    """The serialized batches of a split."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.tally = rows, rows.tally

    def __call__(self, steps: Sequence[int]) -> list[dict[str, Any] | None]:
        """Gives the batches of steps."""
        return [self._batch(step) for step in steps]

    def _batch(self, step: int) -> dict[str, Any] | None:
        chosen, weights = choose(self.rows, step)
        payloads, kept = self.rows.without_damaged(chosen, self.rows.payloads)
        if not len(kept) and len(chosen.positions):
            return None
        good = chosen.keep(kept)
        batch = {
            "examples": strings(payloads),
            "augment": self.rows.parameters(good),
            "mixtures": self.rows.mixed(good),
        }
        return batch if weights is None else {**batch, "weight": weights[kept]}

    def close(self) -> None:
        """Lets go of files and memory."""
        self.rows.close()


def model_ready(source: SerializedSource) -> Callable[[dict[str, Any]], Any]:
    """Makes the function from a serialized batch to the input's batch, for `Dataset.map`."""
    request = source.request

    @tf.autograph.experimental.do_not_convert
    def ready(batch: dict[str, Any]) -> Any:
        augment = {
            name: Augment(request.augment[name], parameters, name in request.masks)
            for name, parameters in batch["augment"].items()
        }
        features = parse(
            request.features,
            batch["examples"],
            with_key=request.given.with_key,
            options=request.given.finish,
            augment=augment,
        )
        label = None if request.label is None else features.pop(request.label)
        for mixture, draws in zip(request.mixtures, batch["mixtures"], strict=True):
            features, label = apply_batch(mixture, features, label, draws)
        return in_structure(request, features, label, batch.get("weight"))

    return ready


def _check(request: Request) -> None:
    if request.given.finish.text == "packed":
        raise DatasetError("engine='tensorflow' cannot pack texts: leave it out, or pack them when you build")
    for name, changes in request.augment.items():
        own = [change for change in changes if isinstance(change, OwnFunction)]
        if own:
            raise DatasetError(
                f"engine='tensorflow' cannot call {own[0].function!r}, which augments '{name}': leave the engine out"
            )
