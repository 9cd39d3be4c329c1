"""The values of a transform graph that are not those of the live version any more: one makes every record another."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recordmill.pipeline.build.analysis.frozen_graph import model_file
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.frozen import LiveAnalysis
from recordmill.pipeline.compare.ids import compare_ids
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.tensorflow.number import used_statistics


def learned_changes(
    planned: PlannedBuild,
    live: LiveAnalysis,
    vocabularies: Mapping[str, Sequence[bytes]],
    statistics: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, bytes],
) -> Iterator[str]:
    """Returns a line for each value of the graph that changed, with both values; of words their number.

    Args:
        planned: the build.
        live: the live version's analysis.
        vocabularies: the words with an id, in the order of the ids, by the feature that a vocabulary is named after.
        statistics: the statistics by feature.
        models: the tokenizers that were trained, by the feature that each is named after.
    """
    for name, words in vocabularies.items():
        file = f"transform_fn/assets/{vocabulary_name(name)}"
        if _digest(b"".join(word + b"\n" for word in words)) != live.files.get(file):
            new, lost, moved = compare_ids(_ids(live.read(file).splitlines()), _ids(words))
            yield f"{name}.vocabulary: {len(new):,} new, {len(lost):,} gone, {len(moved):,} with another id"
    for name, model in models.items():
        if _digest(model) != live.files.get(model_file(planned, name)):
            yield f"{name}.tokenizer: trained anew"
    for name, options in planned.features.items():
        before, now = live.statistics.get(name, {}), statistics.get(name, {})
        for key in used_statistics(options) if isinstance(options, NumberOptions) else ():
            if before.get(key) != now.get(key):
                yield f"{name}.{key}: {before.get(key)} → {now.get(key)}"


def _ids(words: Sequence[bytes]) -> dict[str, int]:
    return {word.decode("utf-8", "surrogateescape"): id_ for id_, word in enumerate(words)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
