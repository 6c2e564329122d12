"""Arithmetic over the two finite fields, vectorised in JAX over trials and elements.

A value over the fields is a pair of residues, mod P and mod Q, with Q prime and P = 2Q
+ 1 prime: then Z_P has a subgroup S of order Q, and exp(x) = ω^x takes Z_Q to S for a
generator ω of S (paper section 5). Both primes are below 2^32, so that a product of two
residues fits 64 bits.

Arrays come and go as NumPy's. Each operation is one compiled JAX kernel on flat arrays
whose length is a power of two: whatever shapes the candidates of a process have, they
share a few dozen compiled kernels. (One program for a whole plan is some thousand
modular operations, and takes XLA minutes to compile.) The 64-bit integers are switched
on around each kernel alone; the user's configuration is not touched.
"""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray

Q = 2147483543
P = 2 * Q + 1

SHORTEST = 256
BITS = 32
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def add(x: Array, y: Array, modulus: int) -> Array:
    """The sum, element by element."""
    return _elementwise(_add, (x, y), modulus)


def mul(x: Array, y: Array, modulus: int) -> Array:
    """The product, element by element."""
    return _elementwise(_mul, (x, y), modulus)


def total(x: Array, axes: tuple[int, ...], modulus: int) -> Array:
    """The sum over `axes` (fewer than 2^32 elements each)."""
    axes = tuple(a % x.ndim for a in axes)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    shape = tuple(x.shape[i] for i in kept)
    table = x.transpose((*kept, *axes)).reshape(prod(shape), -1)
    padded = np.zeros((_bucket(table.shape[0]), _bucket(table.shape[1], 4)), np.uint64)
    padded[: table.shape[0], : table.shape[1]] = table
    return _call(_total, padded, np.uint64(modulus))[: table.shape[0]].reshape(shape)


def power(x: Array, exponent: int, modulus: int) -> Array:
    """A whole power, element by element; a negative one of zero is zero."""
    exponent = exponent % (modulus - 1) if exponent < 0 else exponent
    exponents = np.full((1,) * x.ndim, exponent, np.uint64)
    return _elementwise(_power, (x, exponents), modulus)


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


def root_power(roots: Array, exponents: Array) -> Array:
    """ω^x for residues x mod Q, whose first axis is the trial (or one for all)."""
    bases = roots.reshape((-1, *(1,) * (exponents.ndim - 1)))
    return _elementwise(_power, (bases, exponents), P)


def mix(x: Array, salt: int) -> Array:
    """A 64-bit hash of every element, another one for every salt (splitmix64)."""
    return _elementwise(_mix, (x,), (salt * _GOLDEN + _GOLDEN) & _WORD)


def _elementwise(
    kernel: Callable[..., jax.Array], arrays: tuple[Array, ...], number: int
) -> Array:
    """A kernel on arrays that broadcast, as flat arrays of a length in use already."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    size = prod(shape)
    flat = [np.ones(_bucket(size), np.uint64) for _ in arrays]
    for line, a in zip(flat, arrays, strict=True):
        line[:size] = np.broadcast_to(a, shape).reshape(-1)
    return _call(kernel, *flat, np.uint64(number))[:size].reshape(shape)


def _bucket(size: int, shortest: int = SHORTEST) -> int:
    return max(shortest, 1 << (max(size, 1) - 1).bit_length())


def _call(kernel: Callable[..., jax.Array], *arguments: Array | np.uint64) -> Array:
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return np.asarray(kernel(*arguments))


@jax.jit
def _add(x: jax.Array, y: jax.Array, modulus: jax.Array) -> jax.Array:
    return (x + y) % modulus


@jax.jit
def _mul(x: jax.Array, y: jax.Array, modulus: jax.Array) -> jax.Array:
    return x * y % modulus


@jax.jit
def _total(x: jax.Array, modulus: jax.Array) -> jax.Array:
    return x.sum(axis=1) % modulus


@jax.jit
def _power(x: jax.Array, exponents: jax.Array, modulus: jax.Array) -> jax.Array:
    """Square and multiply over the bits of the exponents (below 2^32)."""

    def bit(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        result, square = state
        taken = (exponents >> i.astype(jnp.uint64)) & jnp.uint64(1)
        result = jnp.where(taken == 1, result * square % modulus, result)
        return result, square * square % modulus

    start = (jnp.ones_like(x), x)
    return jax.lax.fori_loop(0, BITS, bit, start)[0]


@jax.jit
def _mix(x: jax.Array, salt: jax.Array) -> jax.Array:
    x = x + salt
    x = (x ^ (x >> jnp.uint64(30))) * jnp.uint64(_MIX_1)
    x = (x ^ (x >> jnp.uint64(27))) * jnp.uint64(_MIX_2)
    return x ^ (x >> jnp.uint64(31))
