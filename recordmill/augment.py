"""Augmentations of images, and mixtures of batches, for an input's option `augment`.

>>> from recordmill.augment import RandomFlip, RandomResizedCrop
>>> train = dataset.training_input(augment=[RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
"""

from recordmill.transforms.numpy.augment.base import Augmentation
from recordmill.transforms.numpy.augment.chain import Mask, apply
from recordmill.transforms.numpy.augment.colors import ColorJitter
from recordmill.transforms.numpy.augment.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from recordmill.transforms.numpy.augment.cutout import RandomCutout
from recordmill.transforms.numpy.augment.flips import RandomFlip, RandomRotation90
from recordmill.transforms.numpy.augment.mixtures import BatchAugmentation, CutMix, MixUp

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
