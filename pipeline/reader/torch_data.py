"""An input as PyTorch's `IterableDataset`: tensors, on the device ahead of the model."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.iteration import NumpyInput, OnDevice, PlacedBatches, placed


class TorchBatches(OnDevice, IterableDataset):  # type: ignore[misc]  # Any, if torch is not installed
    """Batches of tensors; see `Input.as_torch`."""

    def __iter__(self) -> PlacedBatches:
        """Begins an iteration. Raises: DatasetError: inside a worker process of a `DataLoader`."""
        if get_worker_info() is not None:
            remedy = "take num_workers=0; the input has its own processes (`workers`)"
            raise DatasetError(f"each process of a DataLoader would give all batches: {remedy}")
        return super().__iter__()


def as_torch(given: NumpyInput, device: Any) -> TorchBatches:
    """Returns an input's batches on a device; see `Input.as_torch`.

    To CUDA they are copied from pinned memory in a stream beside the model's, which waits for it.
    """
    device = torch.device("cpu" if device is None else device)
    if device.type != "cuda":
        return TorchBatches(given, lambda batch: placed(lambda array: _tensor(array, device), batch))
    beside = torch.cuda.Stream(device)

    def place(batch: Any) -> Any:
        with torch.cuda.stream(beside):
            return placed(lambda array: _tensor(array, device, pinned=True), batch)

    def receive(batch: Any) -> Any:
        models = torch.cuda.current_stream(device)
        models.wait_stream(beside)
        # The memory stays until the model is done with it.
        placed(lambda value: value.record_stream(models) if isinstance(value, torch.Tensor) else None, batch)
        return batch

    return TorchBatches(given, place, receive)


def _tensor(array: Any, device: torch.device, *, pinned: bool = False) -> Any:
    """Makes a tensor of an array, on the CPU without a copy; a list of an array of strings."""
    if array.dtype == object:
        return array.tolist()
    is_bfloat16 = array.dtype.name == "bfloat16"
    tensor = torch.from_numpy(array.view(np.int16) if is_bfloat16 else array)
    tensor = tensor.view(torch.bfloat16) if is_bfloat16 else tensor
    return tensor.pin_memory().to(device, non_blocking=True) if pinned else tensor.to(device)
