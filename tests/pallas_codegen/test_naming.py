"""Names in emitted code."""

import keyword

import hypothesis.strategies as st
from hypothesis import given

from pallas_codegen.naming import RESERVED, Namer


@given(st.lists(st.text(max_size=8)))
def test_names_are_identifiers_and_never_twice_the_same(wishes: list[str]) -> None:
    namer = Namer()
    names = [namer.fresh(w) for w in wishes]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isidentifier()
        assert not keyword.iskeyword(name)
        assert name not in RESERVED


def test_a_wish_that_is_free_is_granted() -> None:
    namer = Namer()
    assert [namer.fresh("sum"), namer.fresh("sum")] == ["sum", "sum_1"]
