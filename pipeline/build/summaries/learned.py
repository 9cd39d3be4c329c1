"""Tokens and values that features learn from, made of raw columns by the graph's own functions, outside of any graph.

The analyzed columns alone go through the first half of their kind (`transforms.tensorflow.kind.Kind.prepare`), a
constant number of rows at a time; nothing is traced.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph_inputs import as_tensor
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.tensorflow.kind import Context, Prepared
from recordmill.transforms.tensorflow.kinds import KINDS


def train_rows(planned: PlannedBuild, rows: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
    """Returns the keyed rows of the train split; with these columns alone, where they are given."""
    is_train = pc.equal(rows["@split"], planned.layout.splits.index("train"))
    return (rows if columns is None else rows.select([*columns])).filter(is_train)


def prepared(options: FeatureOptions, column: pa.ChunkedArray) -> Prepared:
    """Prepares a feature's column of keyed rows: its `tokens` or `values` are tensors that can be read at once."""
    return KINDS[options.kind].prepare(options, as_tensor(column), Context())
