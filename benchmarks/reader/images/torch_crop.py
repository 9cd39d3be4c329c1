"""torchvision's random resized crop, as its recipes write it, for a PIL image or a tensor."""

import torch
from settings import MEAN, SIDE, STD
from torchvision.transforms import v2


def random_crop(dtype: str) -> v2.Transform:
    """Gives the transform: to uint8 [3, 224, 224], or float32 normalized as for ImageNet."""
    steps = [v2.ToImage(), v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()]
    if dtype != "uint8":
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose([*steps, v2.ToPureTensor()])
