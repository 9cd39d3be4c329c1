"""MosaicML Streaming: MDS shards, PyTorch's loader, padded by PyTorch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import streaming
import torch
from settings import Batch, Settings
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

WORKERS = 2


def padded(rows: Sequence[dict[str, Any]]) -> Batch:
    """Makes a batch of rows."""
    documents = [torch.as_tensor(row["text"]) for row in rows]
    lengths = torch.tensor([len(document) for document in documents])
    return pad_sequence(documents, batch_first=True), lengths, torch.tensor([row["label"] for row in rows])


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end."""
    streaming.base.util.clean_stale_shared_memory()
    rows = streaming.StreamingDataset(
        local=str(data / "mds"), shuffle=True, shuffle_seed=settings.seed, batch_size=settings.batch_size
    )
    loader = DataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        collate_fn=padded,
        drop_last=True,
    )
    while True:
        yield from loader
