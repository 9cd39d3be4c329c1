"""Programs for an interpreter with PyTorch, JAX and Keras and without TensorFlow; each prints a line of JSON.

`python tests/in_frameworks.py torch_bits demo/shapes`; `tests/test_frameworks.py` runs them.
"""

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from recordmill import Input, open_dataset, open_tfrecords
from recordmill.augment import RandomFlip
from recordmill.keras import TrainingCheckpoint, restore_training
from recordmill.pipeline.errors import DatasetError
from tests.in_reader import digests, leaves
from tests.tfrecords import write

ROWS, STEPS = 32, 40


def train_input(path: str, **options: Any) -> Input:
    """Opens the training input of all programs."""
    given = {"batch_size": ROWS, "seed": 1, "features": ["image", "text"], **options}
    return open_dataset(path).training_input("train", augment=[RandomFlip()], **given)


def torch_bits(path: str) -> Any:
    """Compares tensors with arrays over two epochs, and what a state goes on with."""
    from torch.utils.data import DataLoader

    wanted = [digests(epoch) for epoch in two_epochs(train_input(path).as_numpy)]
    loader = DataLoader(train_input(path).as_torch(), batch_size=None, num_workers=0)
    seen = [digests(epoch) for epoch in two_epochs(loader.__iter__)]
    batches = train_input(path).as_torch("cpu")
    iteration = iter(batches)
    begun = digests(next(iteration) for _ in range(5))
    again = train_input(path).as_torch()
    again.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    with_keys = next(iter(train_input(path, with_key=True, dtype="bfloat16").as_torch()))[0]
    return {
        "equal": seen == wanted,
        "resumed": [*begun, *digests(again)] == wanted[0],
        "length": len(again) == len(wanted[0]),
        "refused": refused(lambda: list(DataLoader(train_input(path).as_torch(), batch_size=None, num_workers=1))),
        "types": [type(with_keys["key"]).__name__, str(with_keys["image"].dtype)],
    }


def jax_bits(path: str) -> Any:
    """Compares JAX arrays with NumPy's over two epochs, and what a state goes on with."""
    import jax

    jax.config.update("jax_enable_x64", True)
    wanted = [digests(epoch) for epoch in two_epochs(train_input(path).as_numpy)]
    seen = [digests(epoch) for epoch in two_epochs(train_input(path).as_jax().__iter__)]
    batches = train_input(path).as_jax()
    begun = digests(batch for _, batch in zip(range(5), batches, strict=False))
    again = train_input(path).as_jax()
    again.load_state_dict(batches.state_dict() | {"step": 5})
    return {"equal": seen == wanted, "resumed": [*begun, *digests(again)] == wanted[0]}


def whole_numbers(folder: str) -> Any:
    """Reads ids beyond int32 as JAX arrays, with and without its 64 bits."""
    import jax

    files = write(Path(folder, "train.tfrecord"), [{"user": 3_000_000_000 + row} for row in range(8)])
    train = open_tfrecords(files, index=Path(folder, "out")).training_input("train", batch_size=4, shuffle="none")
    found = {name: refused(lambda name=name: next(iter(getattr(train, name)()))) for name in ("as_jax", "as_keras")}
    jax.config.update("jax_enable_x64", True)
    return found | {"wide": np.asarray(next(iter(train.as_jax()))["user"]).tolist()}


