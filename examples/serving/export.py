"""Trains a small model on the images of the shapes dataset, and saves it with the dataset's transform, to be served.

make demo                                                       # generates and builds demo/shapes
python examples/serving/export.py demo/shapes demo/models/shapes/1
python examples/serving/server.py demo/models                   # in another terminal
python examples/serving/client.py demo/data/images/*.png        # or: tensorflow_model_server --rest_api_port=8501 …
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from keras import layers

from recordmill import Dataset, open_dataset
from recordmill.keras import servable


def train(dataset: Dataset, epochs: int, folder: str) -> None:
    """Trains a model from images to a logit for each class, and saves what is served."""
    batches = dataset.training_input("train", batch_size=32, seed=1, features=["image"])
    image = seen = keras.Input(batches.element_spec[0]["image"].shape[1:], name="image")
    for filters in (16, 32, 64):
        seen = layers.Conv2D(filters, 3, padding="same", use_bias=False)(seen)
        seen = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen)))
    logits = layers.Dense(dataset.num_classes)(layers.GlobalMaxPooling2D()(seen))
    model = keras.Model(image, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(4e-3), loss, metrics=["accuracy"])
    served = servable(model, batches, activation="softmax", top=3)
    model.fit(batches.as_tf_data(model), epochs=epochs, shuffle=False, verbose=2)
    served.save(folder)


def main() -> None:
    """Trains, joins and saves."""
    parser = argparse.ArgumentParser(description="Saves a model that takes photos and gives the names of classes.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("folder", help="the folder of the model: models/NAME/VERSION")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    train(open_dataset(arguments.dataset), arguments.epochs, arguments.folder)
    print(f"Saved in {arguments.folder}: photos in, the three best classes out")


if __name__ == "__main__":
    main()
