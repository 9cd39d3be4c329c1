"""Trains a small U-Net: which class has each pixel?

    python examples/segmentation/train.py demo/segmentation/out

It begins with any dataset that has an `image` of one size, and a mask as its label. It fails if the mean intersection
over union is below `--least`, which is for the example's own data.
"""

import argparse
import contextlib
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # keeps what TensorFlow prints as it loads off the screen
    import keras
    from keras import layers

    from recordmill import open_dataset
    from recordmill.augment import RandomFlip

EPOCHS = 6


def block(filters: int, given: Any) -> Any:
    """Applies a convolution, normalized."""
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Conv2D(filters, 3, padding="same")(given)))


def build_model(shape: list[int], classes: int, ignore: int | None) -> keras.Model:
    """Takes images; gives the scores of each pixel's classes."""
    image = keras.Input(shape, name="image")
    fine = block(16, image)
    middle = block(32, layers.MaxPooling2D()(fine))
    coarse = block(64, layers.MaxPooling2D()(middle))
    middle = block(32, layers.concatenate([middle, layers.UpSampling2D()(coarse)]))
    scores = layers.Conv2D(classes, 1)(block(16, layers.concatenate([fine, layers.UpSampling2D()(middle)])))
    model = keras.Model(image, scores)
    model.compile(
        keras.optimizers.Adam(5e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignore),
        metrics=[keras.metrics.MeanIoU(classes, name="iou", ignore_class=ignore, sparse_y_pred=False)],
    )
    return model


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small U-Net.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--split", default="test", help="the split that it is evaluated on")
    parser.add_argument("--least", type=float, default=0.6, help="the overlap to reach; 0 for other data")
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    mask = dataset.features[str(dataset.label)]
    keras.utils.set_random_seed(0)
    # The mask is flipped with its image.
    train = dataset.training_input("train", batch_size=16, seed=1, features=["image"], augment=[RandomFlip()])
    test = dataset.evaluation_input(arguments.split, batch_size=64, features=["image"])
    values = 1 + max(map(int, mask["classes"]))
    model = build_model(list(train.element_spec[0]["image"].shape[1:]), values, mask.get("ignore"))
    model.fit(train.as_tf_data(model), epochs=EPOCHS, shuffle=False, verbose=2)
    overlap = model.evaluate(test.as_tf_data(model), verbose=0, return_dict=True)["iou"]
    print(f"Mean intersection over union on the {arguments.split} split: {overlap:.3f}")
    if overlap < arguments.least:
        sys.exit(f"The model did not learn: {overlap:.3f} is below {arguments.least}")


if __name__ == "__main__":
    main()
