"""The contract of both engines: stored parts, options, augmentations. No TensorFlow, no pixels."""
