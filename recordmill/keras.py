"""Keras callbacks: checkpoints that hold the input's position too, and the input's speed beside the losses.

>>> from recordmill.keras import TrainingCheckpoint, restore_training
>>> train, epoch = restore_training("run/", model, train)  # doctest: +SKIP
>>> model.fit(train.as_tf_data(), initial_epoch=epoch, callbacks=[TrainingCheckpoint(train, "run/")])  # doctest: +SKIP
"""

from recordmill.pipeline.reader.keras_callback import InputSpeed, TrainingCheckpoint, load_state, restore_training

__all__ = ["InputSpeed", "TrainingCheckpoint", "load_state", "restore_training"]
