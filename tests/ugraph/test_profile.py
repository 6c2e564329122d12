"""What a block does, counted."""

from tests.ugraph.programs import attention, elementwise, matmul, norm_linear, pulled
from ugraph.graph import BlockGraph, Range
from ugraph.profile import Profile, profile, varies
from ugraph.program import Program
from ugraph.schedule import block
from ugraph.terms import ref


def _profile(program: Program, loop: str | None, *grid: str) -> Profile:
    tensors = {t.name: t for t in program.inputs}
    ranges = tuple(Range(x, 8) for x in grid)
    walked = Range(loop, 16) if loop else None
    kernel = block("k", program.outputs, ranges, walked)
    assert kernel is not None
    return profile(kernel, tensors, program.sizes)


def test_a_matrix_product_is_loads_and_one_dot() -> None:
    p = _profile(matmul(), "k", "m", "n")
    assert {x.tensor.name: x.looped for x in p.loads} == {"x": True, "w": True}
    assert [d.looped for d in p.dots] == [True]
    assert p.maps == ()  # the product is the matrix unit's
    assert p.accumulators == (("m", "n"),)
    assert [t.name for t, _ in p.stores] == ["o"]


def test_what_does_not_vary_is_done_once() -> None:
    p = _profile(pulled(attention()), "t", "h", "s")
    assert {x.tensor.name: x.looped for x in p.loads} == {
        "q": False,
        "k": True,
        "v": True,
    }
    assert len(p.dots) == 2
    assert any(m.looped for m in p.maps)
    assert any(not m.looped for m in p.maps)


def test_a_tensor_read_in_two_passes_is_loaded_twice() -> None:
    p = _profile(norm_linear(), "d", "b", "n")
    assert {x.tensor.name: x.repeats for x in p.loads} == {"x": 2, "g": 1, "w": 1}


def test_without_a_loop_nothing_is_looped() -> None:
    p = _profile(elementwise(), None, "b")
    assert not any(x.looped for x in (*p.loads, *p.maps))
    assert p.dots == ()


def test_varies() -> None:
    now = ref("acc0", ("a",))
    assert varies(now, "t", {"acc0"})
    assert not varies(now, "t", {"acc1"})
    (out,) = matmul().outputs
    assert varies(out.term, "k", set())
    assert not varies(out.term, "t", set())
    assert isinstance(_profile(matmul(), "k").kernel, BlockGraph)
