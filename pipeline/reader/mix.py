"""Several inputs as one, by weights: exact in every block of records, and resumable at any step.

>>> both = mix([photos.training_input(batch_size=64), drawings.training_input(batch_size=64)], [3, 1])  # doctest: +SKIP
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, zip_longest
from math import inf, lcm
from numbers import Real
from typing import Any, Self

import numpy as np

from recordmill.pipeline.dataset.version import read_vocabulary
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import Batches, BatchSource, SplitSource
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options import ReadOptions
from recordmill.pipeline.reader.order import Integers, permuted
from recordmill.pipeline.reader.request import Request
from recordmill.pipeline.reader.rows import Batch, Chosen, Rows, structured
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.stored import Ragged, positions_of, splits_of

MIXED = 201  # the purpose of a block's permutation; `order` has others
BLOCK = 10_000  # records in which the shares are exact, at most


def mix(
    inputs: Sequence[Input],
    weights: Sequence[float],
    *,
    seed: int = 0,
    epochs: int | None = None,
    start_step: int = 0,
    threads: int | None = None,
    workers: int | None = None,
) -> Input:
    """Mixes several inputs record by record, in the proportions of the weights.

    Each input keeps its own order, and begins its next epoch when exhausted. The mixture's epoch has as many records as
    all inputs together.

    Args:
        inputs: results of `training_input` with the same batch size, hosts and batch structure.
        weights: one per input, above 0; shares are exact in every block of 10,000 records, or fewer if possible.
        seed: any whole number; decides each record's input.
        epochs: as in `training_input`, as are `start_step`, `threads` and `workers`.
        start_step: the step to begin with.
        threads: threads that make batches, by default as in the first input.
        workers: processes that make batches, by default as in `training_input`; 0 for none.

    Raises:
        DatasetError: the inputs do not fit, their values differ in meaning, or a value is out of range.
    """
    sources = list[SplitSource]()
    for each in inputs:
        if not isinstance(each, Input) or not isinstance(each.source, SplitSource):
            raise DatasetError(f"mix takes inputs of `training_input`, got {cut(repr(each))}")
        sources.append(each.source)
    _check(sources, weights)
    _check_meaning([each.folder for each in inputs], sources)
    given = replace(
        sources[0].given,
        seed=seed,
        epochs=epochs,
        start_step=start_step,
        threads=threads,
        workers=workers,
        on_error="raise" if all(source.given.on_error == "raise" for source in sources) else "skip",
        max_skipped=sum(source.given.max_skipped for source in sources),
    )
    return Input(MixedSource(sources, quotas(weights), given))


def quotas(weights: Sequence[float]) -> list[int]:
    """Returns each input's records in a block: whole numbers in the ratio of the weights, at least 1.

    >>> quotas([0.7, 0.3]), quotas([2, 2])
    ([7, 3], [1, 1])
    """
    weights = [float(weight) for weight in weights]
    total = sum(weights)
    shares = [Fraction(weight / total).limit_denominator(BLOCK) for weight in weights]
    block = lcm(*(share.denominator for share in shares))
    if block <= BLOCK and sum(shares) == 1 and min(shares) > 0:
        return [int(share * block) for share in shares]
    return [max(1, round(weight / total * BLOCK)) for weight in weights]


class MixedSource(BatchSource):
    """The source of an input that mixes several."""

    def __init__(self, sources: Sequence[SplitSource], quotas: Sequence[int], given: ReadOptions) -> None:
        """Takes the sources, their records in a block, and the mixture's options."""
        self.sources, self.quotas, self.given = sources, quotas, given
        self.threads = given.threads or sources[0].threads
        self.steps = sources[0].request.steps
        self.of_epoch = sum(source.request.steps.records for source in sources) // self.steps.global_batch
        self.batch_records = max(source.batch_records for source in sources)
        self.decodes = any(source.decodes for source in sources)
        self.element_spec = sources[0].element_spec

    def order_facts(self) -> dict[str, Any]:
        common = ("global_batch_size", "lanes", "label")
        mixed = [source.order_facts() for source in self.sources]
        without = [facts.pop("without", None) for facts in mixed]
        return {
            "mixed": [{name: value for name, value in facts.items() if name not in common} for facts in mixed],
            "quotas": list(self.quotas),
            "seed": self.given.seed,
            **{name: facts[name] for facts in mixed for name in common if name in facts},
            **({"without": without} if any(without) else {}),
        }

    def consumed(self, step: int) -> int:
        return step * self.steps.global_batch

    def open(self) -> "MixedBatches":
        counters = Counters()
        return MixedBatches([source.open(counters) for source in self.sources], self.quotas, self.given.seed)

    def starting_at(self, step: int, lanes: int = 0) -> Self:
        sources = [source.starting_at(source.given.start_step, lanes) for source in self.sources]
        return type(self)(sources, self.quotas, replace(self.given, start_step=step))


