"""FarmHash's Fingerprint64 in plain Python, after `farmhashna` of github.com/google/farmhash (`farmhash.cc`)."""

K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
BITS = (1 << 64) - 1


def fingerprint64(data: bytes) -> int:
    """Returns the fingerprint, from 0 to 2**64 - 1."""
    if len(data) <= 16:
        return _up_to_16(data)
    if len(data) <= 32:
        return _up_to_32(data)
    return _up_to_64(data) if len(data) <= 64 else _longer(data)


def _fetch(data: bytes, at: int, size: int = 8) -> int:
    at = at if at >= 0 else len(data) + at
    return int.from_bytes(data[at : at + size], "little")


def _rotated(value: int, bits: int) -> int:
    return (value >> bits | value << (64 - bits)) & BITS


def _mixed(value: int) -> int:
    return value ^ value >> 47


def _hash_16(u: int, v: int, multiplier: int) -> int:
    a = _mixed((u ^ v) * multiplier & BITS)
    return _mixed((v ^ a) * multiplier & BITS) * multiplier & BITS


def _up_to_16(data: bytes) -> int:
    size = len(data)
    multiplier = K2 + size * 2 & BITS
    if size >= 8:
        a, b = _fetch(data, 0) + K2 & BITS, _fetch(data, -8)
        c, d = _rotated(b, 37) * multiplier + a & BITS, (_rotated(a, 25) + b) * multiplier & BITS
        return _hash_16(c, d, multiplier)
    if size >= 4:
        return _hash_16(size + (_fetch(data, 0, 4) << 3), _fetch(data, -4, 4), multiplier)
    if size == 0:
        return K2
    y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
    return _mixed(y * K2 & BITS ^ z * K0 & BITS) * K2 & BITS


def _up_to_32(data: bytes) -> int:
    multiplier = K2 + len(data) * 2 & BITS
    a, b = _fetch(data, 0) * K1 & BITS, _fetch(data, 8)
    c, d = _fetch(data, -8) * multiplier & BITS, _fetch(data, -16) * K2 & BITS
    return _hash_16(_rotated(a + b & BITS, 43) + _rotated(c, 30) + d & BITS,
                    a + _rotated(b + K2 & BITS, 18) + c & BITS, multiplier)  # fmt: skip


def _up_to_64(data: bytes) -> int:
    multiplier = K2 + len(data) * 2 & BITS
    a, b = _fetch(data, 0) * K2 & BITS, _fetch(data, 8)
    c, d = _fetch(data, -8) * multiplier & BITS, _fetch(data, -16) * K2 & BITS
    y = _rotated(a + b & BITS, 43) + _rotated(c, 30) + d & BITS
    z = _hash_16(y, a + _rotated(b + K2 & BITS, 18) + c & BITS, multiplier)
    e, f = _fetch(data, 16) * multiplier & BITS, _fetch(data, 24)
    g, h = (y + _fetch(data, -32)) * multiplier & BITS, (z + _fetch(data, -24)) * multiplier & BITS
    return _hash_16(_rotated(e + f & BITS, 43) + _rotated(g, 30) + h & BITS,
                    e + _rotated(f + a & BITS, 18) + g & BITS, multiplier)  # fmt: skip


def _weak_32(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_fetch(data, at + 8 * number) for number in range(4))
    a = a + w & BITS
    b = _rotated(b + a + z & BITS, 21)
    c, a = a, a + x + y & BITS
    return a + z & BITS, b + _rotated(a, 44) + c & BITS


def _longer(data: bytes) -> int:
    seed = 81
    x, y = seed, seed * K1 + 113 & BITS
    z = _mixed(y * K2 + 113 & BITS) * K2 & BITS
    v, w = (0, 0), (0, 0)
    x = x * K2 + _fetch(data, 0) & BITS
    end = (len(data) - 1) // 64 * 64
    last = end + ((len(data) - 1) & 63) - 63
    for at in range(0, end, 64):
        x = _rotated(x + y + v[0] + _fetch(data, at + 8) & BITS, 37) * K1 & BITS
        y = _rotated(y + v[1] + _fetch(data, at + 48) & BITS, 42) * K1 & BITS
        x ^= w[1]
        y = y + v[0] + _fetch(data, at + 40) & BITS
        z = _rotated(z + w[0] & BITS, 33) * K1 & BITS
        v = _weak_32(data, at, v[1] * K1 & BITS, x + w[0] & BITS)
        w = _weak_32(data, at + 32, z + w[1] & BITS, y + _fetch(data, at + 16) & BITS)
        z, x = x, z
    multiplier = K1 + ((z & 0xFF) << 1) & BITS
    w = (w[0] + (len(data) - 1 & 63) & BITS, w[1])
    v = (v[0] + w[0] & BITS, v[1])
    w = (w[0] + v[0] & BITS, w[1])
    x = _rotated(x + y + v[0] + _fetch(data, last + 8) & BITS, 37) * multiplier & BITS
    y = _rotated(y + v[1] + _fetch(data, last + 48) & BITS, 42) * multiplier & BITS
    x ^= w[1] * 9 & BITS
    y = y + v[0] * 9 + _fetch(data, last + 40) & BITS
    z = _rotated(z + w[0] & BITS, 33) * multiplier & BITS
    v = _weak_32(data, last, v[1] * multiplier & BITS, x + w[0] & BITS)
    w = _weak_32(data, last + 32, z + w[1] & BITS, y + _fetch(data, last + 16) & BITS)
    z, x = x, z
    return _hash_16(
        _hash_16(v[0], w[0], multiplier) + _mixed(y) * K0 + z & BITS,
        _hash_16(v[1], w[1], multiplier) + x & BITS,
        multiplier,
    )
