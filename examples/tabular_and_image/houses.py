"""What the spec's own function stores beside the features: `preprocessing: houses:preprocessing_fn`."""

from typing import Any

import tensorflow as tf


def preprocessing_fn(inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Adds the area of a room; 0 where the number of rooms is not known, or is none."""
    known = inputs["rooms"] > 0  # an unknown number is NaN, and NaN is not above 0
    outputs["room_area"] = tf.where(known, inputs["area"] / tf.where(known, inputs["rooms"], 1.0), 0.0)
    return outputs
