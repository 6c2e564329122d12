"""`jit` is `jax.jit` to whoever calls it; `optimize` is the same without the jit."""

import functools
import inspect
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mirage_jax
from mirage_jax import Config, MirageWarning, _compat
from mirage_jax.errors import ConfigError

X, W = jnp.linspace(-1, 1, 24).reshape(4, 6), jnp.linspace(0, 1, 30).reshape(6, 5)


def gated(x, w):
    """Doc of the function."""
    return jax.nn.silu(x @ w) @ w.T


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return True


def test_a_function(winners):
    f = mirage_jax.jit(gated)
    assert close(f(X, W), gated(X, W))
    assert len(winners.regions) == 1
    assert winners.traced == 1


def test_a_decorator_and_a_decorator_factory(winners):
    @mirage_jax.jit
    def bare(x):
        return x @ x.T

    @mirage_jax.jit(static_argnames="n", config=Config(seed=3))
    def made(x, n):
        return n * (x @ x.T)

    assert close(bare(X), X @ X.T)
    assert close(made(X, n=2), 2 * (X @ X.T))
    assert [c.seed for c in winners.configs] == [0, 3]


def test_methods(winners):
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(mirage_jax.jit, static_argnums=0)
        def bound(self, x):
            return self.scale * (x @ x.T)

        @staticmethod
        @mirage_jax.jit
        def free(x):
            return x @ x.T

    assert close(Model(2.0).bound(X), 2 * (X @ X.T))
    assert close(Model(3.0).bound(X), 3 * (X @ X.T))
    assert close(Model(3.0).free(X), X @ X.T)
    assert isinstance(Model.bound, jax.stages.Wrapped)
    assert len(winners.regions) == 3


def test_it_looks_like_the_function_and_like_a_jitted_one():
    f, plain = mirage_jax.jit(gated), jax.jit(gated)
    assert isinstance(f, jax.stages.Wrapped)
    assert (f.__name__, f.__doc__, f.__module__) == (
        plain.__name__,
        plain.__doc__,
        plain.__module__,
    )
    assert f.__wrapped__ is gated
    assert inspect.signature(f) == inspect.signature(gated)
    assert "gated" in repr(f)
    public = {n for n in dir(plain) if not n.startswith("_")}
    assert all(hasattr(f, n) for n in public)
    with pytest.raises(AttributeError, match="no_such"):
        _ = f.no_such


def test_every_keyword_of_jax_jit_is_taken():
    given = {
        "static_argnums": 0,
        "static_argnames": "n",
        "donate_argnums": 1,
        "donate_argnames": "x",
        "keep_unused": True,
        "inline": True,
        "compiler_options": {"xla_cpu_enable_fast_math": False},
        "device": None,
        "backend": None,
        "in_shardings": None,
        "out_shardings": None,
    }
    known = _compat.jit_parameters()
    assert set(known) <= set(given)
    ours = inspect.signature(mirage_jax.jit).parameters
    assert ours["fun"].kind is inspect.Parameter.POSITIONAL_ONLY
    for name in known:
        if name in ("in_shardings", "device", "backend"):
            continue
        f = mirage_jax.jit(
            lambda n, x: n * x, **{"static_argnums": 0, name: given[name]}
        )
        assert close(f(2, jnp.ones(3)), 2 * np.ones(3))


def test_shardings_and_devices_are_honoured(winners):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    f = mirage_jax.jit(gated, in_shardings=(rows, None), out_shardings=rows)
    result = f(X, W)
    assert close(result, gated(X, W))
    assert result.sharding.is_equivalent_to(rows, 2)
    assert len(winners.regions) == 1
    assert winners.traced == 0, "a kernel is made for whole arrays"


def test_donation(winners):
    f = mirage_jax.jit(lambda x, w: jnp.tanh(x @ w.T), donate_argnums=0)
    x, w = jnp.ones((4, 6)), jnp.ones((6, 6))
    assert close(f(x, w), jnp.tanh(jnp.ones((4, 6)) @ w.T))
    assert x.is_deleted()
    assert not w.is_deleted()
    assert len(winners.regions) == 1


