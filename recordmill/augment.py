"""Augmentations of images, and mixtures of batches, for an input's option `augment`.

>>> from recordmill.augment import RandomFlip, RandomResizedCrop
>>> train = dataset.training_input(augment=[RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
"""

# isort: off
from recordmill.transforms.images.augment.affine import RandomAffine, RandomRotation
from recordmill.transforms.images.augment.base import Augmentation
from recordmill.transforms.images.augment.chain import Mask, RandomApply, Views, apply
from recordmill.transforms.images.augment.colors import AutoContrast, ColorJitter, Equalize, Grayscale, Invert
from recordmill.transforms.images.augment.colors import GaussianBlur, Posterize, RandomSharpness, Solarize
from recordmill.transforms.images.augment.movements import CenterCrop, RandomCrop, RandomFlip, RandomResizedCrop
from recordmill.transforms.images.augment.movements import RandomRotation90, Resize
from recordmill.transforms.images.augment.policies import RandAugment, TrivialAugmentWide
from recordmill.transforms.images.augment.regularization import BatchAugmentation, CutMix, MixUp, RandomCutout
from recordmill.transforms.images.augment.regularization import RandomErasing

__all__ = [
    "Augmentation", "AutoContrast", "BatchAugmentation", "CenterCrop", "ColorJitter", "CutMix", "Equalize",
    "GaussianBlur", "Grayscale", "Invert", "Mask", "MixUp", "Posterize", "RandAugment", "RandomAffine", "RandomApply",
    "RandomCrop", "RandomCutout", "RandomErasing", "RandomFlip", "RandomResizedCrop", "RandomRotation",
    "RandomRotation90", "RandomSharpness", "Resize", "Solarize", "TrivialAugmentWide", "Views", "apply",
]  # fmt: skip