def jax_processes(path: str, index: str, count: str, port: str) -> Any:
    """Digests this process' part of each global batch of one epoch, made by several processes."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(index))
    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    hosts = {"host_index": jax.process_index(), "host_count": jax.process_count()}
    batches = train_input(path, batch_size=ROWS // int(count), text_length=16, **hosts).as_jax(sharding)
    parts = []
    for features, label in batches:
        assert label.shape == (ROWS,), label.shape
        local = [np.asarray(array.addressable_shards[0].data) for array in (features["image"], features["text"], label)]
        parts.append([hashlib.sha256(each.tobytes()).hexdigest() for each in local])
    return parts


def jax_whole(path: str, count: str) -> Any:
    """Digests the same parts of the global batches of one process."""
    rows = np.arange(ROWS).reshape(int(count), -1)
    batches = list(train_input(path, text_length=16).as_numpy())
    return [
        [
            [hashlib.sha256(np.asarray(array)[part].tobytes()).hexdigest() for array in (*leaves(features), label)]
            for features, label in batches
        ]
        for part in rows
    ]


def keras_bits(path: str) -> Any:
    """Compares the weights after `fit` over `as_keras` with those after the batches of `as_numpy`, one by one."""
    fitted = keras_model(path)
    fitted.fit(train_input(path).as_keras(fitted), epochs=2, shuffle=False, verbose=0)
    looped, train = keras_model(path), train_input(path)
    for _ in range(2):
        for features, label in train.as_numpy():
            looped.train_on_batch(features, label)
    pairs = zip(fitted.get_weights(), looped.get_weights(), strict=True)
    return {
        "equal": all(np.array_equal(*pair) for pair in pairs),
        "refused": refused(lambda: keras_model(path).fit(train_input(path).as_keras(), verbose=0)),
        "strings": refused(lambda: train_input(path, with_key=True).as_keras()),
    }


def keras_resumed(path: str, folder: str) -> Any:
    """Compares the weights of a `fit` of three epochs with those of one that ends in each epoch and goes on."""
    whole = keras_model(path)
    whole.fit(train_input(path).as_keras(), epochs=3, shuffle=False, verbose=0)
    for dies_after in (9, 31, None):
        model = keras_model(path)
        train, epoch = restore_training(folder, model, train_input(path))
        callbacks = [TrainingCheckpoint(train, folder, every_steps=4),
            *([] if dies_after is None else [Dies(dies_after)])]  # fmt: skip
        given = {"shuffle": False, "verbose": 0, "callbacks": callbacks}
        with suppress(KeyboardInterrupt):
            model.fit(train.as_keras(), initial_epoch=epoch, epochs=epoch + 1, **given)  # the rest of an epoch
            model.fit(train.as_keras(), initial_epoch=epoch + 1, epochs=3, **given)
    pairs = zip(whole.get_weights(), model.get_weights(), strict=True)
    return {"equal": all(np.array_equal(*pair) for pair in pairs)}


class Dies(keras.callbacks.Callback):
    """Ends a training after some steps of it."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts."""
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def keras_model(path: str) -> Any:
    """Makes a small model of both features, always with the same weights."""
    keras.utils.set_random_seed(3)
    dataset = open_dataset(path)
    image = keras.Input((64, 64, 3), name="image")
    text = keras.Input((None,), name="text", dtype="int64")
    seen = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3, strides=4, activation="relu")(image))
    words = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(dataset.vocabulary_size("text"), 4)(text))
    joined = keras.layers.Concatenate()([seen, words])
    model = keras.Model([image, text], keras.layers.Dense(dataset.num_classes, activation="softmax")(joined))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