def test_unknown_keywords_and_wrong_arguments():
    with pytest.raises(TypeError, match=r"no keyword `statics`.*static_argnums"):
        mirage_jax.jit(gated, statics=1)
    with pytest.raises(TypeError, match=r"[Ee]xpected a callable"):
        mirage_jax.jit(3)
    with pytest.raises(ConfigError, match="`config` is 3"):
        mirage_jax.jit(gated, config=3)
    with pytest.raises(ConfigError, match="`config` is 3"):
        mirage_jax.optimize(gated, config=3)


def test_errors_of_the_function_pass_through(winners):
    def wrong(x):
        if x.sum() > 0:
            raise AssertionError
        return x

    for f in (mirage_jax.jit(wrong), jax.jit(mirage_jax.optimize(wrong))):
        with pytest.raises(jax.errors.TracerBoolConversionError):
            f(X)
    with pytest.raises(TypeError, match="contracting"):
        mirage_jax.jit(gated)(X, X)

    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mirage_jax.jit(broken)(X)
    with pytest.raises(KeyError, match="mine"):
        mirage_jax.optimize(broken)(X)
    assert not winners.regions


def test_trees_numbers_and_static_arguments(winners):
    @mirage_jax.jit(static_argnames="mode")
    def f(tree, scale=2, *, mode="a"):
        y = tree["x"] @ tree["w"][0]
        return {"y": y * scale, "mode": (y.sum(), None), "n": 3, mode: tree["x"]}

    tree = {"x": X, "w": (W, None)}
    plain = jax.jit(f.__wrapped__, static_argnames="mode")
    for kwargs in ({}, {"mode": "b"}, {"scale": 3.5}):
        mine, theirs = f(tree, **kwargs), plain(tree, **kwargs)
        assert jax.tree.structure(mine) == jax.tree.structure(theirs)
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            assert close(a, b)
            assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
    assert winners.regions


def test_it_is_traced_once_for_each_type(winners):
    count = []

    @mirage_jax.jit
    def f(x):
        count.append(1)
        return x @ x.T

    for x in (X, X + 1, X, X[:2], X[:2]):
        f(x)
    assert len(count) == 2
    assert len(winners.regions) == 2


def test_a_call_costs_what_a_jitted_call_costs(winners):
    def small(x):
        return x @ x

    mine, plain = mirage_jax.jit(small), jax.jit(small)
    x = jnp.ones((2, 2))

    def cost(f):
        start = time.perf_counter()
        for _ in range(500):
            f(x)
        jax.block_until_ready(f(x))
        return time.perf_counter() - start

    mine(x), plain(x)
    costs = [(cost(mine), cost(plain)) for _ in range(15)]
    assert min(m for m, _ in costs) < 1.5 * min(p for _, p in costs)
    assert type(mine.__call__) is type(plain), "nothing of ours is around a call"
    assert len(winners.regions) == 1


def test_transformations_of_a_jitted_function(winners):
    def g(x):
        return gated(x, W).sum()

    f = mirage_jax.jit(g)
    assert close(jax.grad(f)(X), jax.grad(g)(X))
    batch = jnp.stack([X, 2 * X])
    assert close(jax.vmap(f)(batch), jax.vmap(g)(batch))
    assert close(jax.jit(jax.vmap(jax.grad(f)))(batch), jax.vmap(jax.grad(g))(batch))
    assert close(jax.hessian(f)(X), jax.hessian(g)(X))
    assert close(jax.jvp(f, (X,), (X,))[1], jax.jvp(g, (X,), (X,))[1])
    assert winners.traced


def test_stages_of_what_wraps_a_jitted_function(winners):
    inner = mirage_jax.jit(lambda x: x - (x @ x.T).sum(0))
    batch = jnp.ones((2, 4, 4))
    for wrapper in (jax.vmap(inner), jax.jit(jax.vmap(inner))):
        jaxpr = jax.make_jaxpr(wrapper)(batch)
        (result,) = jax.extend.core.jaxpr_as_fun(jaxpr)(batch)
        assert close(result, batch - 16)
        assert "mirage_region" in str(jaxpr)
        assert "f32[2,4,4]" in mirage_jax.explain(wrapper, batch).regions[0].jaxpr
    assert winners.regions[-1].in_avals[0].shape == (2, 4, 4)


