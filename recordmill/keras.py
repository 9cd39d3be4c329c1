"""Keras: checkpoints that hold the input's position, the input's speed in the logs, and a model to serve.

>>> from recordmill.keras import TrainingCheckpoint, restore_training, servable
>>> train, epoch = restore_training("run/", model, train)  # doctest: +SKIP
>>> saved = TrainingCheckpoint(train, "run/")  # doctest: +SKIP
>>> model.fit(train.as_tf_data(model), initial_epoch=epoch, callbacks=[saved])  # doctest: +SKIP
>>> servable(model, train, activation="softmax").save("models/emoji/1")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from recordmill.pipeline.reader.input import check_installed
from recordmill.pipeline.reader.keras_callback import InputSpeed, TrainingCheckpoint, load_state, restore_training

if TYPE_CHECKING:
    from recordmill.dataset import Dataset
    from recordmill.pipeline.reader.input import Input
    from recordmill.pipeline.servable import Servable

__all__ = ["InputSpeed", "TrainingCheckpoint", "load_state", "restore_training", "servable"]


def servable(model: Any, dataset: "Dataset | Input", **options: Any) -> "Servable":
    """Joins the transform of a version with a model that was, or will be, trained on it.

    The result takes raw rows by feature, as `serving/` does: strings (the bytes of a file, a text, a name), float32 or
    int64, each [rows]. It gives `classes` (strings) and `scores` (float32), both [rows, classes] from the best to the
    worst, where the target is a category and the model gives a score for each class; else `output` (float32), or what
    the model names itself. Its batches may have any size; of an empty one, all outputs are empty. It has the weights
    that the model has when it is called or saved.

    Args:
        model: a `keras.Model` whose inputs are named after features or their parts, in a list, in a mapping, or one; a
            `keras.Sequential`; or a subclass, which gets the mapping of features.
        dataset: the input that it learns from, whose features, target, `dtype`, `text_length` and `masks` apply; or the
            version, read as without options; in a folder of this machine.
        **options: `activation`, `softmax` or `sigmoid`, for a model that gives logits; `top`, the number of classes to
            give, by default all; `prepare`, a function of tensors by feature that returns what the model takes, where
            it was trained on others than the input's own, such as cropped images.

    Raises:
        UserError: the model takes features, shapes or types that a served row has not.
        UnsafeGraphError: `serving/` is not what the manifest says. DatasetError: the dataset is at a URL, or TensorFlow
            is not installed.
    """
    check_installed("tensorflow", "TensorFlow", "recordmill[tf]")
    from recordmill.pipeline.servable import Servable

    return Servable(model, dataset, **options)
