"""Trains a small PyTorch model on the shapes dataset, from both the images and their captions, without TensorFlow.

Prints the accuracy on the test split, which training never saw, beside chance. Exits with 1 where the model did not
learn: under three times chance.

    python examples/frameworks/train_pytorch.py demo/shapes
"""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from recordmill import open_dataset
from recordmill.augment import RandomFlip

BATCH_ROWS = 32
LEARNING_RATE = 4e-3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class ShapeFinder(nn.Module):  # type: ignore[misc]  # where torch is not installed its classes are Any
    """Joins a small convolutional net of the image with a bag of the caption's words."""

    def __init__(self, words: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for seen, filters in ((3, 8), (8, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(seen, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.image = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.text = nn.EmbeddingBag(words, 16, mode="mean", padding_idx=0)
        self.scores = nn.Sequential(nn.Linear(64 + 16, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        """Returns each class' score, [batch, classes], of pixels [batch, height, width, 3] and ids [batch, length]."""
        channels_first = image.permute(0, 3, 1, 2)  # PyTorch's order of axes; the memory stays as it is, channels last
        return self.scores(torch.cat([self.image(channels_first), self.text(text)], dim=1))


def accuracy(model: nn.Module, batches: Iterable[Any]) -> float:
    """Returns the share of rows whose class the model finds, 0..1."""
    model.eval()
    with torch.inference_mode():
        found = [model(features["image"], features["text"]).argmax(1) == label for features, label in batches]
    return float(torch.cat(found).float().mean())


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description="Trains a small PyTorch model on the shapes dataset.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    torch.manual_seed(0)

    train = dataset.training_input(
        "train", batch_size=BATCH_ROWS, seed=1, augment=[RandomFlip()], features=["image", "text"]
    )
    model = ShapeFinder(dataset.vocabulary_size("text"), dataset.num_classes).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    steps = max(1, arguments.epochs * train.batches_per_epoch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for epoch in range(arguments.epochs):
        model.train()
        for features, label in train.as_torch(DEVICE):  # each iteration is the next epoch
            loss = nn.functional.cross_entropy(model(features["image"], features["text"]), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        validation = dataset.evaluation_input("validation", batch_size=BATCH_ROWS)
        print(f"Epoch {epoch + 1}: validation accuracy {accuracy(model, validation.as_torch(DEVICE)):.3f}", flush=True)

    found = accuracy(model, dataset.evaluation_input("test", batch_size=BATCH_ROWS).as_torch(DEVICE))
    chance = 1 / dataset.num_classes
    print(f"Accuracy on the test split: {found:.3f}; chance: {chance:.3f}")
    if found < 3 * chance:
        sys.exit(f"train_pytorch.py: the model did not learn: {found:.3f} is under three times chance")


if __name__ == "__main__":
    main()
