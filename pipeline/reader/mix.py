"""Several inputs as one, by weights: exact in every block of records, and resumable at any step.

>>> inputs = [photos.training_input(batch_size=64), drawings.training_input(batch_size=64)]  # doctest: +SKIP
>>> both = mix(inputs, {0: [3, 1], 10_000: [1, 1]})  # doctest: +SKIP
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise, zip_longest
from math import inf, lcm
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from recordmill.pipeline.dataset.version import read_vocabulary
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.batches import Batches, BatchSource, SplitSource
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.metrics import Counters
from recordmill.pipeline.reader.options import ReadOptions
from recordmill.pipeline.reader.order import FOR_EVER, Integers, permuted
from recordmill.pipeline.reader.request import Request
from recordmill.pipeline.reader.rows import Batch, Chosen, Rows, structured
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.stored import Ragged, positions_of, splits_of

MIXED = 201  # the purpose of a block's permutation; `order` has others
BLOCK = 10_000  # records in which the shares are exact, at most


def mix(
    inputs: Sequence[Input],
    weights: Sequence[float] | Mapping[int, Sequence[float]],
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
        weights: one per input, above 0; shares are exact in every block of 10,000 records, or fewer if possible. Or
            such weights by the step, from 0, that they begin with: `{0: [3, 1], 10_000: [1, 1]}`. A change cuts off a
            block, where each share is exact within a record.
        seed: any whole number; decides each record's input.
        epochs: as in `training_input`, as are `start_step`, `threads` and `workers`.
        start_step: the step to begin with.
        threads: threads that make batches, by default as in the first input.
        workers: processes that make batches, by default as in `training_input`; 0 for none.

    Raises:
        DatasetError: the inputs do not fit, begin late or end, their values differ in meaning, a value is out of
            range, or a weight is less than 1 : 10,000 of the others.
    """
    if not isinstance(inputs, Sequence):
        raise DatasetError("mix takes a list of inputs: mix([a, b], weights)")
    sources = list[SplitSource]()
    for each in inputs:
        if not isinstance(each, Input) or not isinstance(each.source, SplitSource):
            raise DatasetError(f"mix takes inputs of `training_input`, got {cut(repr(each))}")
        sources.append(each.source)
    by_step = weights if isinstance(weights, Mapping) else {0: weights}
    check_weights(by_step, len(sources))
    _check(sources)
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
    return Input(MixedSource(sources, {int(step): quotas(by_step[step]) for step in sorted(by_step)}, given))


def quotas(weights: Sequence[float]) -> list[int]:
    """Returns each input's records in a block: whole numbers in the ratio of the weights, at least 1.

    Raises: DatasetError: a weight is too small.

    >>> quotas([0.7, 0.3]), quotas([2, 2])
    ([7, 3], [1, 1])
    """
    weights = [float(weight) for weight in weights]
    total = sum(weights)
    if min(weights) * BLOCK < total - min(weights):
        least = f"mix takes weights of at least 1 : {BLOCK:,} of the others together"
        raise DatasetError(f"{least}, got {min(weights):g} in {weights}: leave its input out, or give it a larger one")
    shares = [Fraction(weight / total).limit_denominator(BLOCK) for weight in weights]
    block = lcm(*(share.denominator for share in shares))
    if block <= BLOCK and sum(shares) == 1 and min(shares) > 0:
        return [int(share * block) for share in shares]
    return [max(1, round(weight / total * BLOCK)) for weight in weights]


class MixedSource(BatchSource):
    """The source of an input that mixes several."""

    def __init__(self, sources: Sequence[SplitSource], quotas: Mapping[int, Sequence[int]], given: ReadOptions) -> None:
        """Takes the sources, their records in a block by the step that begins with them, and the mixture's options."""
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
            "quotas": self.quotas[0] if len(self.quotas) == 1 else [*map(list, self.quotas.items())],
            "seed": self.given.seed,
            **{name: facts[name] for facts in mixed for name in common if name in facts},
            **({"without": without} if any(without) else {}),
        }

    def consumed(self, step: int) -> int:
        return step * self.steps.global_batch

    def open(self) -> "MixedBatches":
        counters = Counters()
        shares = Shares(self.quotas, self.steps.global_batch, self.given.seed)
        return MixedBatches([source.open(counters) for source in self.sources], shares)

    def starting_at(self, step: int, lanes: int = 0) -> Self:
        sources = [source.starting_at(0, lanes) for source in self.sources]
        return type(self)(sources, self.quotas, replace(self.given, start_step=step))


