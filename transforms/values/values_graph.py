"""Values: names as ids, numbers, and values stored unchanged; one a row, or several.

Names become ids by vocabulary index or by hash. A label's ids are the indices, from 0. Otherwise 0 is a missing or
unknown name, then come the `oov_buckets` shared by unknown names, then the vocabulary. `hash_buckets` replaces the
vocabulary by ids 1 to n. In lists unknown names have the id 1, because 0 pads. Numbers are clipped, transformed,
imputed by statistics of the train split, and normalized or bucketed, in float64: the same bits in any batch; NaN is
missing.
"""

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from recordmill.transforms.base.graph import Context, Parts, Prepared, Statistics, cut, padded
from recordmill.transforms.values.values_stored import SMALLEST, CategoriesDescription, OwnDescription

if TYPE_CHECKING:
    from recordmill.transforms.values.category_spec import Category, NamedClasses
    from recordmill.transforms.values.values_spec import Number, Raw, ScaledFeature

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
    """Returns log(1 + x) of float64 values above -1, as exact near 0, by adding 1 + x's rounding error (fdlibm)."""
    y = x + 1.0
    return log(y) + (x - (y - 1.0)) / y


def prepare_numbers(options: "Number", column: tf.Tensor, context: Context) -> Prepared:
    """Stores a float32 or an int64 bucket id; with `indicator` also the part `missing`, int64 1 or 0."""
    values = transformed(options, column)
    known = ~tf.math.is_nan(column) if options.optional else None

    def store(statistics: Statistics) -> Parts:
        if known is None:
            return {"": normalized(options, values, statistics)}
        exact = tf.cast(values, tf.float64)
        if isinstance(options.impute, str):
            imputed = statistics.mean if options.impute == "mean" else statistics.median
        else:
            imputed = tf.cast(transformed(options, tf.constant(options.impute, tf.float32)), tf.float64)
        stored = {"": normalized(options, tf.where(known, exact, imputed), statistics)}
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
    transform = log if options.transform == "log" else log1p
    return tf.cast(transform(tf.cast(values, tf.float64)), tf.float32)


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


def prepare_names(options: "Category", column: tf.Tensor | None, context: Context) -> Prepared:
    """Stores int64 ids; a `cross`, without a column, joins the names of other features, empty if one is missing."""
    names = column
    if names is None:
        crossed = [context.columns[name] for name in options.cross or ()]
        missing = tf.reduce_any([each == "" for each in crossed], axis=0)
        names = tf.where(missing, "", tf.strings.join(crossed, separator="\n"))  # names contain no line breaks

    def store(statistics: Statistics) -> Parts:
        return {"": ids(options, names, statistics, is_label=context.learned.is_label)}

    def known() -> tf.Tensor:
        return tf.boolean_mask(names, names != "") if options.optional else names

    return Prepared(store, tokens=known if options.learns else None)


def ids(options: "NamedClasses", names: tf.Tensor, statistics: Statistics, *, is_label: bool = False) -> tf.Tensor:
    """Returns the int64 ids of names of any shape."""
    if options.hash_buckets is not None:
        return _hashed(names, options.hash_buckets)
    assert statistics.lookup is not None  # noqa: S101 - the analysis gives every vocabulary
    indices = statistics.lookup(names, -1)
    if is_label:
        return indices
    if not options.oov_buckets:
        return indices + 1
    return tf.where(indices < 0, _hashed(names, options.oov_buckets), indices + 1 + options.oov_buckets)


def _hashed(names: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns ids 1 to n by FarmHash's stable Fingerprint64; 0 for a missing name."""
    return tf.where(names == "", tf.constant(0, tf.int64), tf.strings.to_hash_bucket_fast(names, buckets) + 1)


def list_features(description: CategoriesDescription, stored: Parts) -> Parts:
    """Returns padded ids and the part `length` (`padded`), or float32 1s and 0s for `multi_hot`."""
    rows = stored[""]
    if description.read != "multi_hot":
        return padded(description, rows, tf.constant(description.padding_id, tf.int64))
    values, size = tf.cast(rows.flat_values, tf.int64), description.vocabulary_size
    positions = tf.boolean_mask(tf.stack([rows.value_rowids(), values], axis=1), values >= 0)  # skips negative ids
    times = tf.scatter_nd(positions, tf.ones_like(positions[:, 0], tf.float32), [rows.nrows(), size])
    return {"": tf.ensure_shape(tf.minimum(times, 1.0), [None, size])}


def prepare_raw(options: "Raw", column: Any, context: Context) -> Prepared:
    """Stores the column: a value a row, or with `many` a list."""
    kept = cut(options.max_length, column) if options.many else column
    return Prepared(lambda _: {"": tf.identity(kept)})


def own_features(description: OwnDescription, stored: Parts) -> Parts:
    """Returns the values, shape [rows, *shape]; pads ragged rows with 0 or `""`, [rows, longest]."""
    values = stored[""]
    return {"": values.to_tensor() if isinstance(values, tf.RaggedTensor) else values}
