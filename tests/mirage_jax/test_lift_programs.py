"""Lifted programs compute what the functions do that they were lifted from."""

import math
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax.lift import lift, refusal
from tests.mirage_jax.lifting import BF16, F16, F32, array, check


def normalized(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def attend(q, k, v, mask=None):
    scores = jnp.einsum("bshd,bthd->bhst", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, axis=-1), v)


def rotate_half(x):
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([-second, first], axis=-1)


def rotate_pairs(x):
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([-odd, even], axis=-1).reshape(x.shape)


def grouped_query(x, wq, wk, wv, cos, sin):
    b, s, _ = x.shape
    q = (x @ wq).reshape(b, s, 4, 6)
    k = (x @ wk).reshape(b, s, 2, 6)
    v = (x @ wv).reshape(b, s, 2, 6)
    q = q * cos[:, None] + rotate_half(q) * sin[:, None]
    k = k * cos[:, None] + rotate_half(k) * sin[:, None]
    k, v = jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)
    rows = jax.lax.broadcasted_iota(jnp.int32, (s, s), 0)
    mask = rows >= jax.lax.broadcasted_iota(jnp.int32, (s, s), 1)
    return attend(q, k, v, mask).reshape(b, s, 24)


def layer_norm(x, g, b):
    mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * g + b


def grouped_matmul(q, k):
    """Queries in groups, keys with one head per group."""
    q = q.reshape(2, 5, 2, 3, 4)
    return jnp.einsum("bsgrd,btgd->bgrst", q, k)


