"""The state of an input: a small dictionary for a checkpoint, from which the same batches go on.

>>> train.state(step=1200)  # doctest: +SKIP
{'format': 1, 'dataset': 'emoji', 'version': '20261120T120000Z-4f1c9a2e', …, 'global_batch_size': 256, 'step': 1200,
 'epoch': 3, 'records': 307200}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER, version_folder
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.remote_path import RemotePath
from recordmill.pipeline.safe_text import cut

FORMAT = 1
State = dict[str, Any]
"""Strings, numbers and None alone: JSON, under 1 KB."""


def make_state(order: Mapping[str, Any], step: int, of_epoch: int, records: int) -> State:
    """Returns the state after so many steps, in which all hosts together have read so many records.

    Args:
        order: the facts that determine the order of the batches, by name: dataset, version, split, seed, ….
        step: steps from the first of epoch 0 on.
        of_epoch: steps of an epoch.
        records: as `Steps.consumed` counts them.
    """
    return {"format": FORMAT, **order, "step": step, "epoch": step // of_epoch if of_epoch else 0, "records": records}


def step_of(state: Any, order: Mapping[str, Any], folder: Path | RemotePath | None = None) -> int:
    """Returns the step at which a state goes on, for an input of the same order; the number of hosts may differ.

    Args:
        state: as `make_state` gives it.
        order: the input's facts.
        folder: that of the input's version, in whose parent the state's version is looked for.

    Raises:
        DatasetError: it is no state, or belongs to another dataset, version, order or global batch size.
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("step"), int) or state["step"] < 0:
        raise DatasetError(f"this is no state of an input, which `state()` gives: {cut(repr(state), 100)}")
    if state.get("format") != FORMAT:
        raise DatasetError(f"the state is of format {state.get('format')!r}, this Recordmill knows {FORMAT}: upgrade")
    for name, mine in order.items():
        if name not in state or state[name] != mine:
            advice = _version_advice(state.get(name), folder) if name == "version" else _ADVICE.get(name, _SAME)
            raise DatasetError(
                f"the state is of another {name.replace('_', ' ')}: {state.get(name)!r}, this input's is {mine!r}; "
                f"{advice}"
            )
    return int(state["step"])


_SAME = "give the input the same arguments"
_ADVICE = {"global_batch_size": "batch_size times the number of hosts must stay what it was"}


def _version_advice(version: Any, folder: Path | RemotePath | None) -> str:
    """Says how to go on with the state of another version: it may be there, or removed."""
    if folder is None or folder.parent.name != VERSIONS_FOLDER or not isinstance(version, str):
        return "open that version: open_dataset(PATH, VERSION)"
    output = folder.parent.parent
    if (version_folder(output, version) / MANIFEST_FILE).is_file():
        return f"go on with that version: open_dataset({str(output)!r}, {version!r})"
    return (
        f"{output} has that version no more (`recordmill versions prune`), and its order went with it: begin the "
        "state's epoch anew, set_epoch(state['epoch']); `with dataset.held():` keeps a version while a program reads it"
    )
