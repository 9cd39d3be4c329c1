"""Sends sampled rows through a build's worker, to the encoded records, in this process: what it rejects, a build does.

The graph learns from these rows alone, unless the analysis is frozen: its ids and scales are not those of a build.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_transform as tft
from PIL import Image

from recordmill.pipeline.build.analysis import graph
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import input_specs, install_user_code
from recordmill.pipeline.build.images.read import Loaded, image_reader
from recordmill.pipeline.build.summaries.look import learned, statistics_look
from recordmill.pipeline.build.texts.chat import canonical
from recordmill.pipeline.build.texts.encode import encoded_name
from recordmill.pipeline.build.worker.batch import ImageBytes, ImageLoader, RowBatch
from recordmill.pipeline.build.worker.build_shard import BuiltBatch, ShardBuilder
from recordmill.pipeline.build.worker.shard_report import Ids, ShardTotals, Stored
from recordmill.pipeline.dataset.packs import pack
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Fault
from recordmill.transforms.contract.image_header import Header, ImageError, read_header
from recordmill.transforms.contract.kinds.chat import LOSS_MASK, ChatOptions
from recordmill.transforms.contract.kinds.mask import MaskOptions

COUNTED, TOKENS = "trained tokens", "tokens"  # beside the roles of messages
SHOWN = 8  # roles or classes
MOST_PIXELS = 400_000_000  # some seconds: then it ends


@dataclass
class Rehearsal:
    """The counts of rehearsed rows."""

    rows: int = 0  # with rejects
    totals: ShardTotals = field(default_factory=ShardTotals)
    facts: dict[str, str] = field(default_factory=dict)
    """By feature: the messages and tokens of chats, the classes of masks by their pixels, in words."""
    headers: Mapping[str, list[Header]] = field(default_factory=lambda: defaultdict(list))
    """By feature, of each row's first image."""
    packed: list[tuple[int, int, float]] = field(default_factory=list)
    """A pack each: the ids of a row, the rows, and the share of their places that is filled."""
    notes: list[str] = field(default_factory=list)
    """The work left out, with its reason."""


def rehearse(planned: PlannedBuild, rows: pa.Table, frozen: LiveAnalysis | None, *, is_all: bool) -> Rehearsal:
    """Builds the records of keyed rows, and drops them; of large images those of the first rows.

    `is_all`: a build has no other rows; of fewer, a tokenizer may be too hard to train: a note. Raises: UserError: a
    build would end with it.
    """
    result = Rehearsal()
    given = replace(planned, features=graph.complete_options(planned))
    try:
        context = _with_graph(given, rows, frozen, result.notes)
    except UserError as error:
        if is_all or not given.trained():
            raise
        result.notes.append(f"only read, not built, since {len(rows):,} rows are too few to learn from: {error}")
        return result
    builder, lengths = _Counting(context, result.headers), list[list[Ids]]([] for _ in context.packs)
    for built in builder.built(rows, measured=0):
        result.totals.add(built.totals)
        result.rows += built.totals.written.total() + len(built.totals.rejects)
        for several, more in zip(lengths, built.packed, strict=True):
            several.append(more)
        if sum(each.width * each.height for of in result.headers.values() for each in of) > MOST_PIXELS:
            break
    result.facts = {name: _words(sum(counts, Counter[str]())) for name, counts in builder.seen.items()}
    for each, several in zip(context.packs, lengths, strict=True):
        made = pack(np.concatenate([np.zeros(0, np.int64), *several]), each.length, split=each.split)
        count = len(made.splits) - 1
        result.packed.append((each.length, count, float(made.sizes.sum()) / max(1, count * each.length)))
    return result


