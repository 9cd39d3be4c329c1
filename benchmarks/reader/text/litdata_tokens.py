"""LitData for pre-training: rows cut from one stream of tokens, without a word of where documents begin."""

from collections.abc import Iterator
from pathlib import Path

import litdata
import numpy as np
from settings import ROW_TOKENS, Batch, Settings

WORKERS = 2


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Gives batches without end; every id is a token."""
    rows = litdata.StreamingDataset(
        str(data / "litdata_tokens"),
        item_loader=litdata.TokensLoader(block_size=ROW_TOKENS),
        shuffle=True,
        drop_last=True,
        seed=settings.seed,
    )
    loader = litdata.StreamingDataLoader(
        rows,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        drop_last=True,
    )
    lengths = np.full(settings.batch_size, ROW_TOKENS)
    while True:
        for ids in loader:
            yield ids, lengths, None
