"""Hypothesis strategies: random terms, programs and schedules at tiny sizes.

Inputs are meant to be drawn from [0.5, 1.5] (`positive_inputs`), and exponentials and
powers are kept mild, so that values stay finite and equal up to rounding.
"""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt

from tests.ugraph.programs import MINUS_INF, load, softmax_of
from ugraph.graph import Range
from ugraph.program import Program, Store, Tensor
from ugraph.terms import Term, add, exp, iota, lit, make, mul, neg, power, reduce

LABELS = "abcd"
INPUTS = {"x": "ab", "y": "bc", "z": "c", "w": "acd", "s": ""}
LITERALS = (Fraction(1, 2), Fraction(-3, 4), Fraction(2), Fraction(1, 3))

leaves = st.one_of(
    st.sampled_from([load(name, labels) for name, labels in INPUTS.items()]),
    st.sampled_from([lit(x) for x in LITERALS]),
)


def _labels_of(term: Term) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(term.labels), min_size=1, unique=True).map(tuple)


@st.composite
def _reduced(draw: st.DrawFn, inner: st.SearchStrategy[Term]) -> Term:
    term = draw(inner)
    if not term.labels:
        return term
    op = draw(st.sampled_from(("sum", "sum", "max", "min")))
    return reduce(op, term, draw(_labels_of(term)))


@st.composite
def _softmax(draw: st.DrawFn, inner: st.SearchStrategy[Term]) -> Term:
    scores, values = draw(inner), draw(inner)
    if not scores.labels:
        return scores
    label = draw(st.sampled_from(scores.labels))
    others = [x for x in scores.labels if x != label]
    if others and draw(st.booleans()):
        visible = make("le", (iota(label), mul(_three(), iota(others[0]))))
        scores = make("select", (visible, scores, MINUS_INF))
    weights, total = softmax_of(scores, label)
    product = mul(weights, values)
    if draw(st.booleans()):
        return reduce("sum", product, {label, draw(st.sampled_from(product.labels))})
    return mul(reduce("sum", product, (label,)), power(total, -1))


def _three() -> Term:
    return make("int", (), 3)


def _extended(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: add(*p)),
        pair.map(lambda p: mul(*p)),
        inner.map(neg),
        st.tuples(inner, st.sampled_from((2, -1))).map(lambda p: power(*p)),
        inner.map(lambda t: exp(mul(lit(Fraction(1, 8)), make("tanh", (t,))))),
        _reduced(inner),
        _reduced(inner),
        _softmax(inner),
    )


terms = st.recursive(leaves, _extended, max_leaves=6)
"""Terms over the labels a, b, c, d."""

extents = st.fixed_dictionaries({x: st.integers(2, 7) for x in LABELS})
"""Extents of the labels."""


def program_of(term: Term, sizes: dict[str, int], dtype: str = "f32") -> Program:
    """The program with the one output `term`."""
    inputs = tuple(
        Tensor(n, dtype, tuple(sizes[x] for x in labels))
        for n, labels in INPUTS.items()
    )
    axes = tuple((x,) for x in term.labels)
    out = Tensor("out", "f32", tuple(sizes[x] for x in term.labels))
    return Program(tuple(sorted(sizes.items())), inputs, (Store(out, axes, term),))


programs = st.builds(program_of, terms.filter(lambda t: bool(t.args)), extents)
"""Programs with one output."""


@st.composite
def ranges(draw: st.DrawFn, labels: tuple[str, ...]) -> tuple[Range, ...]:
    """Some of `labels` with tiles that need not divide their extents."""
    chosen = draw(st.lists(st.sampled_from(labels), unique=True)) if labels else []
    return tuple(Range(x, draw(st.integers(1, 4))) for x in chosen)


def positive_inputs(
    program: Program, seed: int = 0
) -> dict[str, npt.NDArray[np.float64]]:
    """Inputs between 0.5 and 1.5."""
    rng = np.random.default_rng(seed)
    return {t.name: rng.uniform(0.5, 1.5, t.shape) for t in program.inputs}