def _with_graph(given: PlannedBuild, rows: pa.Table, frozen: LiveAnalysis | None, notes: list[str]) -> PlannedBuild:
    """Returns the build with its graph."""
    if frozen is not None:
        context = replace(given, features=graph.complete_options(given, graph.frozen_models(given, frozen)))
        install_user_code(context)
        return replace(context, export=graph.keep_graph(context, frozen))
    look = statistics_look(given)
    found = learned(look, look.sums_of(rows))
    context = replace(given, features=graph.complete_options(given, found.models))
    install_user_code(context)
    preprocessing = graph.make_preprocessing(context, found, context.scratch)
    if preprocessing.own and tft.get_analyze_input_columns(preprocessing, input_specs(context)):
        notes.append(f"{context.preprocessing} is not run: its analyzers read all rows")
        preprocessing = replace(preprocessing, own=None)
    return replace(context, export=graph.make_graph(context, preprocessing))


class _ImageLoader(ImageLoader):
    """Notes the headers of files that it loads, by feature."""

    def __init__(self, context: PlannedBuild, headers: Mapping[str, list[Header]]) -> None:
        super().__init__(context, image_reader(context))
        self._headers = headers

    def _load_row(self, *arguments: Any) -> dict[str, list[Loaded]] | Fault:
        loaded = super()._load_row(*arguments)
        for name, part in (
            [] if isinstance(loaded, Fault) else [(name, loaded[name][0]) for name in loaded if loaded[name]]
        ):
            with suppress(ImageError):  # shapes and numbers have none
                self._headers[name].append(read_header(part.source))
        return loaded


class _Counting(ShardBuilder):
    """Builds batches, and counts what is in them, by feature."""

    def __init__(self, context: PlannedBuild, headers: Mapping[str, list[Header]]) -> None:
        super().__init__(context)
        self._loader = _ImageLoader(context, headers)
        self.seen = defaultdict[str, list[Counter[str]]](list)  # lists, as threads add to them

    def _built(self, batch: RowBatch, stored: Stored) -> BuiltBatch:
        for name, options in self._context.features.items():
            if isinstance(options, ChatOptions):
                self.seen[name].append(_messages(batch.rows, name, options))
            elif isinstance(options, MaskOptions) and options.kind == "mask":
                self.seen[name].append(_pixels(batch.images[name], options))
        return super()._built(batch, stored)


def _words(seen: Counter[str]) -> str:
    """Describes the messages and tokens of chats, or the pixels of masks."""
    counted, tokens = seen.pop(COUNTED, 0), seen.pop(TOKENS, 0)
    total, named, more = max(1, seen.total()), seen.most_common(SHOWN), len(seen) - SHOWN
    if tokens:
        messages = ", ".join(f"{number:,} {role}" for role, number in named)
        return f"{messages} messages, {counted / tokens:.1%} of {tokens:,} tokens trained"
    return ", ".join([*(f"{pixels / total:.1%} {name}" for name, pixels in named), *[f"{more:,} more"] * (more > 0)])


def _messages(rows: pa.Table, name: str, options: ChatOptions) -> Counter[str]:
    texts = filter(None, rows[name].to_pylist())  # a missing chat is empty
    roles = Counter(message["role"] for text in texts for message in canonical(text.decode(), options.roles).messages)
    counts = pc.list_flatten(rows[encoded_name(name, LOSS_MASK)]).to_numpy()
    return roles + Counter({COUNTED: int(counts.sum()), TOKENS: len(counts)})


def _pixels(masks: Sequence[ImageBytes], options: MaskOptions) -> Counter[str]:
    names = (
        {0: "background"}
        | dict(options.classes or ())
        | ({} if options.ignore is None else {options.ignore: "ignored"})
    )
    found = Counter[str]()
    for data in filter(None, masks):
        assert isinstance(data, bytes)  # noqa: S101 - a row has one mask
        pixels = np.frombuffer(data, options.pixel) if options.store == "raw" else np.asarray(Image.open(BytesIO(data)))
        counts = np.bincount(pixels.ravel())
        found.update(
            {names.get(value, f"value {value}"): int(counts[value]) for value in np.flatnonzero(counts).tolist()}
        )
    return found
