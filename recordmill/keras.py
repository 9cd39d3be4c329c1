"""Keras: checkpoints that hold the input's position, the input's speed in the logs, and a model to serve.

>>> from recordmill.keras import TrainingCheckpoint, restore_training, servable
>>> train, epoch = restore_training("run/", model, train)  # doctest: +SKIP
>>> saved = TrainingCheckpoint(train, "run/")  # doctest: +SKIP
>>> model.fit(train.as_tf_data(model), initial_epoch=epoch, callbacks=[saved])  # doctest: +SKIP
>>> servable(model, train, activation="softmax").save("models/emoji/1")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from recordmill.pipeline.reader.input import check_installed
from recordmill.pipeline.reader.keras_input import InputSpeed, TrainingCheckpoint, load_state, restore_training

if TYPE_CHECKING:
    from recordmill.dataset import Dataset
    from recordmill.pipeline.reader.input import Input
    from recordmill.pipeline.servable import Servable

__all__ = ["InputSpeed", "TrainingCheckpoint", "load_state", "restore_training", "servable"]


def servable(model: Any, dataset: "Dataset | Input", **options: Any) -> "Servable":
    """Joins the transform of a version with a model trained on it, or to be trained.

    The result takes raw rows by feature, as `serving/` does: strings (the bytes of a file, a text, a name), float32 or
    int64, each [rows]. For a category as target and a model with a score per class, it gives `classes` (strings) and
    `scores` (float32), both [rows, classes], best first; else `output` (float32), or the model's own names. Batches
    may have any size; an empty one gives empty outputs. Calling and saving use the model's weights at that moment.

    Args:
        model: a `keras.Model` with inputs named after features or their parts, in a list, in a mapping, or one; a
            `keras.Sequential`; or a subclass, which gets the mapping of features.
        dataset: the training's input, for its features, target, `dtype`, `text_length` and `masks`; or the version,
            read without options; in a local folder.
        **options: `activation`, `softmax` or `sigmoid`, for a model that gives logits; `top`, the number of classes to
            give, by default all; `prepare`, a function from tensors by feature to the model's inputs, if it was trained
            on other ones than the input's, such as cropped images.

    Raises:
        UserError: the model takes features, shapes or types that a served row does not have.
        UnsafeGraphError: `serving/` differs from the manifest. DatasetError: the dataset is at a URL, or TensorFlow is
            not installed.
    """
    check_installed("tensorflow", "TensorFlow", "recordmill[tf]")
    from recordmill.pipeline.servable import Servable

    return Servable(model, dataset, **options)
