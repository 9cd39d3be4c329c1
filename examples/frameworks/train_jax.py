"""Trains a small JAX model on the shapes dataset, from both the images and their captions, without TensorFlow.

Prints the accuracy on the test split, which training never saw, beside chance. Exits with 1 where the model did not
learn: under three times chance. Plain JAX, with Adam (Kingma and Ba, 2015) written out: no other package is needed.

    python examples/frameworks/train_jax.py demo/shapes
"""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from recordmill import open_dataset
from recordmill.augment import RandomFlip

BATCH_ROWS = 32
LEARNING_RATE = 4e-3
FILTERS = (3, 8, 16, 32, 64)
WORD_WIDTH = 16
Weights = dict[str, Array]
Moments = tuple[Weights, Weights]


def new_weights(words: int, classes: int) -> Weights:
    """Draws the weights (He et al., 2015) of a convolutional net of the image, a bag of words, and what joins them."""
    shapes: dict[str, tuple[int, ...]] = {}
    shapes |= {f"filters{place}": (3, 3, *FILTERS[place : place + 2]) for place in range(len(FILTERS) - 1)}
    shapes |= {"joined": (FILTERS[-1] + WORD_WIDTH, 64), "scores": (64, classes)}
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    draw = jax.nn.initializers.he_normal()
    weights = {name: draw(key, shape) for key, (name, shape) in zip(keys[1:], shapes.items(), strict=True)}
    return weights | {"words": jax.random.normal(keys[0], (words, WORD_WIDTH))}


def scores(weights: Weights, image: Array, text: Array) -> Array:
    """Returns each class' score, [batch, classes], of pixels [batch, height, width, 3] and word ids [batch, length]."""
    for place in range(len(FILTERS) - 1):
        axes = ("NHWC", "HWIO", "NHWC")
        image = jax.lax.conv_general_dilated(image, weights[f"filters{place}"], (1, 1), "SAME", dimension_numbers=axes)
        image = jax.nn.relu(jax.nn.standardize(image, axis=(1, 2)))
        image = jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    there = (text != 0)[..., None]
    read = (weights["words"][text] * there).sum(1) / jnp.maximum(there.sum(1), 1)
    joined = jnp.concatenate([image.max((1, 2)), read], axis=1)
    return jax.nn.relu(joined @ weights["joined"]) @ weights["scores"]


def loss(weights: Weights, image: Array, text: Array, label: Array) -> Array:
    """Returns the mean cross entropy of a batch."""
    likelihoods = jax.nn.log_softmax(scores(weights, image, text))
    return -jnp.take_along_axis(likelihoods, label[:, None], axis=1).mean()


def updated(
    weights: Weights, moments: Moments, step: Array, rate: Array, image: Array, text: Array, label: Array
) -> tuple[Weights, Moments]:
    """Returns the weights, and Adam's two moments, after a batch; `step` counts from 1."""
    slope = jax.grad(loss)(weights, image, text, label)
    first = jax.tree.map(lambda mean, new: 0.9 * mean + 0.1 * new, moments[0], slope)
    second = jax.tree.map(lambda mean, new: 0.999 * mean + 0.001 * new**2, moments[1], slope)
    rate = rate * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    change = jax.tree.map(lambda mean, square: rate * mean / (jnp.sqrt(square) + 1e-8), first, second)
    return jax.tree.map(jnp.subtract, weights, change), (first, second)


def right(weights: Weights, image: Array, text: Array, label: Array) -> Array:
    """Counts the rows whose class the model finds."""
    return (scores(weights, image, text).argmax(1) == label).sum()


def accuracy(weights: Weights, batches: Iterable[Any]) -> float:
    """Returns the share of rows whose class the model finds, 0..1."""
    count = jax.jit(right)
    counts = [
        (int(count(weights, features["image"], features["text"], label)), len(label)) for features, label in batches
    ]
    found, rows = map(sum, zip(*counts, strict=True))
    return found / rows


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small JAX model on the shapes dataset.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)

    train = dataset.training_input(
        "train", batch_size=BATCH_ROWS, seed=1, augment=[RandomFlip()], features=["image", "text"]
    )
    weights = new_weights(dataset.vocabulary_size("text"), dataset.num_classes)
    moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
    train_step = jax.jit(updated)
    steps, step = arguments.epochs * train.batches_per_epoch, 0
    for epoch in range(arguments.epochs):
        for features, label in train.as_jax():  # each iteration is the next epoch
            rate = LEARNING_RATE * (1 - step / steps)
            step += 1
            weights, moments = train_step(weights, moments, step, rate, features["image"], features["text"], label)
        validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS)
        print(f"Epoch {epoch + 1}: validation accuracy {accuracy(weights, validation.as_jax()):.3f}", flush=True)

    found = accuracy(weights, dataset.evaluation_input("test", batch_size=BATCH_ROWS).as_jax())
    chance = 1 / dataset.num_classes
    print(f"Accuracy on the test split: {found:.3f}; chance: {chance:.3f}")
    if found < 3 * chance:
        sys.exit(f"train_jax.py: the model did not learn: {found:.3f} is under three times chance")


if __name__ == "__main__":
    main()
