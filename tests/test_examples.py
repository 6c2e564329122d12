"""The examples run, and say what they should."""

import contextlib
import io
import pathlib

import chex
import jax
import jax.numpy as jnp
import pytest

import mirage_jax
from examples import decoder_block, quickstart


def test_quickstart_shows_what_happened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(quickstart.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        quickstart.main()
    text = printed.getvalue()
    for part in (
        "1 region(s), 1 replaced",
        "block graph, grid (",
        "forloop ",
        "imap {",
        "fmap {",
        "omap {",
        "accum_sum(",
        "thread graph",
        "candidates   seen",
        "a wrong plan passes with probability",
        "against float64, original → winner",
        "predicted    winner",
        "XLA's plan",
        "def kernel0_block(",
    ):
        assert part in text, part
    saved = tmp_path / "norm_linear_region0.py"
    assert "plgpu.load" in saved.read_text(encoding="utf-8")
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("target", ["auto", "h200"])
def test_a_decoder_block_is_what_it_is_under_jax_jit(target: str) -> None:
    block = decoder_block.DecoderBlock(heads=4, kv_heads=2, width=32, hidden=192)
    x = jax.random.normal(jax.random.key(0), (2, 48, 128), jnp.bfloat16)
    params = block.init(jax.random.key(1), x)
    config = mirage_jax.Config(target=target, strict=True)
    plain = jax.jit(block.apply)
    ours = mirage_jax.jit(block.apply, config=config)
    want = plain(params, x).astype(jnp.float32)
    wide = jax.tree.map(lambda a: a.astype(jnp.float32), params)
    exact = plain(wide, x.astype(jnp.float32))
    got = ours(params, x).astype(jnp.float32)

    def error(value: jax.Array) -> float:
        return float(jnp.linalg.norm(value - exact) / jnp.linalg.norm(exact))

    chex.assert_trees_all_equal_shapes_and_dtypes(got, want)
    chex.assert_tree_all_finite(got)
    assert error(got) <= 1.5 * error(want)
    report = mirage_jax.explain(ours, params, x)
    assert report.regions
    if target == "h200":
        assert report.replaced >= 1
    assert all(r.reason for r in report.regions)
