"""The options of `Dataset.training_input` and `Dataset.evaluation_input`: name, type, default, meaning and check.

The keyword arguments of both methods are the fields of `ReadOptions`. Splits are written as in TensorFlow Datasets.

>>> evaluation_options("test", {"batch_size": 8, "dtyp": "uint8"})
Traceback (most recent call last):
...
TypeError: evaluation_input has no option 'dtyp'; did you mean `dtype`?
>>> ranges("train[:80%]+test", {"train": 10, "test": 4})
[('train', 0, 8), ('test', 0, 4)]
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recordmill.pipeline.errors import DatasetError, did_you_mean, listed
from recordmill.pipeline.json_values import Count, Positive
from recordmill.pipeline.reader.order import FOR_EVER
from recordmill.transforms.base.stored import FinishOptions

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.transforms.images.augment.chain import Mask


THE_LABEL = "(the dataset's label)"  # the label named in the manifest
Default = TypeVar("Default")
_ONE = re.compile(r"(?P<name>[^\[\]+]+?)(?:\[(?P<first>-?\d+%?)?:(?P<end>-?\d+%?)?\])?")
FORM = "a split is written like train, train[:80%], train[100:200] or train+validation"


def _only(method: str, default: Default) -> Default:
    """Declares an option of one method alone."""
    return field(default=default, metadata={"only": method})


@dataclass(frozen=True)
class ReadOptions(FinishOptions):
    """Options of an input, checked on creation without a dataset. Raises: DatasetError: a value is out of range."""

    CHOICES = {**FinishOptions.CHOICES, "shuffle": ("global", "blocks", "none"), "on_error": ("raise", "skip")}

    split: str = "train"
    """A split's name, a slice (`train[:80%]`, `train[100:]`), or several (`train+validation`)."""
    _: KW_ONLY
    batch_size: Positive
    """Records in a batch of this host, at least 1."""
    seed: int = _only("training", 0)
    """Any whole number; determines the order and every random change."""
    epochs: int | None = _only("training", None)
    """The epochs of an iteration. None: one, the next each time; n: 0 to n - 1; -1: endless."""
    shuffle: str | None = _only("training", None)
    """`global` permutes all records (default for files); `blocks` mixes 240 blocks of neighbours at a time, each read
    once, by one host (default for URLs); `none` keeps the dataset's own order."""
    balance: bool = _only("training", False)
    """Reads all classes of the label equally often; repeats records of rare classes."""
    without: "str | Path | Collection[str | bytes]" = _only("training", ())
    """Rows to leave out of this training: their keys, or a file of keys, one a line."""
    drop_remainder: bool = _only("training", True)
    """Leaves out the records at an epoch's end that do not fill a batch on all hosts."""
    pad: bool | None = _only("evaluation", None)
    """Fills short batches up to `batch_size` with rows of weight 0, and adds the rows' weights, float32 [batch]:
    `(features, label, weight)`, as Keras takes it. Default on several hosts."""
    augment: "Sequence[Any] | Mapping[str, Sequence[Any] | Mask]" = ()
    """Random changes of images (`recordmill.augment`): a list for all images, or a dictionary of lists by feature; a
    list may also hold MixUp and CutMix of whole batches."""
    label: str | None = THE_LABEL
    """The target; by default the dataset's label; None reads none."""
    features: Collection[str] | None = None
    """The features to read besides the label; by default all; an empty list: the label and keys alone."""
    with_key: bool = False
    """Adds `key`, the rows' keys (bytes, [batch]), to the features."""
    host_index: int = 0
    """The number of this host, from 0; hosts read disjoint parts."""
    host_count: int = 1
    """The number of hosts; all get the same number of batches."""
    input_context: "tf.distribute.InputContext | None" = None
    """Sets `host_index` and `host_count` inside `tf.distribute`."""
    start_step: Count = _only("training", 0)
    """The first step, counted from epoch 0."""
    threads: Positive | None = None
    """Threads that make batches; by default one per core for images, else one."""
    workers: Count | None = None
    """Processes that make batches once started; by default one per core if the iteration is long enough, at most 8
    without images; 0 for none."""
    cache: str | Path | None = None
    """The parent folder of `recordmill-blocks`, this host's cache of remote shards for all processes and trainings; by
    default the user's cache folder."""
    cache_bytes: Positive | None = None
    """The cache's limit in bytes; by default half of its disk's free space."""
    on_error: str = "raise"
    """`raise` stops at an unreadable record; `skip` leaves out exactly that record."""
    max_skipped: Count = 100
    """The most records that an iteration may skip."""
    verify: bool = False
    """First compares every shard's SHA-256 with the manifest's."""

    def __post_init__(self) -> None:
        if self.input_context is not None:  # it does not pickle
            self._set("host_index", self.input_context.input_pipeline_id)
            self._set("host_count", self.input_context.num_input_pipelines)
            self._set("input_context", None)
        super().__post_init__()
        if self.host_count < 1 or not 0 <= self.host_index < self.host_count:
            raise DatasetError(f"host_index is 0 to host_count - 1, got {self.host_index} of {self.host_count}")
        if self.epochs is not None and self.epochs < 1 and self.epochs != FOR_EVER:
            raise DatasetError(f"epochs is at least 1, -1 for endless, or None for the next one, got {self.epochs}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def training_options(split: str, options: Mapping[str, Any]) -> ReadOptions:
    """Makes the options of `training_input`. Raises: TypeError: an unknown name; DatasetError: a wrong value."""
    _check_names("training", options)
    return ReadOptions(split, **options)


def evaluation_options(split: str, options: Mapping[str, Any]) -> ReadOptions:
    """Makes the options of `evaluation_input`: every record once, in the dataset's order. Raises: as above."""
    _check_names("evaluation", options)
    given = ReadOptions(split, shuffle="none", epochs=1, drop_remainder=False, **options)
    if given.pad is None:
        given._set("pad", given.host_count > 1)
    return given


def option_names(method: str) -> list[str]:
    """Returns the option names of `training_input` or `evaluation_input`, without `split`."""
    others = (each for each in fields(ReadOptions) if each.name != "split")
    return [each.name for each in others if each.metadata.get("only", method) == method]


def whole_number(value: Any, name: str) -> int:
    """Returns a whole number of at least 0, such as a step, also NumPy's, as an int. Raises: DatasetError."""
    if not hasattr(value, "__index__") or index(value) < 0:
        raise DatasetError(f"{name} is a whole number of at least 0, got {value!r}")
    return index(value)


def _check_names(method: str, options: Mapping[str, Any]) -> None:
    known = option_names(method)
    for name in options:
        if name not in known:
            raise TypeError(f"{method}_input has no option '{name}'{did_you_mean(name, known)}")
    if "batch_size" not in options:
        raise TypeError(f"{method}_input needs batch_size, the number of records in a batch")


def ranges(expression: str, records: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Returns the ranges of records in an expression, parts joined by `+`: (split, first record, end).

    Shares are rounded to the nearest record, half to even: `train[:80%]` and `train[80%:]` are complementary. Numbers
    stop at the split's end; negative ones count from there. Raises: DatasetError: invalid, or an unknown split.
    """
    found = list[tuple[str, int, int]]()
    for part in map(str.strip, expression.split("+")):
        match = _ONE.fullmatch(part)
        if match is None:
            raise DatasetError(f"the split '{expression}' cannot be read at '{part}': {FORM}")
        name = match["name"]
        if name not in records:
            raise DatasetError(f"there is no split '{name}'{did_you_mean(name, records)}; there are: {listed(records)}")
        first = _record(match["first"] or "0", records[name], expression)
        found.append((name, first, max(first, _record(match["end"] or "100%", records[name], expression))))
    return found


def _record(written: str, size: int, expression: str) -> int:
    if written.endswith("%"):
        share = int(written[:-1])
        if abs(share) > 100:
            raise DatasetError(f"the split '{expression}' asks for {written}: a share is -100% to 100%")
        record = round(size * share / 100)
    else:
        record = int(written)
    return min(size, max(0, record + size if written.startswith("-") else record))
