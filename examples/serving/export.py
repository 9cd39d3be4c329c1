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


def train(dataset: Dataset, epochs: int) -> keras.Model:
    """Gives a model from images, as the dataset's reader gives them, to a logit for each class."""
    batches = dataset.training_input("train", batch_size=32, seed=1, features=["image"])
    image = seen = keras.Input(batches.element_spec[0]["image"].shape[1:], name="image")
    for filters in (16, 32, 64):
        seen = layers.Conv2D(filters, 3, padding="same", use_bias=False)(seen)
        seen = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(seen)))
    logits = layers.Dense(dataset.num_classes)(layers.GlobalMaxPooling2D()(seen))
    model = keras.Model({"image": image}, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(4e-3), loss, metrics=["accuracy"])
    model.fit(batches.as_tf_data(), epochs=epochs, shuffle=False, verbose=2)
    return model


def main() -> None:
    """Trains, joins and saves."""
    parser = argparse.ArgumentParser(description="Saves a model that takes photos and gives the names of classes.")
    parser.add_argument("dataset", help="the folder that `recordmill build --output` wrote")
    parser.add_argument("folder", help="the folder of the model: models/NAME/VERSION")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.dataset)
    model = train(dataset, arguments.epochs)
    servable(model, dataset, activation="softmax", top=3).save(arguments.folder)
    print(f"Saved in {arguments.folder}: photos in, the three best classes out")


if __name__ == "__main__":
    main()
