"""The numerics guard accepts honest code and rejects fragile code."""

from dataclasses import replace
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import verify
from tests.ugraph.programs import MAKERS, layer_norm, load, program, softmax
from tests.verify import zoo
from ugraph.ops import Op, register, unregister
from ugraph.program import Program
from ugraph.terms import make, mul, power, reduce
from verify import numbers, numeric
from verify.numbers import DTYPES
from verify.values import UnsupportedError

F32 = np.float32
BF16 = DTYPES["bf16"]


def f32(value) -> np.ndarray:
    return np.asarray(value).astype(F32)


@pytest.mark.parametrize("make_program", [*MAKERS, *zoo.MAKERS])
def test_the_program_as_written_and_its_exact_value_pass(make_program):
    made = make_program()

    def rounded(inputs):
        exact = verify.reference(made, inputs)
        with np.errstate(over="ignore"):
            return [
                x.astype(DTYPES[o.tensor.dtype])
                for x, o in zip(exact, made.outputs, strict=True)
            ]

    for run in (lambda inputs: verify.emulate(made, inputs), rounded):
        verdict = verify.guard(made, made.sizes, run)
        assert verdict.ok, verdict.reason
    summary = verdict.summary()
    assert {"normal", "large", "wide"} <= set(summary)
    assert all({"original", "winner"} <= set(s) for s in summary.values())


def test_reference_and_emulation_of_a_norm():
    made = layer_norm(4, 6)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(BF16)
    centred = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    (exact,) = verify.reference(made, [x])
    np.testing.assert_allclose(exact, want, rtol=1e-12)
    (written,) = verify.emulate(made, [x])
    assert written.dtype == BF16
    np.testing.assert_allclose(f32(written), want, rtol=1e-2, atol=1e-2)


def test_emulation_rounds_where_the_program_rounds():
    x = load("x", "b")
    made = program({"b": 4}, {"x": "b"}, {"o": ("b", mul(x, x))}, "f32")
    rounded = replace(made, roundings=((made.outputs[0].term, "bf16"),))
    value = [np.full(4, 1.2345678, F32)]
    (plain,), (short,) = verify.emulate(made, value), verify.emulate(rounded, value)
    assert (plain == value[0] ** 2).all()
    assert (short == (value[0] ** 2).astype(BF16).astype(F32)).all()


def test_operands_are_rounded_to_the_dtype_of_the_product():
    sizes = {"m": 2, "k": 3, "n": 2}
    product = mul(load("x", "mk"), load("w", "kn"))
    out = reduce("sum", product, "k", "bf16")
    made = program(sizes, {"x": "mk", "w": "kn"}, {"o": ("mn", out)}, "f32")
    rng = np.random.default_rng(0)
    x, w = f32(rng.standard_normal((2, 3))), f32(rng.standard_normal((3, 2)))
    (got,) = verify.emulate(made, [x, w])
    np.testing.assert_allclose(
        got, f32(x.astype(BF16)) @ f32(w.astype(BF16)), rtol=1e-6
    )
    (exact,) = verify.reference(made, [x, w])
    np.testing.assert_allclose(exact, x.astype(np.float64) @ w, rtol=1e-12)


def refused(made: Program, run) -> str:
    verdict = verify.guard(made, made.sizes, run)
    assert not verdict.ok
    return verdict.reason


def test_softmax_without_its_maximum_is_refused():
    def run(inputs):
        with np.errstate(all="ignore"):
            e = np.exp(inputs[0])
            return [e / e.sum(-1, keepdims=True)]

    assert "nan" in refused(softmax(), run)


def test_half_precision_accumulation_is_refused():
    product = mul(load("x", "mk"), load("w", "kn"))
    out = reduce("sum", product, "k", "f16")
    sizes = {"m": 8, "k": 4096, "n": 8}
    made = program(sizes, {"x": "mk", "w": "kn"}, {"o": ("mn", out)}, "f16")

    def run(inputs):
        x, w = inputs
        total = np.zeros((8, 8), np.float16)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(4096):
                total += x[:, k : k + 1] * w[k : k + 1]
        return [total]

    assert "error" in refused(made, run)


