"""What both engines agree on: stored parts, options, augmentations. No TensorFlow, no pixels."""
