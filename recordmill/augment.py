"""Augmentations of images, and mixtures of batches, for an input's option `augment`.

>>> from recordmill.augment import RandomFlip, RandomResizedCrop
>>> train = dataset.training_input(augment=[RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
"""

from recordmill.transforms.contract.augment import (
    Augmentation,
    CenterCrop,
    ColorJitter,
    Mask,
    RandomCrop,
    RandomCutout,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation90,
    Resize,
)
from recordmill.transforms.numpy.augment import apply
from recordmill.transforms.numpy.augment_batches import BatchAugmentation, CutMix, MixUp

__all__ = [
    "Augmentation",
    "BatchAugmentation",
    "CenterCrop",
    "ColorJitter",
    "CutMix",
    "Mask",
    "MixUp",
    "RandomCrop",
    "RandomCutout",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomRotation90",
    "Resize",
    "apply",
]
