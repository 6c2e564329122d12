"""The statements of one place in a block; `test_triton` runs whole kernels."""

from pallas_codegen.tile import vanishes
from ugraph.terms import add, exp, lit, mul, power, read


def test_vanishing_past_the_end() -> None:
    x, y = read("x", (("a",), ("b",))), read("y", (("b",),))
    one = lit(1)
    assert vanishes(mul(x, x), "b")
    assert vanishes(mul(x, y), "a")
    assert vanishes(add(x, x), "a")
    assert not vanishes(add(x, y), "a")
    assert not vanishes(add(x, one), "a")
    assert not vanishes(exp(x), "a")
    assert not vanishes(mul(x, power(y, -1)), "b")
