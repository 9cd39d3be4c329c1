"""Trains a ResNet-18 at 224 pixels, and says which share of the time the model waited for its input.

    python benchmarks/reader/resnet.py OUTPUT                                # 4 steps of 16 images on a CPU
    python benchmarks/reader/resnet.py OUTPUT --batch-size 256 --steps 200   # on an accelerator

OUTPUT is a folder of images that `recordmill build` wrote, such as that of `prepare.py images`. The model waits from
the end of a step until the next batch is on its device. It then runs alone on one batch, and the input alone without
the model: the slower is the limit. It needs PyTorch, and this project's folder in `PYTHONPATH`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from settings import SIDE
from torch import Tensor, nn

from recordmill import open_dataset
from recordmill.augment import RandomFlip, RandomResizedCrop

WARM_UP = 2
DRAINED = 100
"""Batches of the input alone; as many are read first, since some were made ahead."""
STAGES = ((64, 64), (64, 128), (128, 256), (256, 512))
"""Channels that come into and go out of each pair of blocks."""


class Block(nn.Module):  # type: ignore[misc]  # where torch is not installed its classes are Any
    """Two convolutions, added to their input (He et al. 2015, figure 2)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Halves the height and width where the channels grow."""
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first = (nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        self.added = nn.Sequential(
            *first, nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        )
        shortcut = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(*(() if stride == 1 else shortcut))

    def forward(self, values: Tensor) -> Tensor:
        """Returns [batch, channels, height, width]."""
        return torch.relu(self.added(values) + self.shortcut(values))


def resnet18(classes: int) -> nn.Module:
    """Returns a ResNet-18, which makes scores [batch, classes] of [batch, 3, height, width]."""
    stem = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [block for inputs, outputs in STAGES for block in (Block(inputs, outputs), Block(outputs, outputs))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def trainer(device: str, classes: int) -> Callable[[Any], None]:
    """Returns a step of training on a batch; it ends when the device has done it."""
    model = resnet18(classes).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step(batch: Any) -> None:
        features, label = batch
        pixels = features["image"].permute(0, 3, 1, 2).float() / 127.5 - 1  # channels last in memory, as the model is
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            loss = nn.functional.cross_entropy(model(pixels), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        finish(device)

    return step


def finish(device: str) -> None:
    """Waits until the device has nothing to do."""
    if device != "cpu":
        torch.accelerator.synchronize()


def measure(batches: Iterator[Any], steps: int, device: str, work: Callable[[Any], None]) -> tuple[float, float]:
    """Returns the seconds of some steps, and those of them in which the device waited for a batch."""
    waited, start = 0.0, time.perf_counter()
    for _ in range(steps):
        begun = time.perf_counter()
        batch = next(batches)
        finish(device)  # the copy of the batch
        waited += time.perf_counter() - begun
        work(batch)
    return time.perf_counter() - start, waited


def main() -> None:
    """Trains, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="the folder that `recordmill build` wrote")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
    dataset = open_dataset(given.output)
    augment = [RandomResizedCrop(SIDE), RandomFlip()]
    train = dataset.training_input(
        batch_size=given.batch_size, epochs=-1, augment=augment, dtype="uint8", label="label", features=["image"]
    )
    batches, step = iter(train.as_torch(device)), trainer(device, dataset.num_classes)
    measure(batches, WARM_UP, device, step)
    both, waited = measure(batches, given.steps, device, step)
    model, _ = measure(iter([next(batches)] * given.steps), given.steps, device, step)
    measure(batches, DRAINED, device, lambda batch: None)
    drained, _ = measure(batches, DRAINED, device, lambda batch: None)
    images = given.steps * given.batch_size
    alone = {"the model": images / model, "the input": DRAINED * given.batch_size / drained}
    print(f"{device}: {images / both:,.1f} images/s, waited for input {waited / both:.1%} of the time")
    print(", ".join(f"{name} alone {rate:,.1f} images/s" for name, rate in alone.items()), end=": ")
    print(f"{min(alone, key=alone.__getitem__)} is the limit")


if __name__ == "__main__":
    main()
