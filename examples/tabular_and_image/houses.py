"""What is stored beside the spec's features: `preprocessing: houses:preprocessing_fn`."""

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Adds the area of a room, as a share of the largest; 0 where the number of rooms is not known."""
    known = inputs["rooms"] > 0  # what a row lacks is NaN here, and NaN is not above 0
    area = tf.where(known, inputs["area"] / tf.where(known, inputs["rooms"], 1.0), 0.0)
    return outputs | {"room_area": area / tft.max(area)}