def shared(records: int, quotas: Sequence[int]) -> list[int]:
    """Divides a number of records in the ratio of the quotas, within a record.

    >>> shared(5, [3, 1])
    [3, 2]
    """
    ends = [records * end // sum(quotas) for end in accumulate(quotas, initial=0)]
    return [end - start for start, end in pairwise(ends)]


class Shares:
    """The input of each record of a mixture: exact shares in every block; a cut-off one is a shorter block."""

    def __init__(self, quotas: Mapping[int, Sequence[int]], global_batch: int, seed: int) -> None:
        """Takes each input's records in a block, by the step that begins with them, from 0, ascending."""
        begins, by_step = list[tuple[int, Sequence[int]]](), [*quotas.items()]
        for (step, each), (following, _) in pairwise([*by_step, by_step[-1]]):
            begins.append((step * global_batch, each))
            if left := (following - step) * global_batch % sum(each):
                begins.append((following * global_batch - left, shared(left, each)))
        # Runs of equal blocks: the first position, each input's records in a block, and blocks and records before.
        self._runs, self._seed = list[tuple[int, Sequence[int], int, Integers]](), seed
        blocks, records = 0, np.zeros(len(by_step[0][1]), np.int64)
        for (first, each), (end, _) in pairwise([*begins, begins[-1]]):
            self._runs.append((first, each, blocks, records))
            whole = (end - first) // sum(each)
            blocks, records = blocks + whole, records + whole * np.array(each)

    def __call__(self, positions: Integers) -> tuple[Integers, Integers]:
        """Returns each position's input, and the number of that input's earlier records: int64 [rows] both."""
        runs = np.searchsorted([first for first, *_ in self._runs], positions, side="right") - 1
        sources, ranks = np.empty_like(positions), np.empty_like(positions)
        for number in np.unique(runs).tolist():
            rows, (first, quotas, blocks, before) = runs == number, self._runs[number]
            sources[rows], within = drawn(positions[rows] - first, quotas, self._seed, blocks)
            ranks[rows] = before[sources[rows]] + within
        return sources, ranks


class MixedBatches(Batches):
    """The batches of a mixture."""

    def __init__(self, rows: Sequence[Rows], shares: Shares) -> None:
        self.rows, self.counters = rows, rows[0].counters
        self._shares = shares

    def __call__(self, steps: Sequence[int]) -> list[Batch | None]:
        return [self._batch(step) for step in steps]

    def parts(self, step: int) -> Iterator[tuple[Rows, Chosen, Integers]]:
        sources, ranks = self._shares(self._positions(step))
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


def drawn(positions: Integers, quotas: Sequence[int], seed: int, earlier: int = 0) -> tuple[Integers, Integers]:
    """Returns each position's input, and the number of that input's earlier records; `earlier` blocks come before."""
    ends = np.array(list(accumulate(quotas)), np.int64)
    blocks, within = np.divmod(positions, ends[-1])
    slots = permuted(within, earlier + blocks, int(ends[-1]), seed, MIXED)
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


def check_weights(weights: Mapping[int, Sequence[float]], inputs: int) -> None:
    """Checks the weights of a number of inputs, by step. Raises: DatasetError."""
    if 0 not in weights or not all(isinstance(step, Integral) and step >= 0 for step in weights):
        raise DatasetError(f"mix takes weights by the step, from 0, that they begin with, got steps {[*weights]}")
    for each in weights.values():
        given = [*each] if isinstance(each, Sequence | np.ndarray) else []
        if not inputs or len(given) != inputs or not all(isinstance(one, Real) and 0 < one < inf for one in given):
            raise DatasetError(f"mix takes one weight above 0 per input, got {given or each} for {inputs}")


def _check(sources: Sequence[SplitSource]) -> None:
    first = sources[0].request
    for source in sources:
        request = source.request
        if not request.steps.records:
            raise DatasetError(f"'{request.given.split}' of {request.dataset} is empty: leave it out of the mixture")
        if request.given.pad or (request.given.text == "packed" and request.pack is None):
            raise DatasetError("mix takes one record per row, without weights: leave pad=True and text='packed' out")
        for name, fits in (("start_step", (0,)), ("epochs", (None, FOR_EVER))):
            if (value := getattr(request.given, name)) not in fits:
                has = f"the input of {request.dataset} has {name}={value}, and a mixture begins and repeats its inputs"
                raise DatasetError(f"{has}: leave it out of `training_input`, and give it to mix")
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
