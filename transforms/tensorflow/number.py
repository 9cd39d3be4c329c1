"""Numbers: clipped, transformed, normalized or bucketed, in float64: the same bits in any batch.

The steps: clip, transform, statistics of the train split, imputation of missing numbers, normalize or bucket. A missing
number is NaN; statistics skip it. Statistics of lists cover all their numbers.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from recordmill.transforms.contract.kinds.values import SMALLEST
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics

if TYPE_CHECKING:
    from recordmill.pipeline.spec.features.values import Number, ScaledFeature

LN2_HIGH = 6.93147180369123816490e-01  # its last bits are zeros, for exact products with an exponent
LN2_LOW = 1.90821492927058770002e-10
SERIES = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
FRACTION_BITS = 52


def log(x: tf.Tensor) -> tf.Tensor:
    """Returns the natural logarithm of positive, normal, finite float64 values of any shape, within one ulp.

    Source: `__ieee754_log` of Sun's fdlibm: x = 2**k * (1 + f), 1 + f between the roots of 1/2 and 2, and a series in
    f / (2 + f). Other inputs, including NaN and 0, give arbitrary numbers.
    """
    bits, shift = tf.bitcast(x, tf.int64), tf.constant(FRACTION_BITS, tf.int64)
    exponent = tf.bitwise.right_shift(bits - ROOT_HALF, shift)
    f = tf.bitcast(bits - tf.bitwise.left_shift(exponent, shift), tf.float64) - 1.0
    k = tf.cast(exponent, tf.float64)
    s = f / (f + 2.0)
    z = s * s
    series = z * SERIES[-1]
    for coefficient in SERIES[-2::-1]:
        series = (series + coefficient) * z
    half = f * f * 0.5
    return k * LN2_HIGH - ((half - (s * (half + series) + k * LN2_LOW)) - f)


def log1p(x: tf.Tensor) -> tf.Tensor:
    """Returns log(1 + x) of finite float64 values above -1 of any shape, as exact near 0 as elsewhere.

    Adds the rounding error of 1 + x to its logarithm, to first order (as fdlibm's `log1p`).
    """
    y = x + 1.0
    return log(y) + (x - (y - 1.0)) / y


TRANSFORMS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {"log": log, "log1p": log1p}


def prepare(options: "Number", column: tf.Tensor, context: Context) -> Prepared:
    """Stores a float32 or an int64 bucket id; with `indicator` also the part `missing`, int64 1 or 0."""
    values = transformed(options, column)
    known = ~tf.math.is_nan(column) if options.optional else None

    def store(statistics: Statistics) -> Parts:
        if known is None:
            return {"": normalized(options, values, statistics)}
        learned = {"mean": statistics.mean, "median": statistics.median}.get(options.impute)
        number = lambda: tf.cast(transformed(options, tf.constant(options.impute, tf.float32)), tf.float64)  # noqa: E731
        exact = tf.where(known, tf.cast(values, tf.float64), number() if learned is None else learned)
        stored = {"": normalized(options, exact, statistics)}
        return stored | {"missing": tf.cast(~known, tf.int64)} if options.indicator else stored

    if not options.learns:
        return Prepared(store)
    return Prepared(store, values=lambda: values if known is None else tf.boolean_mask(values, known))


def transformed(options: "ScaledFeature", values: tf.Tensor) -> tf.Tensor:
    """Clips and transforms float32 values of any shape to float32; values below `SMALLEST` become 0."""
    values = tf.where(tf.abs(values) < SMALLEST, values * 0, values)
    low, high = options.clip or (None, None)
    if low is not None:
        values = tf.where(values < low, tf.constant(low, tf.float32), values)
    if high is not None:
        values = tf.where(values > high, tf.constant(high, tf.float32), values)
    if options.transform == "none":
        return values
    return tf.cast(TRANSFORMS[options.transform](tf.cast(values, tf.float64)), tf.float32)


def normalized(options: "ScaledFeature", values: tf.Tensor, statistics: Statistics) -> tf.Tensor:
    """Makes the stored float32 or int64 values from transformed ones, float32 or float64 without NaN."""
    if options.boundaries is not None:
        return _bucket(values, tf.constant(options.boundaries, tf.float32))
    if options.quantiles is not None:
        return _bucket(values, tf.cast(statistics.boundaries, tf.float32))
    if options.normalize == "none":
        return tf.identity(tf.cast(values, tf.float32))  # a stored tensor must differ from the raw tensor
    if options.normalize == "z_score":
        origin, scale = statistics.mean, statistics.scale
    else:
        origin, scale = statistics.minimum, statistics.range_scale
    return tf.cast((tf.cast(values, tf.float64) - origin) * scale, tf.float32)


def _bucket(values: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    return tf.searchsorted(boundaries, tf.cast(values, tf.float32), side="right", out_type=tf.int64)
