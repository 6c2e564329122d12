"""From text to functions."""

import traceback

import pytest

import pallas_codegen
from pallas_codegen import Source

TEXT = "def run(x, *, interpret=False):\n    return (1 / x,)\n"


def test_equal_sources_give_one_function() -> None:
    one, other = Source("xla", TEXT), Source("xla", str(TEXT))
    assert pallas_codegen.load(one) is pallas_codegen.load(other)
    assert one.key == other.key


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        pallas_codegen.load(Source("xla", TEXT))(0)
    shown = "".join(traceback.format_exception(caught.value))
    assert "return (1 / x,)" in shown
    assert "<mirage_jax:xla-" in shown
