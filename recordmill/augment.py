"""Augmentations of images, and mixtures of batches, for an input's option `augment`.

>>> from recordmill.augment import RandomFlip, RandomResizedCrop
>>> train = dataset.training_input(augment=[RandomResizedCrop(224), RandomFlip()])  # doctest: +SKIP
"""

from recordmill.transforms.numpy.augment.affine import RandomAffine as RandomAffine
from recordmill.transforms.numpy.augment.affine import RandomRotation as RandomRotation
from recordmill.transforms.numpy.augment.base import Augmentation as Augmentation
from recordmill.transforms.numpy.augment.chain import Mask as Mask
from recordmill.transforms.numpy.augment.chain import RandomApply as RandomApply
from recordmill.transforms.numpy.augment.chain import Views as Views
from recordmill.transforms.numpy.augment.chain import apply as apply
from recordmill.transforms.numpy.augment.colors import AutoContrast as AutoContrast
from recordmill.transforms.numpy.augment.colors import ColorJitter as ColorJitter
from recordmill.transforms.numpy.augment.colors import Equalize as Equalize
from recordmill.transforms.numpy.augment.colors import Grayscale as Grayscale
from recordmill.transforms.numpy.augment.colors import Invert as Invert
from recordmill.transforms.numpy.augment.colors import Posterize as Posterize
from recordmill.transforms.numpy.augment.colors import Solarize as Solarize
from recordmill.transforms.numpy.augment.filters import GaussianBlur as GaussianBlur
from recordmill.transforms.numpy.augment.filters import RandomSharpness as RandomSharpness
from recordmill.transforms.numpy.augment.movements import CenterCrop as CenterCrop
from recordmill.transforms.numpy.augment.movements import RandomCrop as RandomCrop
from recordmill.transforms.numpy.augment.movements import RandomFlip as RandomFlip
from recordmill.transforms.numpy.augment.movements import RandomResizedCrop as RandomResizedCrop
from recordmill.transforms.numpy.augment.movements import RandomRotation90 as RandomRotation90
from recordmill.transforms.numpy.augment.movements import Resize as Resize
from recordmill.transforms.numpy.augment.policies import RandAugment as RandAugment
from recordmill.transforms.numpy.augment.policies import TrivialAugmentWide as TrivialAugmentWide
from recordmill.transforms.numpy.augment.regularization import BatchAugmentation as BatchAugmentation
from recordmill.transforms.numpy.augment.regularization import CutMix as CutMix
from recordmill.transforms.numpy.augment.regularization import MixUp as MixUp
from recordmill.transforms.numpy.augment.regularization import RandomCutout as RandomCutout
from recordmill.transforms.numpy.augment.regularization import RandomErasing as RandomErasing
