"""Trains with a loop of its own on images that are changed at random; a run that was stopped goes on exactly.

    python examples/training_loop/train.py demo/training_loop/out --stop-after-steps 40
    python examples/training_loop/train.py demo/training_loop/out

The second run goes on with the batch that would have come, changed as it would have been: it ends with the same
weights, to the bit, as one that was never stopped. Both print a digest of them.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # keeps what TensorFlow prints as it loads off the screen
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    from recordmill import Dataset, Input, open_dataset, with_progress
    from recordmill.augment import CenterCrop, ColorJitter, MixUp, RandomCrop, RandomFlip

EPOCHS = 10
SIDE = 56  # pixels of 64: the rest is room to move
AUGMENT = [RandomCrop(SIDE), RandomFlip(), ColorJitter(brightness=0.2, contrast=0.2), MixUp()]
SAVE_EVERY = 50  # steps


def build_model(classes: int) -> keras.Model:
    """Takes images; gives the scores of the classes."""
    image = seen = keras.Input([SIDE, SIDE, 3])
    for filters in (16, 32, 64):
        seen = layers.Conv2D(filters, 3, padding="same", use_bias=False)(seen)
        seen = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen)))
    return keras.Model(image, layers.Dense(classes)(layers.GlobalMaxPooling2D()(seen)))


def make_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Any:
    """Makes the function that learns from one batch and gives its loss."""
    loss_of = keras.losses.CategoricalCrossentropy(from_logits=True)  # MixUp gives each class a share

    def step(image: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(label, model(image, training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return tf.function(step)


def train(model: keras.Model, given: Input, checkpoints: Path, stop_after: int | None) -> bool:
    """Learns from the batches that the last checkpoint leaves; tells whether none is left."""
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(model.trainable_variables)  # so that a checkpoint finds where to restore it
    state = tf.Variable("", dtype=tf.string)  # of the input
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer, input=state)
    manager = tf.train.CheckpointManager(saved, checkpoints, max_to_keep=2)
    if manager.restore_or_initialize():
        given = given.resume(json.loads(state.numpy()))
    step, batches = make_step(model, optimizer), given.as_numpy()
    print(f"Begins with step {batches.step}")
    for features, label in with_progress(batches):
        step(features["image"], label)
        stop = batches.step == stop_after
        if stop or batches.step % SAVE_EVERY == 0:
            state.assign(json.dumps(batches.state()))
            manager.save(batches.step)
        if stop:
            print(f"Stopped after step {stop_after}: run again to go on")
            return False
    return True


def accuracy(model: keras.Model, dataset: Dataset) -> float:
    """Gives the share of the test split's images whose class the model finds, 0..1."""
    test = dataset.evaluation_input("test", batch_size=64, augment=[CenterCrop(SIDE)])
    found = [model.predict_on_batch(features["image"]).argmax(-1) == label for features, label in test.as_numpy()]
    return float(np.concatenate(found).mean())


def digest(model: keras.Model) -> str:
    """Gives a digest of the weights, equal only where they are equal to the bit."""
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()[:16]


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small model with a loop of its own.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--checkpoints", type=Path, help="a folder; by default `checkpoints`, beside the dataset")
    parser.add_argument("--stop-after-steps", type=int, help="ends there, as if the machine were taken away")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()  # else sums of many threads differ from run to run
    model = build_model(dataset.num_classes)
    given = dataset.training_input("train", batch_size=32, seed=1, epochs=EPOCHS, augment=AUGMENT)
    checkpoints = arguments.checkpoints or Path(arguments.dataset).parent / "checkpoints"
    if not train(model, given, checkpoints.absolute(), arguments.stop_after_steps):
        return

    print(f"Weights: {digest(model)}")
    found, chance = accuracy(model, dataset), 1 / dataset.num_classes
    print(f"Accuracy on the test split: {found:.3f}; chance: {chance:.3f}")
    if found < 3 * chance:
        sys.exit(f"train.py: the model did not learn: {found:.3f} is under three times chance")


if __name__ == "__main__":
    main()
