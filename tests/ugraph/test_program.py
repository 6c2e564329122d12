"""Programs: shapes that follow from labels, keys."""

import pickle

from hypothesis import given

from tests.ugraph.programs import MAKERS, attention, gram, load, matmul
from tests.ugraph.strategies import programs
from ugraph.program import (
    ITEMSIZE,
    Program,
    Tensor,
    axes_shape,
    bound_labels,
    factor_sizes,
    reads,
)
from ugraph.terms import Fixed


def test_a_tensor_knows_its_bytes() -> None:
    assert Tensor("x", "bf16", (3, 5)).bytes == 30
    assert Tensor("x", "f32", ()).bytes == 4
    assert set(ITEMSIZE) >= {"bf16", "f16", "f32", "bool", "i32"}


def test_shapes_follow_from_factors() -> None:
    axes = (("a", "b"), (), (Fixed(1, 3), "a"))
    sizes = {"a": 2, "b": 5}
    assert factor_sizes(axes, sizes) == (2, 5, 3, 2)
    assert axes_shape(axes, sizes) == (10, 1, 6)


@given(programs)
def test_every_access_has_its_tensor_s_shape(program: Program) -> None:
    shapes = {t.name: t.shape for t in program.inputs}
    for access in reads(*(o.term for o in program.outputs)):
        assert axes_shape(access.axes, program.sizes) == shapes[access.tensor]
    for o in program.outputs:
        assert axes_shape(o.axes, program.sizes) == o.tensor.shape


@given(programs)
def test_keys_are_stable_and_survive_pickling(program: Program) -> None:
    assert pickle.loads(pickle.dumps(program)).key == program.key
    assert len(program.key) == 24


def test_keys_tell_programs_apart() -> None:
    keys = {make().key for make in MAKERS}
    assert len(keys) == len(MAKERS)
    assert matmul(m=32).key != matmul(m=33).key


def test_reads_lists_each_role_of_a_tensor() -> None:
    (out,) = gram().outputs
    assert {a.axes for a in reads(out.term)} == {(("m",), ("k",)), (("n",), ("k",))}


def test_bound_labels() -> None:
    (out,) = attention().outputs
    assert bound_labels(out.term) == ("e", "t")
    assert bound_labels(load("x", "ab")) == ()


def test_text_names_extents_tensors_and_outputs() -> None:
    text = str(matmul())
    assert "k=64" in text
    assert "x: bf16[32, 64]" in text
    assert "o[m,n] = sum[k]" in text
