"""Programs made by hand, and inputs for them.

Each is a function of its extents, so that one structure is tested at many sizes.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ugraph.graph import Plan
from ugraph.program import Program, Store, Tensor
from ugraph.rewrite import Variant, saturate
from ugraph.rules import AXIOMS
from ugraph.terms import (
    Term,
    add,
    divide,
    exp,
    iota,
    lit,
    make,
    mul,
    neg,
    power,
    read,
    reduce,
)

Maker = Callable[..., Program]
MINUS_INF = lit(float("-inf"))


def tensor(
    name: str, labels: str, sizes: dict[str, int], dtype: str = "bf16"
) -> Tensor:
    """A tensor with one axis for each letter of `labels`."""
    return Tensor(name, dtype, tuple(sizes[x] for x in labels))


def load(name: str, labels: str) -> Term:
    """A read of a tensor with one axis for each letter of `labels`."""
    return read(name, tuple((x,) for x in labels))


def program(
    sizes: dict[str, int],
    inputs: dict[str, str],
    outputs: dict[str, tuple[str, Term]],
    dtype: str = "bf16",
) -> Program:
    """A program whose tensors have one label per axis."""
    return Program(
        tuple(sorted(sizes.items())),
        tuple(tensor(n, labels, sizes, dtype) for n, labels in inputs.items()),
        tuple(
            Store(tensor(n, labels, sizes, dtype), tuple((x,) for x in labels), term)
            for n, (labels, term) in outputs.items()
        ),
    )


def matmul(m: int = 32, k: int = 64, n: int = 48) -> Program:
    """x @ w."""
    out = reduce("sum", mul(load("x", "mk"), load("w", "kn")), "k", "bf16")
    return program({"m": m, "k": k, "n": n}, {"x": "mk", "w": "kn"}, {"o": ("mn", out)})


def norm_linear(b: int = 16, d: int = 64, n: int = 48) -> Program:
    """A root-mean-square norm and a matrix product."""
    x, g, w = load("x", "bd"), load("g", "d"), load("w", "dn")
    mean = mul(lit(Fraction(1, d)), reduce("sum", mul(x, x), "d"))
    scale = power(add(mean, lit(Fraction(1, 1000))), Fraction(-1, 2))
    out = reduce("sum", mul(mul(x, scale), g, w), "d", "bf16")
    inputs = {"x": "bd", "g": "d", "w": "dn"}
    return program({"b": b, "d": d, "n": n}, inputs, {"o": ("bn", out)})


def layer_norm(b: int = 16, d: int = 96) -> Program:
    """Mean and variance of a row, two-pass."""
    x = load("x", "bd")
    mean = mul(lit(Fraction(1, d)), reduce("sum", x, "d"))
    centred = add(x, neg(mean))
    square = mul(lit(Fraction(1, d)), reduce("sum", mul(centred, centred), "d"))
    out = mul(centred, power(add(square, lit(Fraction(1, 1000))), Fraction(-1, 2)))
    return program({"b": b, "d": d}, {"x": "bd"}, {"o": ("bd", out)})


def softmax_of(scores: Term, label: str) -> tuple[Term, Term]:
    """Shifted exponentials and their sum."""
    weights = exp(add(scores, neg(reduce("max", scores, label))))
    return weights, reduce("sum", weights, label)


def softmax(b: int = 16, d: int = 96) -> Program:
    """The softmax of rows."""
    weights, total = softmax_of(load("x", "bd"), "d")
    out = divide(weights, total)
    return program({"b": b, "d": d}, {"x": "bd"}, {"o": ("bd", out)}, "f32")


def attention(
    h: int = 4, s: int = 32, t: int = 96, e: int = 16, *, causal: bool = False
) -> Program:
    """Attention of a few heads."""
    q, k, v = load("q", "hse"), load("k", "hte"), load("v", "htf")
    dots = reduce("sum", mul(q, k), "e", "bf16")
    scores = mul(lit(Fraction(1, 4)), dots)
    if causal:
        scores = make("select", (make("le", (iota("t"), iota("s"))), scores, MINUS_INF))
    weights, total = softmax_of(scores, "t")
    out = reduce("sum", mul(divide(weights, total), v), "t", "bf16")
    sizes = {"h": h, "s": s, "t": t, "e": e, "f": e}
    inputs = {"q": "hse", "k": "hte", "v": "htf"}
    return program(sizes, inputs, {"o": ("hsf", out)})


def causal_attention(h: int = 4, s: int = 32, t: int = 96, e: int = 16) -> Program:
    """Attention with everything after the query masked."""
    return attention(h, s, t, e, causal=True)


def gated(b: int = 16, d: int = 64, n: int = 48) -> Program:
    """Two matrix products of one input, one gating the other."""
    x = load("x", "bd")
    left = reduce("sum", mul(x, load("u", "dn")), "d", "bf16")
    right = reduce("sum", mul(x, load("w", "dn")), "d", "bf16")
    out = mul(left, make("logistic", (left,)), right)
    inputs = {"x": "bd", "u": "dn", "w": "dn"}
    return program({"b": b, "d": d, "n": n}, inputs, {"o": ("bn", out)})


def chain(m: int = 32, k: int = 16, n: int = 64, p: int = 16) -> Program:
    """(x @ u) @ w."""
    first = reduce("sum", mul(load("x", "mk"), load("u", "kn")), "k", "bf16")
    out = reduce("sum", mul(first, load("w", "np")), "n", "bf16")
    sizes = {"m": m, "k": k, "n": n, "p": p}
    return program(sizes, {"x": "mk", "u": "kn", "w": "np"}, {"o": ("mp", out)})


def gram(m: int = 32, k: int = 48) -> Program:
    """x @ x.T: one tensor in two roles."""
    out = reduce("sum", mul(load("x", "mk"), load("x", "nk")), "k", "bf16")
    return program({"m": m, "n": m, "k": k}, {"x": "mk"}, {"o": ("mn", out)})


def two_outputs(b: int = 16, d: int = 64) -> Program:
    """A row's sum of squares, and the row divided by it."""
    x = load("x", "bd")
    total = reduce("sum", mul(x, x), "d")
    outputs = {"s": ("b", total), "o": ("bd", divide(x, total))}
    return program({"b": b, "d": d}, {"x": "bd"}, outputs, "f32")


