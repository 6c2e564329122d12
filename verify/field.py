"""Arithmetic over the two finite fields, vectorised over trials.

A value over the fields is a pair of residues, mod P and mod Q, with Q prime and P = 2Q
+ 1 prime: then Z_P has a subgroup S of order Q, and exp(x) = ω^x takes Z_Q to S for a
generator ω of S (paper section 5). Both primes are below 2^32, so that a product of two
residues fits 64 bits.

Every function is written with the operators of arrays, so that NumPy arrays and traced
JAX arrays (under x64) can both be passed; see `verify.evaluate` for which is used when.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray

Q = 2147483543
P = 2 * Q + 1

_BYTE = 256
_BYTES = 4
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def add(x: Array, y: Array, modulus: int) -> Array:
    """X + y."""
    return (x + y) % modulus


def mul(x: Array, y: Array, modulus: int) -> Array:
    """X · y."""
    return (x * y) % modulus


def total(x: Array, axes: tuple[int, ...], modulus: int) -> Array:
    """The sum over `axes` (fewer than 2^32 elements each)."""
    return x.sum(axis=axes) % modulus


def power(x: Array, exponent: int, modulus: int) -> Array:
    """X to a whole power; a negative one of zero is zero (the caller marks it)."""
    exponent = exponent % (modulus - 1) if exponent < 0 else exponent
    result = x * 0 + 1
    while exponent:
        if exponent & 1:
            result = mul(result, x, modulus)
        exponent >>= 1
        if exponent:
            x = mul(x, x, modulus)
    return result


def rational(numerator: int, denominator: int, modulus: int) -> int:
    """Numerator / denominator as a residue.

    Raises:
      ZeroDivisionError: when the modulus divides the denominator.
    """
    if denominator % modulus == 0:
        raise ZeroDivisionError(f"1/{denominator} mod {modulus}")
    return numerator * pow(denominator, -1, modulus) % modulus


def roots_of_unity(rng: np.random.Generator, trials: int) -> Array:
    """For every trial a random generator ω of the subgroup S of order Q."""
    bases = rng.integers(2, P - 1, size=trials, dtype=np.uint64)
    return mul(bases, bases, P)  # a square other than 1 has order Q, Q being prime


def power_table(roots: Array) -> Array:
    """ω^(k·256^i) for every trial, i < 4 and k < 256: `root_power` looks them up."""
    table = np.ones((len(roots), _BYTES, _BYTE), np.uint64)
    base = roots
    for i in range(_BYTES):
        for k in range(1, _BYTE):
            table[:, i, k] = mul(table[:, i, k - 1], base, P)
        base = mul(table[:, i, -1], base, P)
    return table


def root_power(table: Array, exponents: Array) -> Array:
    """ω^x for residues x mod Q, whose first axis is the trial (or one for all)."""
    trials = len(table)
    exponents = np.broadcast_to(exponents, (trials, *exponents.shape[1:]))
    trial = np.arange(trials).reshape((-1, *(1,) * (exponents.ndim - 1)))
    result = None
    for i in range(_BYTES):
        digit = ((exponents >> np.uint64(8 * i)) & np.uint64(255)).astype(np.int64)
        part = table[trial, i, digit]
        result = part if result is None else mul(result, part, P)
    assert result is not None
    return result


def mix(x: Array, salt: int) -> Array:
    """A 64-bit hash of every element, another one for every salt (splitmix64)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64((salt * _GOLDEN + _GOLDEN) & _WORD)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
        return x ^ (x >> np.uint64(31))
