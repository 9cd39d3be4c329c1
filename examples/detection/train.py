"""Trains a small detector: each cell of a grid says which object is centred there, and where its box lies.

    python examples/detection/train.py demo/detection/out

It begins with any dataset that has the features `image`, `boxes` and `categories`; the model sees images as 64 by 64
pixels. It fails if it finds fewer objects than `--least` says, which is for the example's own data.
"""

import argparse
import contextlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with contextlib.ExitStack() as screen:
    screen.callback(os.dup2, os.dup(2), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # keeps what TensorFlow prints as it loads off the screen
    import keras
    import tensorflow as tf
    from keras import layers

    from recordmill import open_dataset

GRID = 8  # cells a side
EPOCHS = 7
Features = dict[str, tf.Tensor]


def build_model(shape: list[int], categories: int, steps: int) -> keras.Model:
    """Takes images; gives for each cell the scores of the categories (0: none) and a box in cells from its centre."""
    image = keras.Input(shape)
    seen = layers.Resizing(8 * GRID, 8 * GRID)(image)  # boxes are relative to the image, whatever its size
    for filters, stride in ((16, 2), (32, 2), (64, 2), (64, 1)):
        seen = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(seen)
        seen = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen))
    outputs = {"category": layers.Conv2D(categories, 1)(seen), "box": layers.Conv2D(4, 1)(seen)}
    model = keras.Model(image, outputs)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, steps)),
        loss={"category": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "box": "mae"},
        loss_weights={"category": 1, "box": 10},
    )
    return model


def centres() -> tf.Tensor:
    """The cells' centres as boxes without area: float32 [GRID, GRID, 4], y, x, y, x in cells."""
    y, x = tf.meshgrid(tf.range(GRID), tf.range(GRID), indexing="ij")
    return tf.cast(tf.stack([y, x, y, x], -1), tf.float32) + 0.5


def targets(features: Features) -> tuple[tf.Tensor, Features, Features]:
    """Gives what each cell should say and how much it counts: most cells have no object, and then no box."""
    boxes, categories = features["boxes"] * GRID, features["categories"]  # padded with zeros to the same length
    cells = tf.floor((boxes[..., :2] + boxes[..., 2:]) / 2) + 0.5  # the centre of the cell that a box is centred in
    inside = tf.reduce_all(cells[:, None, None] == centres()[:, :, None, :2], -1) & (categories > 0)[:, None, None]
    which = tf.argmax(tf.cast(inside, tf.int64), -1)  # [batch, GRID, GRID]: which of the image's objects
    there = tf.cast(tf.reduce_any(inside, -1), tf.float32)
    category = tf.gather(categories, which, batch_dims=1) * tf.cast(there, tf.int64)
    box = tf.gather(boxes, which, batch_dims=1) - centres()
    return features["image"], {"category": category, "box": box}, {"category": 1 + 3 * there, "box": there}


def overlaps(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Intersection over union of boxes, [batch, n, 4] and [batch, m, 4]: [batch, n, m], 0..1."""
    one, other = one[:, :, None], other[:, None]
    common = tf.maximum(tf.minimum(one[..., 2:], other[..., 2:]) - tf.maximum(one[..., :2], other[..., :2]), 0)
    areas = [tf.reduce_prod(tf.maximum(box[..., 2:] - box[..., :2], 0), -1) for box in (one, other)]
    intersection = tf.reduce_prod(common, -1)
    return intersection / (areas[0] + areas[1] - intersection)


def evaluate(model: keras.Model, batches: tf.data.Dataset) -> tuple[int, int, int]:
    """Counts objects, boxes that the model claims, and objects that one of these finds: category and overlap fit."""
    objects = claimed = found = 0
    for features in batches:
        said = model(features["image"])
        rows = len(features["image"])
        boxes = tf.reshape(said["box"] + centres(), [rows, -1, 4]) / GRID
        categories = tf.reshape(tf.argmax(said["category"], -1), [rows, -1])
        same = features["categories"][:, :, None] == categories[:, None]
        hit = same & (overlaps(features["boxes"], boxes) >= 0.5)
        objects += int(tf.reduce_sum(features["boxes_length"]))
        claimed += int(tf.math.count_nonzero(categories))
        found += int(tf.math.count_nonzero(tf.reduce_any(hit, -1)))
    return objects, claimed, found


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small detector.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--split", default="test", help="the split that it is evaluated on")
    parser.add_argument("--least", type=float, default=0.5, help="the share of objects to find; 0 for other data")
    arguments = parser.parse_args()
    dataset, split = open_dataset(arguments.dataset), arguments.split
    keras.utils.set_random_seed(0)
    train = dataset.training_input("train", batch_size=min(16, dataset.splits["train"]), seed=1)
    steps = train.batches_per_epoch * EPOCHS
    model = build_model(dataset.features["image"]["shape"], dataset.vocabulary_size("categories"), steps)
    model.fit(train.as_tf_data().map(targets), epochs=EPOCHS, shuffle=False, verbose=2)

    objects, claimed, found = evaluate(model, dataset.evaluation_input(split, batch_size=32).as_tf_data())
    print(f"Objects of the {split} split found, with their category: {found / max(1, objects):.3f}")
    print(f"  {objects} objects, {claimed} boxes claimed; one is found by an overlap of half or more")
    if found < arguments.least * objects:
        sys.exit(f"train.py: the model did not learn: it should find {arguments.least:.0%} of the objects")


if __name__ == "__main__":
    main()