def test_a_variance_as_a_difference_is_refused_and_two_passes_are_not():
    made = program(
        {"b": 16, "d": 96},
        {"x": "bd"},
        {"o": ("bd", layer_norm().outputs[0].term)},
        "f32",
    )

    def one_pass(inputs):
        (x,) = inputs
        mean = x.mean(-1, keepdims=True, dtype=F32)
        square = (x * x).mean(-1, keepdims=True, dtype=F32)
        with np.errstate(invalid="ignore"):
            return [f32((x - mean) / np.sqrt(square - mean * mean + F32(1e-3)))]

    def two_pass(inputs):
        x = inputs[0][:, ::-1]
        centred = x - f32(x.sum(-1, keepdims=True, dtype=F32) / F32(96))
        square = f32((centred**2).sum(-1, keepdims=True) * F32(1 / 96))
        return [f32(centred * (1 / np.sqrt(square + F32(1e-3))))[:, ::-1]]

    assert refused(made, one_pass).startswith("offset")
    verdict = verify.guard(made, made.sizes, two_pass)
    assert verdict.ok, verdict.reason


def attention_with(mask_first: bool):
    def run(inputs):
        q, k, v = map(f32, inputs[:3])
        scores, mask = np.einsum("hse,hte->hst", q, k) * F32(0.25), inputs[3]
        if mask_first:
            scores = np.where(mask, scores, F32(-np.inf))
        with np.errstate(all="ignore"):
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights = np.where(mask, weights, F32(0))
            short = f32(weights.astype(BF16))
            out = np.einsum("hst,htf->hsf", short, v) / weights.sum(-1, keepdims=True)
        return [out.astype(BF16)]

    return run


def test_a_mask_after_the_exponential_is_refused():
    made = zoo.masked_attention()
    assert refused(made, attention_with(mask_first=False)).startswith("large")
    verdict = verify.guard(made, made.sizes, attention_with(mask_first=True))
    assert verdict.ok, verdict.reason
    assert numeric.MASKED in verdict.summary()


def test_where_the_original_is_not_finite_anything_goes():
    made = zoo.masked_attention()

    def run(inputs):
        (out,) = verify.emulate(made, inputs)
        return [np.where(np.isnan(f32(out)), 0, f32(out)).astype(BF16)]

    assert verify.guard(made, made.sizes, run).ok


def test_wrong_shapes_dtypes_and_counts_are_refused():
    made = softmax()
    for run, text in (
        (lambda i: [], "0 outputs"),
        (lambda i: [i[0].T], "not"),
        (lambda i: [i[0].astype(np.float64)], "float64"),
    ):
        assert text in refused(made, run)


def test_boolean_outputs_are_compared():
    x = load("x", "b")
    made = program({"b": 64}, {"x": "b"}, {"o": ("b", make("gt", (x, mul(x, x))))})
    made = replace(
        made, outputs=(replace(made.outputs[0], tensor=replace(
            made.outputs[0].tensor, dtype="bool")),)
    )  # fmt: skip
    assert verify.guard(made, made.sizes, lambda i: verify.emulate(made, i)).ok
    refused(made, lambda i: [~o for o in verify.emulate(made, i)])


def test_an_op_from_outside_is_computed_by_its_expression():
    register(Op(name="cube", emit="jnp.power({0}, 3)"))
    try:
        term = make("cube", (load("x", "b"),))
        made = program({"b": 3}, {"x": "b"}, {"o": ("b", term)}, "f32")
        (got,) = verify.reference(made, [np.array([1, 2, 3], F32)])
        assert got.tolist() == [1, 8, 27]
        assert jnp.ones(1).dtype == jnp.float32
    finally:
        unregister("cube")


def test_an_op_without_an_expression_is_unsupported():
    register(Op(name="mute"))
    try:
        term = make("mute", (load("x", "b"),))
        made = program({"b": 3}, {"x": "b"}, {"o": ("b", term)}, "f32")
        with pytest.raises(UnsupportedError, match="mute"):
            numbers.reference(made, [np.ones(3, F32)])
    finally:
        unregister("mute")


def test_powers():
    x = load("x", "b")
    value = np.array([0.5, 2.0, 9.0], F32)
    for exponent in (-2, -1, 2, 3, Fraction(1, 2), Fraction(-1, 2), Fraction(1, 3)):
        made = program({"b": 3}, {"x": "b"}, {"o": ("b", power(x, exponent))}, "f32")
        (got,) = verify.reference(made, [value])
        np.testing.assert_allclose(got, value.astype(np.float64) ** float(exponent))