class MixedBatches(Batches):
    """The batches of a mixture."""

    def __init__(self, rows: Sequence[Rows], quotas: Sequence[int], seed: int) -> None:
        self.rows, self.counters = rows, rows[0].counters
        self._quotas, self._seed = quotas, seed

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        return [self._batch(step) for step in steps]

    def parts(self, step: int) -> Iterator[tuple[Rows, Chosen, Integers]]:
        sources, ranks = drawn(self._positions(step), self._quotas, self._seed)
        for source, rows in enumerate(self.rows):
            in_batch = np.flatnonzero(sources == source)
            epochs, of_epoch = np.divmod(ranks[in_batch], rows.request.steps.records)
            for epoch in np.unique(epochs).tolist():
                yield rows, rows.choose(epoch, of_epoch[epochs == epoch]), in_batch[epochs == epoch]

    def _positions(self, step: int) -> Integers:
        steps = self.rows[0].request.steps
        start = step * steps.global_batch + steps.host_index * steps.batch_size
        return np.arange(start, start + steps.batch_size)

    def _batch(self, step: int) -> Batch | None:
        places, parts = list[Integers](), list[dict[str, Any]]()  # in the batch
        for rows, chosen, in_batch in self.parts(step):
            [(ready, intact)] = rows.read([chosen])
            places.append(in_batch[intact])
            parts.append(ready)
        order = np.argsort(np.concatenate(places), kind="stable")
        if not len(order):
            return None
        ready = merged(parts, order, self.rows[0].request.features)
        first = self._positions(step)[: len(order)]
        draws = self.rows[0].mixed(Chosen(0, first, first, np.ones(len(first), np.float32)))
        return structured(self.rows[0].request, ready, draws, None)

    def close(self) -> None:
        for rows in self.rows:
            rows.close()


def drawn(positions: Integers, quotas: Sequence[int], seed: int) -> tuple[Integers, Integers]:
    """Returns each position's input, and the number of that input's earlier records."""
    ends = np.array(list(accumulate(quotas)), np.int64)
    blocks, within = np.divmod(positions, ends[-1])
    slots = permuted(within, blocks, int(ends[-1]), seed, MIXED)
    sources = np.searchsorted(ends, slots, side="right")
    own = np.array(quotas, np.int64)[sources]
    return sources, blocks * own + slots - (ends[sources] - own)


def merged(parts: Sequence[dict[str, Any]], order: Integers, features: Mapping[str, Description]) -> dict[str, Any]:
    """Concatenates several dictionaries of arrays, padded to the largest, and reorders the rows."""
    result = dict[str, Any]()
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if isinstance(arrays[0], Ragged):
            lengths = np.concatenate([array.lengths() for array in arrays])
            values = positions_of(splits_of(lengths)[:-1][order], lengths[order])
            joined = np.concatenate([array.values for array in arrays])
            result[name] = Ragged(joined[values], splits_of(lengths[order]))
            continue
        padding = features[name].padding if name in features else 0
        largest = np.max([array.shape[1:] for array in arrays], 0).astype(int).tolist() if arrays[0].ndim > 1 else []
        for number, array in enumerate(arrays):
            if [*array.shape[1:]] != largest:
                arrays[number] = np.full((len(array), *largest), padding, array.dtype)
                arrays[number][tuple(map(slice, array.shape))] = array
        result[name] = np.concatenate(arrays)[order]
    return result


def _check(sources: Sequence[SplitSource], weights: Sequence[float]) -> None:
    are_weights = all(isinstance(weight, Real) and 0 < weight < inf for weight in weights)
    if not sources or len(weights) != len(sources) or not are_weights:
        raise DatasetError(f"mix takes one weight above 0 per input, got {list(weights)} for {len(sources)}")
    first = sources[0].request
    for source in sources:
        request = source.request
        if not request.steps.records:
            raise DatasetError(f"'{request.given.split}' of {request.dataset} is empty: leave it out of the mixture")
        if request.given.pad or (request.given.text == "packed" and request.pack is None):
            raise DatasetError("mix takes one record per row, without weights: leave pad=True and text='packed' out")
        both = request.steps, first.steps
        mine, others = ((steps.batch_size, steps.host_index, steps.host_count) for steps in both)
        if mine != others:
            raise DatasetError(f"mixed inputs need one batch_size, host_index and host_count: {mine} is not {others}")
        looks = [({*each.request.features}, each.element_spec, each.request.mixtures) for each in (source, sources[0])]
        if looks[0] != looks[1]:
            specs = " is not ".join(f"{', '.join(sorted(names))}: {spec}" for names, spec, _ in looks)
            remedy = "name the features that both have, and bring images to one size"
            raise DatasetError(f"batches of {request.dataset} and {first.dataset} do not look alike: {specs}; {remedy}")


def _check_meaning(folders: Sequence[Any], sources: Sequence[SplitSource]) -> None:
    """Checks that values mean the same in all datasets. Raises: DatasetError."""
    first = {name: _meaning(folders[0], sources[0].request, name) for name in sources[0].request.features}
    for folder, source in zip(folders[1:], sources[1:], strict=True):
        for name, mine in first.items():
            others = _meaning(folder, source.request, name)
            for field in {**mine, **others}:
                values: list[Any] = [others.get(field), mine.get(field)]
                if values[0] == values[1]:
                    continue
                if all(isinstance(value, list | tuple) for value in values):  # the first that differs
                    place = next(n for n, (one, other) in enumerate(zip_longest(*values)) if one != other)
                    field, values = f"{field}[{place}]", [[*value, None][place] for value in values]
                there = f"{cut(repr(values[0]))} in {folder}, {cut(repr(values[1]))} in {folders[0]}"
                same = "one `classes`, `vocabulary` or `boundaries`, and `normalize: none` where figures are learned"
                differs = f"'{name}' means something else: its {field} is {there}"
                raise DatasetError(f"{differs}; build both with {same}, or read without '{name}'")


def _meaning(folder: Any, request: Request, name: str) -> dict[str, Any]:
    """Returns what decides the meaning of a feature's values, as they are read."""
    description, pack = request.features[name], request.packing
    words = read_vocabulary(folder, description, name) if description.ids and description.ids.has_words else None
    meaning = description.meaning(request.statistics[name], words)
    if request.given.dtype in ("uint8", "uint16"):  # pixels as stored
        meaning = {field: value for field, value in meaning.items() if field not in ("offset", "scale")}
    return meaning if pack is None else {**meaning, "padding": pack.padding.get(name, description.padding)}
