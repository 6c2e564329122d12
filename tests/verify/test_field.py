"""Field arithmetic against Python's integers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from verify import field as ff
from verify.field import P, Q

exact = settings(deadline=None, derandomize=True, database=None, max_examples=60)
residues = st.lists(st.integers(0, Q - 1) | st.just(Q - 1), min_size=1, max_size=8)


def array(values) -> ff.Array:
    return np.array(values, np.uint64)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def test_both_moduli_are_prime_and_products_fit():
    assert is_prime(Q)
    assert is_prime(P)
    assert P == 2 * Q + 1
    assert (P - 1) ** 2 + (P - 1) < 2**64


@exact
@given(residues, st.integers(0, Q - 1))
def test_sums_and_products(values, other):
    for modulus in (P, Q):
        x, y = array(values), array([other])
        assert ff.add(x, y, modulus).tolist() == [(v + other) % modulus for v in values]
        assert ff.mul(x, y, modulus).tolist() == [v * other % modulus for v in values]
        assert int(ff.total(x, (0,), modulus)) == sum(values) % modulus


@exact
@given(residues, st.integers(-40, 40))
def test_powers(values, exponent):
    for modulus in (P, Q):
        nonzero = [v or 1 for v in values]
        got = ff.power(array(nonzero), exponent, modulus)
        assert got.tolist() == [pow(v, exponent, modulus) for v in nonzero]


def test_a_negative_power_of_zero_is_zero():
    assert ff.power(array([0]), -1, P).tolist() == [0]


@exact
@given(st.integers(-(10**20), 10**20), st.integers(1, 10**6))
def test_rationals(n, d):
    assert ff.rational(n, d, P) * d % P == n % P


def test_a_denominator_that_vanishes_has_no_residue():
    with pytest.raises(ZeroDivisionError):
        ff.rational(1, 3 * Q, Q)


@exact
@given(residues, st.integers(0, 1000))
def test_the_exponential_is_a_homomorphism_into_the_subgroup(values, seed):
    roots = ff.roots_of_unity(np.random.default_rng(seed), 3)
    x = array(values)[None]
    got = ff.root_power(roots, x)
    assert got.tolist() == [[pow(int(w), v, P) for v in values] for w in roots]
    assert all(pow(int(w), Q, P) == 1 != int(w) for w in roots)
    twice = ff.root_power(roots, ff.add(x, x, Q))
    assert (twice == ff.mul(got, got, P)).all()


def test_hashes_differ_by_salt_and_value():
    x = np.arange(1000, dtype=np.uint64)
    hashes = np.concatenate([ff.mix(x, salt) for salt in (0, 1, 2)])
    assert len(set(hashes.tolist())) == 3000
