"""Axes of values."""

import dataclasses
from math import prod

import hypothesis.strategies as st
from hypothesis import given

from pallas_codegen.layout import Layout, is_dot, order, padded, whole
from tests.ugraph import programs as made
from ugraph.contraction import as_contraction
from ugraph.graph import BlockGraph, Predefined, Range
from ugraph.schedule import structures


def kernel(tile: int) -> BlockGraph:
    """x @ w with tiles of one size."""
    found = next(k for k in structures(made.matmul().outputs) if k.loop)
    grid = tuple(Range(r.label, tile) for r in found.grid)
    return dataclasses.replace(found, grid=grid, loop=Range("k", tile))


def test_axes_keep_the_order_of_the_tensors() -> None:
    assert order(kernel(16)) == ("m", "k", "n")


def test_a_label_of_length_one_is_no_axis() -> None:
    layout = Layout(("a", "b"), {"a": 4, "b": 4}, {"a": 1, "b": 4}, {"a": 1, "b": 4})
    assert layout.axes(("b", "a")) == ("b",)
    assert layout.shape(("a", "b")) == (1, 4)


@given(st.integers(2, 70))
def test_tiles_are_padded_to_powers_of_two_and_dots_to_sixteen(tile: int) -> None:
    layout = padded(kernel(tile), made.matmul().sizes)
    for label in ("m", "n", "k"):
        length = layout.lengths[label]
        assert length >= max(16, tile)
        assert length & (length - 1) == 0
        assert length < 2 * max(16, tile)


def test_a_label_is_masked_where_its_tile_reaches_past_the_end() -> None:
    sizes = made.matmul(32, 64, 48).sizes
    assert not any(padded(kernel(16), sizes).is_masked(x) for x in sizes)
    assert all(padded(kernel(20), sizes).is_masked(x) for x in sizes)


def test_whole_arrays_are_not_padded() -> None:
    program = made.matmul(3, 5, 7)
    layout = whole(Predefined("p", program.outputs), program.sizes)
    assert dict(layout.lengths) == program.sizes


def test_a_dot_has_two_sides_and_no_batch() -> None:
    term = made.attention().outputs[0].term
    sizes = made.attention().sizes
    product = as_contraction(term, sizes)
    while product is None:
        term = term.args[0]
        product = as_contraction(term, sizes)
    batch = dict.fromkeys(product.batch, 1)
    assert product.batch
    assert not is_dot(product, sizes)
    assert is_dot(product, sizes | batch)
    assert prod(sizes.values()) > 1
