"""Programs that the verifier is tested on, and plans of them."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tests.ugraph.programs import (
    MINUS_INF,
    attention,
    causal_attention,
    gated,
    layer_norm,
    load,
    norm_linear,
    program,
    pulled,
    softmax,
    softmax_of,
)
from ugraph.graph import Plan, Range
from ugraph.kernels import structures
from ugraph.program import Program, Store, Tensor
from ugraph.terms import (
    Fixed,
    Term,
    add,
    divide,
    exp,
    integer,
    iota,
    lit,
    make,
    mul,
    neg,
    read,
    reduce,
)


def masked_attention(h: int = 4, s: int = 32, t: int = 96, e: int = 16) -> Program:
    """Attention under a mask that is an input."""
    q, k, v = load("q", "hse"), load("k", "hte"), load("v", "htf")
    mask = read("m", (("s",), ("t",)), "bool")
    dots = mul(lit(Fraction(1, 4)), reduce("sum", mul(q, k), "e", "bf16"))
    weights, total = softmax_of(make("select", (mask, dots, MINUS_INF)), "t")
    out = reduce("sum", mul(divide(weights, total), v), "t", "bf16")
    sizes = {"h": h, "s": s, "t": t, "e": e, "f": e}
    made = program(
        sizes, {"q": "hse", "k": "hte", "v": "htf", "m": "st"}, {"o": ("hsf", out)}
    )
    inputs = (*made.inputs[:3], replace(made.inputs[3], dtype="bool"))
    return replace(made, inputs=inputs)


def windowed_attention(s: int = 64, e: int = 16, window: int = 24) -> Program:
    """Attention to the last few positions."""
    q, k, v = load("q", "se"), load("k", "te"), load("v", "tf")
    behind = add(iota("s"), neg(iota("t")))
    near = make("lt", (behind, integer(window)))
    past = make("ge", (behind, integer(0)))
    scores = reduce("sum", mul(q, k), "e", "bf16")
    scores = make("select", (make("and", (past, near)), scores, MINUS_INF))
    weights, total = softmax_of(scores, "t")
    out = reduce("sum", mul(divide(weights, total), v), "t", "bf16")
    sizes = {"s": s, "t": s, "e": e, "f": e}
    return program(sizes, {"q": "se", "k": "te", "v": "tf"}, {"o": ("sf", out)})


def self_attention(s: int = 32, e: int = 16) -> Program:
    """Softmax over a tensor's products with itself: exponents that depend."""
    x, y = load("x", "se"), load("x", "te")
    weights, total = softmax_of(reduce("sum", mul(x, y), "e", "bf16"), "t")
    out = reduce("sum", mul(divide(weights, total), load("x", "tf")), "t", "bf16")
    sizes = {"s": s, "t": s, "e": e, "f": e}
    return program(sizes, {"x": "se"}, {"o": ("sf", out)})


def rotated(s: int = 24, d: int = 16) -> Program:
    """The halves of rows exchanged, one with its sign changed, times a matrix."""
    sizes = {"s": s, "r": 2, "d": d // 2, "n": 24}

    def half(i: int) -> Term:
        return read("x", (("s",), (Fixed(i, 2), "d")))

    first = make("eq", (iota("r"), integer(0)))
    turned = make("select", (first, neg(half(1)), half(0)))
    x = add(read("x", (("s",), ("r", "d"))), turned)
    w = read("w", (("r", "d"), ("n",)))
    out = reduce("sum", mul(x, w), ("r", "d"), "bf16")
    return Program(
        tuple(sorted(sizes.items())),
        (Tensor("x", "bf16", (s, d)), Tensor("w", "bf16", (d, 24))),
        (Store(Tensor("o", "bf16", (s, 24)), (("s",), ("n",)), out),),
    )


def entropy(b: int = 16, d: int = 96) -> Program:
    """Opaque ops around a softmax, and a root."""
    x = load("x", "bd")
    weights, total = softmax_of(make("erf", (x,)), "d")
    spread = reduce("sum", mul(weights, make("log1p", (weights,))), "d")
    out = mul(exp(neg(divide(spread, total))), make("maximum", (total, lit(0.0))))
    return program({"b": b, "d": d}, {"x": "bd"}, {"o": ("b", out)}, "f32")


MAKERS = (
    norm_linear,
    layer_norm,
    softmax,
    attention,
    causal_attention,
    masked_attention,
    windowed_attention,
    self_attention,
    gated,
    rotated,
    entropy,
)


def tiled(made: Program, ragged: bool) -> Iterator[Plan]:
    """Plans of one kernel with every grid × loop × order the search knows."""

    def tile(r: Range) -> Range:
        extent = made.sizes[r.label]
        exact = max(t for t in range(1, extent) if extent % t == 0)
        return Range(r.label, extent // 2 + 1 if ragged else min(exact, extent // 2))

    outputs = tuple(o.tensor for o in made.outputs)
    for form in (made, pulled(made)):
        for kernel in structures(form.outputs):
            sized = replace(
                kernel,
                grid=tuple(map(tile, kernel.grid)),
                loop=tile(kernel.loop) if kernel.loop else None,
            )
            yield Plan(made.extents, made.inputs, outputs, (sized,))


def projected_attention(s: int = 48, d: int = 32, e: int = 16) -> Program:
    """Attention of rows to each other through three matrices."""

    def projected(weights: str, row: str, inner: str, column: str) -> Term:
        x, w = load("x", row + inner), load(weights, inner + column)
        return reduce("sum", mul(x, w), inner, "bf16")

    q, k = projected("wq", "s", "c", "e"), projected("wk", "t", "d", "e")
    scores = mul(lit(Fraction(1, 4)), reduce("sum", mul(q, k), "e", "bf16"))
    weights, total = softmax_of(scores, "t")
    values = projected("wv", "t", "g", "f")
    out = reduce("sum", mul(divide(weights, total), values), "t", "bf16")
    sizes = {"s": s, "t": s, "c": d, "d": d, "g": d, "e": e, "f": e}
    inputs = {"x": "sc", "wq": "ce", "wk": "de", "wv": "gf"}
    return program(sizes, inputs, {"o": ("sf", out)})