PROGRAMS = {
    "normalize_linear": (
        lambda x, g, w: normalized(x, g) @ w,
        [(4, 6), (6,), (6, 8)],
    ),
    "layer_norm": (layer_norm, [(2, 4, 6), (6,), (6,)]),
    "softmax_attention": (attend, [(2, 5, 3, 4), (2, 7, 3, 4), (2, 7, 3, 4)]),
    "grouped_query": (
        grouped_query,
        [(2, 5, 8), (8, 24), (8, 12), (8, 12), (5, 6), (5, 6)],
    ),
    "grouped_matmul": (grouped_matmul, [(2, 5, 24), (2, 7, 2, 4)]),
    "same_array_twice": (lambda x: x @ x.T, [(4, 6)]),
    "powers_of_a_square": (lambda x: x @ x @ x.T @ x, [(3, 3)]),
    "self_attention": (
        lambda x: jax.nn.softmax(x @ x.mT, axis=-1) @ x,
        [(2, 5, 4)],
    ),
    "softmax_other_axis": (lambda x: jax.nn.softmax(x @ x.T, axis=0) @ x, [(5, 4)]),
    "one_source": (
        lambda x, a, b, c: attend(*((x @ w)[:, :, None] for w in (a, b, c))),
        [(2, 5, 4), (4, 6), (4, 6), (4, 6)],
    ),
    "gated": (
        lambda x, a, b, c: (jax.nn.silu(x @ a) * (x @ b)) @ c,
        [(3, 4), (4, 6), (4, 6), (6, 4)],
    ),
    "gelu_tanh": (lambda x: jax.nn.gelu(x, approximate=True), [(3, 4)]),
    "erf": (lambda x: x * (1 + jax.lax.erf(x / 2**0.5)) / 2, [(3, 4)]),
    "relu": (lambda x: jax.nn.relu(x) + jax.nn.relu6(3 * x), [(3, 4)]),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=-1), [(3, 4)]),
    "log_softmax": (lambda x: jax.nn.log_softmax(x, axis=0), [(3, 4)]),
    "mean_variance": (lambda x: (x.mean((0, 2)), x.var(1), x.std()), [(3, 4, 2)]),
    "size_one": (
        lambda x, y: (x + y, jnp.sum(x, 1, keepdims=True) * y.mean(), x[:, 0] - x[0]),
        [(1, 4, 1), (3, 1, 2)],
    ),
    "scalars": (lambda x, a: (x * a + a * a, a - 3.0, 2.0 / a), [(3, 4), ()]),
    "passthrough": (lambda x, y: (x, 1.0, jnp.zeros((2, 3)), x, x.T), [(3, 4), (2,)]),
    "sum_of_broadcast": (
        lambda x, y: (
            jnp.broadcast_to(x, (5, 3)).sum(0),
            jnp.max(jnp.broadcast_to(x, (5, 3)), 0),
            (jnp.ones((4, 3)) * x) @ y,
            jnp.ones((2, 3)).sum(),
        ),
        [(3,), (3, 2)],
    ),
    "dot_general_layouts": (
        lambda x, y: (
            jax.lax.dot_general(x, y, (((1, 3), (2, 0)), ((2,), (1,)))),
            jax.lax.dot_general(x, y, (((), ()), ((0, 2), (3, 1)))),
        ),
        [(2, 3, 4, 5), (5, 4, 3, 2)],
    ),
    "outer": (lambda x, y: jnp.outer(x, y) + jnp.add.outer(x, y), [(3,), (4,)]),
    "merge_then_split": (
        lambda x, y: x.reshape(4, 6, 5) * y + jnp.sum(x.reshape(24, 5), 0),
        [(2, 2, 3, 2, 5), (4, 6, 1)],
    ),
    "transposed_merge": (lambda x: x.transpose(2, 0, 1).reshape(8, 3) * 2, [(2, 3, 4)]),
    "rotate_pairs": (lambda x, y: (x * y + rotate_pairs(x)) @ y.T, [(3, 6), (3, 6)]),
    "piece_of_pieces": (
        lambda x, y: jnp.concatenate([x, y, x * y], 1)[:, 4:8]
        + jnp.stack([x, y], 0)[1],
        [(3, 4), (3, 4)],
    ),
    "four_quarters": (
        lambda x: sum(jnp.split(x, 4, -1))
        + jnp.concatenate([x[:, 6:], x[:, :2]], 0)[3],
        [(3, 8)],
    ),
    "rolled": (lambda x: jnp.roll(x, 4, -1) - x, [(3, 8)]),
    "padded": (
        lambda x: jnp.pad(x, ((0, 3), (4, 4)), constant_values=2.0) * 3,
        [(3, 4)],
    ),
    "repeat_and_tile": (
        lambda x, y: (
            jnp.repeat(x, 2, 0) * 3,
            jnp.tile(y, (2, 1)) * jnp.tile(y, (2, 1)).sum(),
        ),
        [(3, 4), (3, 4)],
    ),
    "positions": (
        lambda x: x * jnp.arange(12.0).reshape(3, 4) + (jnp.arange(12) * 2 + 1)
        .reshape(3, 4)
        .astype(F32),
        [(3, 4)],
    ),
    "band": (
        lambda x: jnp.where(
            (jnp.arange(6)[:, None] >= jnp.arange(6))
            & ~(jnp.arange(6)[:, None] - jnp.arange(6) > 2),
            x,
            -1e30,
        ),
        [(6, 6)],
    ),
    "triangle": (lambda x: jnp.tril(x) + jnp.triu(x, 1) * 2, [(4, 4)]),
    "powers": (
        lambda x: (
            x**2 + x**-3 + (x * x) ** 0.5 + (x * x) ** -1.5,
            jnp.sqrt(x * x) / jnp.square(x),
            x**0,
        ),
        [(3, 4)],
    ),
    "clamped": (
        lambda x, y: jnp.clip(x, -0.5, 0.5) + jax.lax.clamp(x, y, x + 1.0),
        [(3, 4), (3, 4)],
    ),
    "minima": (
        lambda x: jnp.minimum(x, x.min(0)) + jnp.maximum(x, 0.1) - jnp.abs(x),
        [(3, 4)],
    ),
    "opaque": (
        lambda x: jnp.log1p(jnp.abs(x)) + jnp.expm1(x) + jnp.sin(x) * jnp.cos(x)
        + jnp.floor(x) + jnp.ceil(x) + jnp.sign(x) + jnp.log(1 + x * x) + jnp.tanh(x),
        [(3, 4)],
    ),
    "gradient": (
        jax.grad(lambda x, g, w: jnp.sum(jnp.tanh(normalized(x, g) @ w)), (0, 1, 2)),
        [(4, 6), (6,), (6, 8)],
    ),
    "gradient_of_attention": (
        jax.grad(lambda q, k, v: jnp.sum(attend(q, k, v) ** 2), (0, 1, 2)),
        [(2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)],
    ),
    "gradient_of_rotation": (
        jax.grad(lambda x, y: jnp.sum((rotate_half(x) + rotate_pairs(x) * y) ** 2)),
        [(3, 8), (3, 8)],
    ),
    "vmapped": (
        jax.vmap(lambda x, w: jax.nn.softmax(x @ w)),
        [(2, 3, 4), (2, 4, 5)],
    ),
    "checkpointed": (jax.checkpoint(lambda x: jnp.sin(x) * 2), [(3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_value(name):
    f, shapes = PROGRAMS[name]
    check(f, *(array(i, shape) for i, shape in enumerate(shapes)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_equation_of_them_is_refused(name):
    f, shapes = PROGRAMS[name]
    jaxpr = jax.make_jaxpr(f)(*(array(0, shape) for shape in shapes))
    assert [refusal(eqn) for eqn in jaxpr.eqns] == [None] * len(jaxpr.eqns)


@pytest.mark.parametrize("name", ["normalize_linear", "gated"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_narrow_programs(name, dtype):
    f, shapes = PROGRAMS[name]
    args = [0.5 * array(i, shape, dtype) for i, shape in enumerate(shapes)]
    check(f, *args, tolerance=0.1)


# Random programs: a list of small steps, applied to whatever arrays there are so far.

_UNARY: list[Callable] = [
    jnp.tanh,
    jax.nn.sigmoid,
    lambda x: x * 0.5 - 1,
    lambda x: x.T,
    lambda x: x.sum(0, keepdims=True) / 4,
    lambda x: x.max(-1, keepdims=True) if x.ndim else x,
    lambda x: x.mean(),
    lambda x: jnp.exp(-x * x),
    lambda x: jax.nn.softmax(x, axis=-1) if x.ndim else x,
    lambda x: x.reshape(-1),
    lambda x: x.reshape(2, -1) if x.size % 2 == 0 else x,
    lambda x: x.reshape(-1, 2, 2) if x.size % 4 == 0 else x,
    lambda x: x[..., x.shape[-1] // 2 :] if x.ndim and x.shape[-1] % 2 == 0 else x,
    lambda x: x[1::2] if x.ndim and x.shape[0] % 2 == 0 else x,
    lambda x: jnp.concatenate([x, -x], -1) if x.ndim and x.size < 100 else x,
    lambda x: jnp.stack([x, x * x], 0) if x.ndim < 3 and x.size < 100 else x,
    lambda x: jnp.where(jnp.arange(x.shape[0]) > 0, x.T, 0.25).T if x.ndim else x,
]


def _combine(x, y):
    if x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0]:
        return x @ y / 4
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return x * y.mean()
    return x * y - x / (1 + y * y)


def _run(steps, *arrays):
    values = list(arrays)
    for i, j, k in steps:
        x, y = values[j % len(values)], values[k % len(values)]
        values.append(_UNARY[i](x) if i < len(_UNARY) else _combine(x, y))
    return tuple(values[-2:])


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(
            st.integers(0, len(_UNARY) + 8), st.integers(0, 9), st.integers(0, 9)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_random_programs(steps):
    args = array(0, (4, 4)), array(1, (4,)), array(2, (2, 4))
    jaxpr = jax.make_jaxpr(lambda *a: _run(steps, *a))(*args)
    try:
        program = lift(jaxpr)
    except NotImplementedError as error:
        hypothesis.assume("rounding" in str(error) or "factor" in str(error))
        hypothesis.reject()
    assert program.outputs
    check(lambda *a: _run(steps, *a), *args, tolerance=1e-3)