def low_rank(b: int = 16, d: int = 64, n: int = 48, r: int = 16) -> Program:
    """x @ w + (x @ u) @ v."""
    x = load("x", "bd")
    main = reduce("sum", mul(x, load("w", "dn")), "d", "bf16")
    down = reduce("sum", mul(x, load("u", "dr")), "d", "bf16")
    up = reduce("sum", mul(down, load("v", "rn")), "r", "bf16")
    inputs = {"x": "bd", "w": "dn", "u": "dr", "v": "rn"}
    sizes = {"b": b, "d": d, "n": n, "r": r}
    return program(sizes, inputs, {"o": ("bn", add(main, up))})


def elementwise(b: int = 16, d: int = 64) -> Program:
    """No reduction at all."""
    x, y = load("x", "bd"), load("y", "d")
    out = add(mul(x, make("tanh", (y,))), exp(neg(x)))
    return program({"b": b, "d": d}, {"x": "bd", "y": "d"}, {"o": ("bd", out)}, "f32")


def total(b: int = 16, d: int = 64) -> Program:
    """The sum of everything: an output without axes."""
    out = reduce("sum", mul(load("x", "bd"), load("y", "bd")), "bd")
    return program({"b": b, "d": d}, {"x": "bd", "y": "bd"}, {"o": ("", out)}, "f32")


def pulled(program: Program) -> Program:
    """The program with factors pulled out of its sums."""
    form = saturate(Variant(tuple(o.term for o in program.outputs)), AXIOMS[:1])
    outputs = tuple(
        Store(o.tensor, o.axes, t)
        for o, t in zip(program.outputs, form.roots, strict=True)
    )
    return replace(program, outputs=outputs)


MAKERS: tuple[Maker, ...] = (
    matmul,
    norm_linear,
    layer_norm,
    softmax,
    attention,
    causal_attention,
    gated,
    chain,
    gram,
    two_outputs,
    low_rank,
    elementwise,
    total,
)


def inputs_for(
    program: Program | Plan, seed: int = 0
) -> dict[str, npt.NDArray[np.float64]]:
    """Normal inputs for a program or a plan."""
    rng = np.random.default_rng(seed)
    return {t.name: rng.standard_normal(t.shape) for t in program.inputs}
