"""Regions are told apart by what they compute, and by nothing else."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from mirage_jax.region import Region, aval_text

X, W = jnp.ones((4, 6)), jnp.ones((6, 6))


def key(f, *args):
    return Region(jax.make_jaxpr(f)(*args)).key


def test_names_and_places_do_not_matter():
    def other(first, second):
        product = first @ second
        return jnp.tanh(product)

    assert key(lambda x, w: jnp.tanh(x @ w), X, W) == key(other, X, W)
    jaxpr = jax.make_jaxpr(other)(X, W)
    assert Region(jaxpr, 3, "/scan", "f.py:1").key == Region(jaxpr).key


DIFFERENT = {
    "operator": lambda x, w: jnp.sin(x @ w),
    "operand": lambda x, w: jnp.tanh(w @ w),
    "parameter": lambda x, w: jnp.tanh(jax.lax.dot(x, w, precision="highest")),
    "literal": lambda x, w: jnp.tanh(x @ w + 1.0),
    "another literal": lambda x, w: jnp.tanh(x @ w + 2.0),
    "negative zero": lambda x, w: jnp.tanh(x @ w) * -0.0,
    "zero": lambda x, w: jnp.tanh(x @ w) * 0.0,
    "one result more": lambda x, w: (jnp.tanh(x @ w), x),
    "results exchanged": lambda x, w: (x, jnp.tanh(x @ w)),
    "body": lambda x, w: jax.nn.relu(x @ w),
    "another body": lambda x, w: jax.nn.silu(x @ w),
}


def test_everything_else_matters():
    keys = {n: key(f, X, W) for n, f in DIFFERENT.items()}
    keys["base"] = key(lambda x, w: jnp.tanh(x @ w), X, W)
    keys["dtype"] = key(lambda x, w: jnp.tanh(x @ w), X.astype(jnp.bfloat16), W)
    keys["shape"] = key(lambda x, w: jnp.tanh(x @ w), X[:2], W)
    assert len(set(keys.values())) == len(keys)


def test_derivative_rules_are_not_part_of_the_key():
    def make():
        @jax.custom_jvp
        def f(x):
            return jnp.tanh(x)

        f.defjvp(lambda p, t: (f(*p), t[0]))
        return lambda x, w: f(x @ w)

    assert key(make(), X, W) == key(make(), X, W)


def test_keys_are_the_same_in_every_process():
    code = (
        "import jax, jax.numpy as jnp\n"
        "from mirage_jax.region import Region\n"
        "f = lambda x: jax.nn.relu(jax.nn.softmax(x @ x.T, where=None))\n"
        "print(Region(jax.make_jaxpr(f)(jnp.ones((4, 6)))).key)\n"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    }
    assert len(keys) == 1


def test_where_it_is():
    jaxpr = jax.make_jaxpr(lambda x: x @ x.T)(X)
    region = Region(jaxpr, 3, "/scan", "f.py:1")
    assert region.where == "region 3 at /scan (f.py:1)"
    assert Region(jaxpr).where == "region 0 at /"
    assert str(region).startswith("region 3 at /scan")
    assert "dot_general" in str(region)
    assert region.in_avals[0].shape == (4, 6)
    assert region.out_avals[0].shape == (4, 4)


@pytest.mark.parametrize(
    ("value", "text"),
    [(jnp.ones((2, 3), jnp.bfloat16), "bf16[2,3]"), (1.0, "~f32[]"), (True, "bool[]")],
)
def test_names_of_types(value, text):
    assert aval_text(jax.typeof(value)) == text
