"""Keras: checkpoints that hold the input's position, the input's speed in the logs, and a model to serve.

>>> from recordmill.keras import TrainingCheckpoint, restore_training, servable
>>> train, epoch = restore_training("run/", model, train)  # doctest: +SKIP
>>> model.fit(train.as_tf_data(), initial_epoch=epoch, callbacks=[TrainingCheckpoint(train, "run/")])  # doctest: +SKIP
>>> servable(model, dataset, activation="softmax").save("models/emoji/1")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from recordmill.pipeline.reader.keras_callback import InputSpeed, TrainingCheckpoint, load_state, restore_training

if TYPE_CHECKING:
    from recordmill.dataset import Dataset
    from recordmill.pipeline.servable import Servable

__all__ = ["InputSpeed", "TrainingCheckpoint", "load_state", "restore_training", "servable"]


def servable(model: Any, dataset: "Dataset", **options: Any) -> "Servable":
    """Joins the transform of a version with a model that was trained on it.

    The result takes raw rows by feature, as `serving/` does: strings (the bytes of a file, a text, a name), float32 or
    int64, each [rows]. It gives `classes` (strings) and `scores` (float32), both [rows, classes] from the best to the
    worst, where the label is a category and the model gives a score for each class; else `output` (float32), or what
    the model names itself. Its batches may have any size; of an empty one, all outputs are empty.

    Args:
        model: a trained `keras.Model`, whose inputs are a mapping by feature, or one feature.
        dataset: the version that it was trained on, in a folder of this machine.
        **options: `activation`, `softmax` or `sigmoid`, for a model that gives logits; `top`, the number of classes to
            give, by default all; `prepare`, a function of tensors by feature, for a model that was trained on others
            than the version's own, such as cropped images or pixels in uint8.

    Raises:
        UserError: the model takes features or shapes that the transform does not give.
        UnsafeGraphError: `serving/` is not what the manifest says. DatasetError: the dataset is at a URL.
    """
    from recordmill.pipeline.servable import Servable

    return Servable(model, dataset, **options)
