"""Augmentations of images, and mixtures of batches, for an input's option `augment`.

>>> from recordmill.augment import RandomFlip, RandomResizedCrop
>>> train = dataset.training_input(augment=[RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
"""

from recordmill.transforms.numpy.augment.affine import RandomAffine, RandomRotation
from recordmill.transforms.numpy.augment.base import Augmentation
from recordmill.transforms.numpy.augment.chain import Mask, apply
from recordmill.transforms.numpy.augment.colors import ColorJitter, Grayscale
from recordmill.transforms.numpy.augment.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from recordmill.transforms.numpy.augment.cutout import RandomCutout, RandomErasing
from recordmill.transforms.numpy.augment.filters import GaussianBlur, RandomSharpness
from recordmill.transforms.numpy.augment.flips import RandomFlip, RandomRotation90
from recordmill.transforms.numpy.augment.groups import RandomApply, Views
from recordmill.transforms.numpy.augment.levels import AutoContrast, Equalize, Invert, Posterize, Solarize
from recordmill.transforms.numpy.augment.mixtures import BatchAugmentation, CutMix, MixUp
from recordmill.transforms.numpy.augment.policies import RandAugment, TrivialAugmentWide

__all__ = [
    "Augmentation",
    "AutoContrast",
    "BatchAugmentation",
    "CenterCrop",
    "ColorJitter",
    "CutMix",
    "Equalize",
    "GaussianBlur",
    "Grayscale",
    "Invert",
    "Mask",
    "MixUp",
    "Posterize",
    "RandAugment",
    "RandomAffine",
    "RandomApply",
    "RandomCrop",
    "RandomCutout",
    "RandomErasing",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomRotation90",
    "RandomSharpness",
    "Resize",
    "Solarize",
    "TrivialAugmentWide",
    "Views",
    "apply",
]