def test_optimize_under_transformations(winners):
    f = mirage_jax.optimize(gated)
    assert inspect.signature(f) == inspect.signature(gated)
    assert close(f(X, W), gated(X, W))
    assert close(jax.jit(f)(X, W), gated(X, W))

    def slope(h):
        return jax.grad(lambda x: h(x, W).sum())(X)

    assert close(slope(f), slope(gated))
    batch = jnp.stack([X, 2 * X])
    assert close(jax.vmap(f, (0, None))(batch, W), jax.vmap(gated, (0, None))(batch, W))

    def loop(h, x):
        return jax.lax.scan(lambda c, _: (h(c, W), c), x, None, length=3)

    assert close(loop(f, X)[0], loop(gated, X)[0])
    assert close(
        jax.grad(lambda x: loop(f, x)[0].sum())(X),
        jax.grad(lambda x: loop(gated, x)[0].sum())(X),
    )
    assert "mirage_region" in str(jax.make_jaxpr(f)(X, W))
    assert close(jax.checkpoint(f)(X, W), gated(X, W))


def test_optimize_under_shard_map(winners):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    P = jax.sharding.PartitionSpec
    f = jax.shard_map(
        mirage_jax.optimize(gated), mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d")
    )
    assert close(jax.jit(f)(X, W), gated(X, W))
    assert winners.traced == 1
    assert winners.regions[0].in_avals[0].shape == (2, 6)


def test_optimize_keeps_what_is_no_array():
    def f(x, mode, n):
        assert (mode, n) == ("fast", 3)
        return {"y": x * n, "mode": mode}

    result = mirage_jax.optimize(f)(X, "fast", 3)
    assert result["mode"] == "fast"
    assert close(result["y"], 3 * X)


def test_disable_jit_runs_the_function_itself(winners):
    seen = []

    def f(x):
        seen.append(isinstance(x, jax.core.Tracer))
        return x @ x.T

    with jax.disable_jit():
        mirage_jax.jit(f)(X)
        mirage_jax.optimize(f)(X)
    assert seen == [False, False]
    assert not winners.regions


def test_a_failure_of_ours_costs_the_optimization_only(failing):
    f = mirage_jax.jit(gated)
    with pytest.warns(MirageWarning, match=r"stays with XLA.*the pipeline is broken"):
        assert close(f(X, W), gated(X, W))
    strict = mirage_jax.jit(gated, config=Config(strict=True))
    with pytest.raises(
        mirage_jax.errors.RegionError, match=r"region 0 at /.*the pipeline is broken"
    ):
        strict(X, W)


def test_a_failure_before_the_pipeline_costs_the_optimization_only(monkeypatch):
    def fail(jaxpr):
        raise ZeroDivisionError("no cutting today")

    monkeypatch.setattr("mirage_jax.substitute.find_regions", fail)
    with pytest.warns(MirageWarning, match=r"nothing is optimized.*no cutting today"):
        assert close(mirage_jax.jit(gated)(X, W), gated(X, W))
    with pytest.raises(mirage_jax.errors.RegionError, match="no cutting today"):
        mirage_jax.jit(gated, config=Config(strict=True))(X, W)


def test_clear_caches(winners):
    mirage_jax.jit(gated)(X, W)
    mirage_jax.jit(gated)(X, W)
    assert len(winners.regions) == 1
    mirage_jax.clear_caches()
    mirage_jax.jit(gated)(X, W)
    assert len(winners.regions) == 2


def test_clear_cache_of_one_function(winners):
    f = mirage_jax.jit(gated)
    f(X, W)
    f.clear_cache()
    f(X, W)
    assert winners.traced == 2


def test_explain(winners):
    shape = jax.ShapeDtypeStruct
    types = shape(X.shape, X.dtype), shape(W.shape, W.dtype)
    for f in (gated, mirage_jax.jit(gated), mirage_jax.optimize(gated)):
        report = mirage_jax.explain(f, *types)
        assert report.replaced == 1
        assert report.name == "gated"
    assert len(winners.regions) == 1


def test_what_the_package_exports():
    names = {n for n in vars(mirage_jax) if not n.startswith("_")}
    public = {
        "jit",
        "optimize",
        "explain",
        "clear_caches",
        "Config",
        "Target",
        "targets",
    }
    assert public | {"config", "errors", "Report", "MirageError"} <= names
    assert mirage_jax.__version__


def test_importing_starts_no_device():
    code = (
        "import mirage_jax, jax.extend.backend\n"
        "from jax._src import xla_bridge\n"
        "print(len(xla_bridge._backends))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "0"
