"""Trains a new head on a backbone that knows images already, from a tenth of the labels, and says what that gains.

    python examples/transfer_learning/train.py demo/transfer_learning/out
    python examples/transfer_learning/train.py demo/transfer_learning/out --weights imagenet

Without `--weights` a small backbone first learns the other label, shape; a run that is killed meanwhile goes on where
it was. With it, DenseNet121 has learned from ImageNet: Keras downloads its weights, or reads them from a file.
"""

import argparse
import contextlib
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
    from keras import layers

    from recordmill import Dataset, Input, open_dataset
    from recordmill.augment import CenterCrop, RandomFlip, RandomResizedCrop
    from recordmill.keras import TrainingCheckpoint, restore_training

SIDE = 224
FEW = "train[:10%]"  # the records with the new label
AUGMENT = [RandomResizedCrop(SIDE, area=(0.6, 1.0)), RandomFlip()]
# Pixels as they are stored: a quarter of the bytes of floats on their way to the device.
BATCHES: dict[str, Any] = {"batch_size": 16, "features": ["image"], "dtype": "uint8"}


def training(dataset: Dataset, label: str, split: str = "train") -> Input:
    """Random crops."""
    return dataset.training_input(split, seed=1, label=label, augment=AUGMENT, **BATCHES)


def evaluation(dataset: Dataset, label: str, split: str) -> Input:
    """The middle of each image."""
    return dataset.evaluation_input(split, label=label, augment=[CenterCrop(SIDE)], **BATCHES)


def small_backbone() -> keras.Model:
    """Takes normalized images; gives 64 numbers each."""
    image = seen = keras.Input([SIDE, SIDE, 3])
    for filters, stride in ((8, 4), (16, 2), (32, 2), (64, 2)):
        seen = layers.Conv2D(filters, 5, stride, padding="same", use_bias=False)(seen)
        seen = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen))
    return keras.Model(image, layers.GlobalMaxPooling2D()(seen))


def with_head(backbone: keras.Model, dataset: Dataset, label: str) -> keras.Model:
    """Takes pixels, 0..255, normalizes them where the model runs, and gives the scores of a label's classes."""
    image = keras.Input([SIDE, SIDE, 3], name="image")
    description = dataset.features["image"]
    normal = layers.Rescaling(description["scale"], -np.multiply(description["offset"], description["scale"]))(image)
    scores = layers.Dense(len(dataset.class_names(label)))(backbone(normal))
    model = keras.Model({"image": image}, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    return model


def learn_shapes(backbone: keras.Model, dataset: Dataset, checkpoints: Path) -> None:
    """Trains a backbone, saving at the end of each epoch; goes on from what was saved."""
    model = with_head(backbone, dataset, "shape")
    train, epoch = restore_training(checkpoints, model, training(dataset, "shape"))
    validation = evaluation(dataset, "shape", "validation")
    model.fit(
        train.as_tf_data(),
        validation_data=validation.as_tf_data(),
        initial_epoch=epoch,
        epochs=8,
        callbacks=[TrainingCheckpoint(train, checkpoints)],
        shuffle=False,
        verbose=2,
    )


def accuracy_of_new_head(backbone: keras.Model, dataset: Dataset) -> float:
    """Trains a head for outlines on a backbone that stays as it is; gives its accuracy on the test split."""
    backbone.trainable = False
    model = with_head(backbone, dataset, "outline")
    model.optimizer.learning_rate = 1e-2
    model.fit(training(dataset, "outline", FEW).as_tf_data(), epochs=20, shuffle=False, verbose=0)
    test = evaluation(dataset, "outline", "test")
    return float(model.evaluate(test.as_tf_data(), verbose=0, return_dict=True)["accuracy"])


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a new head on a backbone that knows images already.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--weights", help="of DenseNet121: `imagenet`, or a file")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    keras.utils.set_random_seed(0)
    if arguments.weights:
        shape = (SIDE, SIDE, 3)
        backbone = keras.applications.DenseNet121(False, arguments.weights, input_shape=shape, pooling="avg")
    else:
        backbone = small_backbone()
        learn_shapes(backbone, dataset, Path(arguments.dataset).absolute().parent / "checkpoints")

    found, untrained = (accuracy_of_new_head(each, dataset) for each in (backbone, small_backbone()))
    print(f"Outlines of the test split told from a tenth of the labels: {found:.3f}")
    print(f"  by a backbone that has learned nothing: {untrained:.3f}; chance: {1 / dataset.num_classes:.3f}")
    if found < 0.7:
        sys.exit(f"train.py: the model did not learn: {found:.3f} is under 0.7")


if __name__ == "__main__":
    main()
