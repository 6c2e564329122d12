"""The ways in which JAX users write a few things, lifted; and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mirage_jax.lift import LiftError
from tests.mirage_jax.lifting import BF16, F32, array, check, lifted

EINSUMS = {
    "ij,jk->ki": [(3, 4), (4, 5)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "i,j->ij": [(3,), (4,)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "ba,ab->a": [(3, 4), (4, 3)],
    "ab,bc,cd->ad": [(2, 3), (3, 4), (4, 5)],
    "abc,abc->": [(2, 3, 4), (2, 3, 4)],
    "ijk,k->ij": [(1, 3, 4), (4,)],
    "tc,chn->thn": [(5, 3), (3, 2, 4)],
    "bsgrd,btgd->bgrst": [(2, 3, 2, 2, 4), (2, 5, 2, 4)],
}


@pytest.mark.parametrize("spec", EINSUMS)
def test_einsum(spec):
    arrays = [array(i, s) for i, s in enumerate(EINSUMS[spec])]
    assert check(lambda *a: jnp.einsum(spec, *a), *arrays).outputs


def below():
    return jnp.arange(5)[:, None] >= jnp.arange(5)[None]


MASKED = {
    "minus infinity": lambda x: jnp.where(below(), x, -jnp.inf),
    "minus 1e9": lambda x: jnp.where(jnp.tril(jnp.ones((5, 5), bool)), x, -1e9),
    "least float": lambda x: jnp.where(
        lax.broadcasted_iota(jnp.int32, (5, 5), 0)
        >= lax.broadcasted_iota(jnp.int32, (5, 5), 1),
        x,
        jnp.finfo(F32).min,
    ),
    "added": lambda x: x + jnp.where(below(), 0.0, -jnp.inf),
    "window": lambda x: jnp.where(
        below() & (jnp.arange(5)[:, None] - jnp.arange(5) < 2), x, -jnp.inf
    ),
    "sloped": lambda x: x - 0.5 * (jnp.arange(5)[:, None] - jnp.arange(5)),
}


@pytest.mark.parametrize("name", MASKED)
def test_masks(name):
    program = check(lambda x: jax.nn.softmax(MASKED[name](x), -1), array(0, (5, 5)))
    assert "iota" in {t.op for t in program.terms}


def test_masks_that_are_inputs():
    keep = np.random.default_rng(0).random((2, 5)) < 0.7

    def f(x, m):
        x = jnp.where(m[:, None, None, :], x, -1e9)
        e = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
        return e / e.sum(-1, keepdims=True)

    program = check(f, array(0, (2, 3, 5, 5)), jnp.asarray(keep))
    assert [t.dtype for t in program.inputs] == ["f32", "bool"]


def halves(x, c, s):
    return x * c + jnp.concatenate([-x[..., 4:], x[..., :4]], -1) * s


def pairs(x, c, s):
    even, odd = x[..., ::2] * c[..., ::2], x[..., 1::2] * s[..., ::2]
    return jnp.stack([even - odd, even + odd], -1).reshape(x.shape)


@pytest.mark.parametrize("rotate", [halves, pairs])
def test_rotations_before_a_contraction(rotate):
    def f(q, k, c, s):
        return jnp.einsum("sd,td->st", rotate(q, c, s), rotate(k, c, s))

    arrays = [array(i, (3, 8)) for i in range(4)]
    assert len(check(f, *arrays).outputs) == 1


@pytest.mark.parametrize(
    "name", ["silu", "gelu", "softplus", "elu", "log_sigmoid", "glu"]
)
def test_activations(name):
    assert check(getattr(jax.nn, name), array(0, (3, 4))).outputs


def test_attention_as_jax_has_it():
    q, k, v = (array(i, (2, 4, h, 8)) for i, h in enumerate((4, 2, 2)))
    program = check(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v
    )
    assert {"max", "sum"} <= {t.op for t in program.terms}


REFUSED = {
    "`sort`": (jnp.sort, (4,)),
    "`cumsum`": (lambda x: x.cumsum(0), (3, 4)),
    "`argmax`": (lambda x: x.argmax(-1), (3, 4)),
    "`rev`": (lambda x: x[::-1] * 2, (3, 4)),
    "`conv_general_dilated`": (
        lambda x: lax.conv(x, jnp.ones((3, 2, 3, 3)) * x[0, 0, 0, 0], (1, 1), "SAME"),
        (1, 2, 4, 4),
    ),
    "`scan`": (lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2, x), (3,)),
    "`dynamic_slice`": (lambda x: lax.dynamic_slice(x, (0, 0), (2, 2)), (3, 4)),
    "`round`": (jnp.round, (3,)),
    "`reduce_precision`": (lambda x: lax.reduce_precision(x, 8, 7), (3,)),
    "`convert_element_type`.*int8": (lambda x: x.astype(jnp.int8), (3,)),
    "`convert_element_type`.*opaque": (lambda x: (x > 0).sum(), (3,)),
    "`slice`.*equal parts": (lambda x: x[1:3] * 2, (6,)),
    "`concatenate`.*equal": (lambda x: jnp.concatenate([x, x[:1]]) * 2, (3,)),
    "`pad`.*equal": (lambda x: jnp.pad(x, 1), (3,)),
    "`pow`": (lambda x: jnp.abs(x) ** 0.3, (3,)),
    "NaN": (lambda x: jnp.where(x > 0, x, jnp.nan), (3,)),
    "`sub`.*rounding": (lambda x: x - x.astype(BF16).astype(F32), (3,)),
    "`dot_general`.*algorithm": (
        lambda x: lax.dot_general(
            x, x, (((1,), (1,)), ((), ())), precision=lax.DotAlgorithmPreset.F32_F32_F32
        ),
        (3, 4),
    ),
    "`add`.*effects|`debug": (lambda x: [jax.debug.print("{}", x), x + 1][1], (3,)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_name_the_equation(message):
    f, shape = REFUSED[message]
    with pytest.raises(LiftError, match=message):
        lifted(f, array(0, shape))


def test_integer_inputs_are_refused():
    with pytest.raises(LiftError, match="integer input"):
        lifted(
            lambda x, n: jnp.where(jnp.arange(4) < n, x, 0),
            array(0, (3, 4)),
            jnp.int32(2),
        )