def torch_weights(path: str, checkpoint: str, dies_after: str) -> Any:
    """Trains for `STEPS` steps, saving each tenth; dies after some of them; digests the weights."""
    import torch

    model, optimizer = torch_model()
    batches, step = train_input(path, epochs=-1).as_torch(), 0
    if Path(checkpoint).exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.load_state_dict(saved["input"])
        step = saved["input"]["step"]
    for step, (features, label) in enumerate(batches, step + 1):  # noqa: B020 - goes on from where it was
        learn(model, optimizer, features, label)
        if step % 10 == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "input": batches.state_dict()}
            torch.save(saved, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        if step == int(dies_after):
            os._exit(9)
        if step == STEPS:
            break
    return digest_of_weights(model)


def accelerate_weights(path: str, checkpoint: str, dies_after: str) -> Any:
    """Does so with Accelerate, which saves the input's position with the model."""
    sys.modules.pop("yaml")  # Accelerate itself reads YAML
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    hosts = {"host_index": accelerator.process_index, "host_count": accelerator.num_processes}
    batches = train_input(path, epochs=-1, **hosts).as_torch(accelerator.device)
    model, optimizer = accelerator.prepare(*torch_model())
    accelerator.register_for_checkpointing(batches)
    if Path(checkpoint).exists():
        accelerator.load_state(checkpoint)
    for step, (features, label) in enumerate(batches, batches.state_dict()["step"] + 1):
        learn(model, optimizer, features, label, accelerator.backward)
        if step % 10 == 0:
            accelerator.save_state(checkpoint)
        if step == int(dies_after):
            os._exit(9)
        if step == STEPS:
            break
    return digest_of_weights(model)


def lightning_weights(path: str, checkpoint: str, dies_after: str) -> Any:
    """Does so with Lightning, whose trainer saves the input's position in each checkpoint."""
    sys.modules.pop("yaml")  # Lightning itself reads YAML
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.optimizer = torch_model()

        def training_step(self, batch: Any, index: int) -> Any:
            features, label = batch
            return torch.nn.functional.cross_entropy(self.model(features["image"]), label)

        def configure_optimizers(self) -> Any:
            return self.optimizer

    class Dies(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == int(dies_after):
                os._exit(9)

    saves = lightning.pytorch.callbacks.ModelCheckpoint(
        checkpoint, "last", every_n_train_steps=10, save_on_train_epoch_end=False, enable_version_counter=False
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=STEPS, callbacks=[saves, Dies()], use_distributed_sampler=False, **quiet
    )
    module, saved = Module(), Path(checkpoint) / "last.ckpt"
    trainer.fit(module, train_input(path).as_torch(), ckpt_path=saved if saved.exists() else None)
    return digest_of_weights(module.model)


def torch_model() -> Any:
    """Makes a small model and its optimizer, always with the same weights."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64 * 3, 6))
    return model, torch.optim.Adam(model.parameters(), 1e-3)


def learn(model: Any, optimizer: Any, features: Any, label: Any, backward: Any = None) -> None:
    """Takes one step."""
    import torch

    loss = torch.nn.functional.cross_entropy(model(features["image"]), label)
    optimizer.zero_grad()
    backward(loss) if backward else loss.backward()
    optimizer.step()


def digest_of_weights(model: Any) -> str:
    """Digests a model's weights."""
    return hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())).hexdigest()


def grain_rows(path: str) -> Any:
    """Compares rows that Grain and a sampler of PyTorch ask for with those of the evaluation input."""
    import grain
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

    rows = open_dataset(path).source("validation", features=["image"])
    batches = open_dataset(path).evaluation_input("validation", batch_size=7, features=["image"]).as_numpy()
    wanted = [
        digests([(image, label)])
        for features, labels in batches
        for image, label in zip(features["image"], labels, strict=True)
    ]
    by_grain = [digests([row]) for row in grain.MapDataset.source(rows)]
    sampler = BatchSampler(SequentialSampler(rows), 7, drop_last=False)
    loader = DataLoader(rows, batch_sampler=sampler, num_workers=1, collate_fn=list)
    by_torch = [digests([row]) for batch in loader for row in batch]
    return {"grain": by_grain == wanted, "torch": by_torch == wanted}


def values(path: str, framework: str, to: str) -> Any:
    """Writes all rows as `as_torch` or `as_jax` gives them, by key, as a pickle of NumPy arrays."""
    found: dict[str, dict[str, Any]] = {}
    dataset = open_dataset(path)
    for split in dataset.splits:
        given = dataset.evaluation_input(split, batch_size=6, with_key=True)
        for batch in given.as_torch() if framework == "torch" else given.as_jax():
            for place, key in enumerate(batch.pop("key")):
                rows = {name: each[place] for name, each in batch.items()}
                found[bytes(key).decode()] = {name: _numpy(each) for name, each in rows.items()}
    Path(to).write_bytes(pickle.dumps(found))


def _numpy(value: Any) -> Any:
    is_short = str(getattr(value, "dtype", "")) == "torch.bfloat16"  # which NumPy lacks
    found = np.asarray(value.float()).astype("bfloat16") if is_short else np.asarray(value)
    return found.astype(object) if found.dtype.kind == "S" else found


def two_epochs(begin: Callable[[], Iterator[Any]]) -> Iterator[Iterator[Any]]:
    """Begins two iterations."""
    return (begin() for _ in range(2))


def refused(action: Callable[[], Any]) -> str:
    """Returns the message of an action that must be refused."""
    try:
        action()
    except DatasetError as error:
        return str(error)
    return "not refused"


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
