"""Programs are cut into regions together with the programs inside them."""

import jax
import jax.numpy as jnp
import pytest

from mirage_jax import _compat, sites
from mirage_jax.sites import ELEMENTWISE, find_regions, unfit

X, W = jnp.ones((4, 6)), jnp.ones((6, 6))


def site_of(f, *args):
    return find_regions(jax.make_jaxpr(f)(*args))


def layer(x):
    return jax.nn.silu(x @ W2) @ W2.T


W2 = jnp.ones((6, 6))
BODIES = {
    "/scan": lambda x: jax.lax.scan(lambda c, _: (layer(c), None), x, None, length=2),
    "/while": lambda x: jax.lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, layer(c[1])), (0, x)
    ),
    "/cond": lambda x: jax.lax.cond(x[0, 0] > 0, layer, lambda x: x, x),
    "/remat2": jax.grad(lambda x: jax.checkpoint(layer)(x).sum()),
    "/scan/cond": lambda x: jax.lax.scan(
        lambda c, _: (jax.lax.cond(c[0, 0] > 0, layer, lambda x: x, c), None),
        x,
        None,
        length=2,
    ),
}


@pytest.mark.parametrize("path", BODIES)
def test_bodies_are_programs_of_their_own(path):
    found = site_of(BODIES[path], X).all_regions()
    assert [r.index for r in found] == list(range(len(found)))
    assert any(r.path.startswith(path) for r in found)
    assert all("test_sites.py" in r.source for r in found)


def test_shard_map_bodies_are_programs_over_a_devices_part():
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("d",))
    P = jax.sharding.PartitionSpec
    f = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "d"),
        mesh=mesh,
        in_specs=(P(None, "d"), P("d")),
        out_specs=P(),
    )
    site = site_of(f, X, W)
    (region,) = site.all_regions()
    assert region.path == "/shard_map"
    assert [a.shape for a in region.in_avals] == [(4, 3), (3, 6)]
    assert any(s.what.startswith("psum") for s in site.all_skipped())


def test_a_region_is_closed_and_has_no_constants():
    table = jnp.linspace(0, 1, 36).reshape(6, 6)
    (region,) = site_of(lambda x: (x @ table).sum(0), X).all_regions()
    assert not _compat.constants(region.jaxpr)
    assert not _compat.opened(region.jaxpr).constvars
    assert [a.shape for a in region.in_avals] == [(4, 6), (6, 6)]


def test_what_is_skipped_is_named_with_its_reason_and_place():
    def f(x, w):
        jax.debug.print("{}", x[0, 0])
        y = jnp.sort(x @ w, axis=0)
        return jnp.tanh(y) * 2

    skipped = site_of(f, X, W).all_skipped()
    by_name = {s.what.partition("(")[0]: s for s in skipped}
    assert by_name["sort"].what == "sort(f32[4,6])"
    assert "no meaning" in by_name["sort"].reason
    assert "test_sites.py" in by_name["sort"].source, "the line of the call"
    assert any("side effects" in s.reason for s in skipped)
    (light,) = (s for s in skipped if s.reason == ELEMENTWISE)
    assert (light.what, light.count) == ("mul, slice, squeeze, tanh", 4)


def test_integers_do_not_cross_a_boundary():
    def f(x, n):
        return jnp.where(jnp.arange(6) < n, x, 0) @ W

    site = site_of(f, X, jnp.int32(3))
    (region,) = site.all_regions()
    assert {str(a.dtype) for a in region.in_avals} == {"float32", "bool"}


def test_programs_that_must_be_left_alone():
    with jax.enable_x64(True):
        wide = jax.make_jaxpr(lambda x: x @ x.T)(jnp.ones((2, 2), jnp.float64))
        assert unfit(wide) is None
    assert "64-bit" in unfit(wide)
    assert unfit(jax.make_jaxpr(lambda x: x @ x.T)(X)) is None


def test_a_program_that_cannot_be_lifted_as_a_whole_is_cut_again():
    def f(x):
        y = jnp.tanh(x @ W)
        return y.reshape(2, 3, 6).sum(1) @ W, y.reshape(3, 2, 6).sum(1) @ W

    site = site_of(f, jnp.ones((6, 6)))
    assert len(site.all_regions()) > 1
    assert any("cannot be cut" in s.reason for s in site.all_skipped())


def test_an_exception_of_the_lift_is_a_refusal(monkeypatch):
    def fail(eqn):
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(sites.lift, "refusal", fail)
    site = site_of(lambda x: x @ x.T, X)
    assert not site.all_regions()
    assert all("bug" in s.reason for s in site.all_skipped())


def test_lifting_a_group_that_fails_leaves_it_to_xla(monkeypatch):
    def fail(jaxpr):
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(sites.lift, "lift", fail)
    site = site_of(lambda x: x @ x.T, X)
    assert not site.all_regions()
    assert all("bug" in s.reason for s in site.all_skipped())
