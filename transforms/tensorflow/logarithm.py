"""The natural logarithm, with the same bits in any batch, in any graph and on any CPU.

TensorFlow's own `log` computes the end of a batch by other code than its vectors, so that a value's last bits depend on
its position. This one uses integer arithmetic and +, -, * and /, which IEEE 754 rounds alike everywhere.

>>> log(tf.constant([1.0], tf.float64)).numpy()
array([0.])
"""

import tensorflow as tf

LN2_HIGH = 6.93147180369123816490e-01  # its last bits are zeros, so that a product with an exponent is exact
LN2_LOW = 1.90821492927058770002e-10
SERIES = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
FRACTION_BITS = 52


def log(x: tf.Tensor) -> tf.Tensor:
    """Gives the natural logarithm of positive, normal, finite float64 values of any shape, within one ulp.

    Source: `__ieee754_log` of Sun's fdlibm: x = 2**k * (1 + f), 1 + f between the roots of 1/2 and 2, and a series in
    f / (2 + f). Anything else, NaN and 0 too, gives some number.
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
    """Gives log(1 + x) of finite float64 values above -1 of any shape, as exact near 0 as elsewhere.

    The rounding error of 1 + x is added to its logarithm to first order (as in fdlibm's `log1p`).
    """
    y = x + 1.0
    return log(y) + (x - (y - 1.0)) / y
