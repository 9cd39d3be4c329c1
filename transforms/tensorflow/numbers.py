"""Lists of numbers: each as in `tensorflow.number`, by the statistics of all numbers in the train split's lists."""

import tensorflow as tf

from recordmill.transforms.contract.kinds.number import NumbersDescription, NumbersOptions
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.lists import cut, of_train, padded
from recordmill.transforms.tensorflow.number import normalized, transformed, wanted


def prepare(options: NumbersOptions, column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores lists of float32, or of the int64 ids of buckets."""
    kept = cut(options.max_length, column)
    values = kept.with_flat_values(transformed(options, kept.flat_values))

    def store(statistics: Statistics) -> Parts:
        return {"": values.with_flat_values(normalized(options, values.flat_values, statistics))}

    if not options.is_learned:
        return Prepared(store)
    return Prepared(store, values=of_train(values, context.train), wanted=wanted(options))


def features(description: NumbersDescription, stored: Parts) -> Parts:
    """Pads with 0, and gives the part `length` where it varies (`lists.padded`)."""
    return padded(description, stored[""])
