"""The state of an input: a small dictionary for a checkpoint, from which the same batches go on.

>>> train.state(step=1200)  # doctest: +SKIP
{'format': 1, 'dataset': 'emoji', 'version': '20261120T120000Z-4f1c9a2e', …, 'global_batch_size': 256, 'step': 1200,
 'records': 307200}
"""

from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.dataset.manifest import DatasetError

FORMAT = 1
State = dict[str, Any]
"""Strings, numbers and None alone: JSON, under 1 KB."""


def make_state(order: Mapping[str, Any], step: int, records: int) -> State:
    """Gives the state after so many steps, in which all hosts together have read so many records.

    Args:
        order: the facts that determine the order of the batches, by name: dataset, version, split, seed, ….
        step: steps from the first of epoch 0 on.
        records: as `Steps.consumed` counts them.
    """
    return {"format": FORMAT, **order, "step": step, "records": records}


def step_of(state: Any, order: Mapping[str, Any]) -> int:
    """Gives the step at which a state goes on, for an input of the same order; the number of hosts may differ.

    Raises:
        DatasetError: it is no state, or belongs to another dataset, version, order or global batch size.
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("step"), int) or state["step"] < 0:
        raise DatasetError(f"this is no state of an input, which `state()` gives: {state!r:.100}")
    if state.get("format") != FORMAT:
        raise DatasetError(f"the state is of format {state.get('format')!r}, this Recordmill knows {FORMAT}: upgrade")
    for name, mine in order.items():
        if name not in state or state[name] != mine:
            raise DatasetError(
                f"the state is of another {name.replace('_', ' ')}: {state.get(name)!r}, this input's is {mine!r}; "
                f"{_ADVICE.get(name, 'give the input the same arguments')}"
            )
    return int(state["step"])


_ADVICE = {
    "version": "open that version: open_dataset(PATH, VERSION)",
    "global_batch_size": "batch_size times the number of hosts must stay what it was",
}
