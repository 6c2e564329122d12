"""What users get wrong, and what their machines lack, through the whole pipeline."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mirage_jax
from mirage_jax import Config, MirageWarning
from mirage_jax.errors import ConfigError, DatabaseError, MissError

X, W = jnp.linspace(-1, 1, 24).reshape(4, 6), jnp.linspace(0, 1, 30).reshape(6, 5)
QUICK = Config(search_seconds=0.5, measure="off", interpret="off")


def gated(x, w):
    return jax.nn.silu(x @ w) @ w.T


def assert_right(f):
    np.testing.assert_allclose(f(X, W), gated(X, W), rtol=1e-5, atol=1e-6)


@pytest.fixture
def blocked(tmp_path):
    """A folder that nobody can write to, root included."""
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file" / "winners"


def test_an_unknown_target_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'h2000', but must be .*'h200'"):
        mirage_jax.jit(gated, config=Config(target="h2000"))


def test_an_unknown_target_in_the_environment(monkeypatch):
    monkeypatch.setenv("MIRAGE_JAX_TARGET", "h2000")
    with pytest.raises(ConfigError, match="h2000"):
        mirage_jax.jit(gated)


@pytest.mark.parametrize("wrong", [{"on_miss": "cry"}, {"search_seconds": "long"}])
def test_a_wrong_setting_is_an_error_at_once(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Config(**wrong)


def test_a_function_that_cannot_be_traced_gives_jaxs_own_error():
    def branches(x, w):
        return x if x.sum() > 0 else w

    for f in (jax.jit(branches), mirage_jax.jit(branches, config=QUICK)):
        with pytest.raises(jax.errors.TracerBoolConversionError):
            f(X, X)
    with pytest.raises(TypeError, match="non-array argument"):
        mirage_jax.jit(lambda x: x, config=QUICK)("text")


def test_a_folder_that_cannot_be_written(blocked):
    config = QUICK.replace(database=blocked)
    with pytest.warns(MirageWarning, match=r"cannot write .*winners"):
        assert_right(mirage_jax.jit(gated, config=config))
    mirage_jax.clear_caches()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_right(mirage_jax.jit(gated, config=config))
    strict = mirage_jax.jit(gated, config=config.replace(strict=True))
    with pytest.raises((DatabaseError, mirage_jax.MirageError), match="cannot write"):
        strict(X, W)


@pytest.mark.parametrize("broken", ["{", '{"format": 1, "key": "k", "other": 0}'])
def test_a_stored_winner_that_is_broken(tmp_path, broken):
    assert_right(mirage_jax.jit(gated, config=QUICK.replace(database=tmp_path / "a")))
    (file,) = (tmp_path / "a").glob("*.json")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / file.name).write_text(broken)
    mirage_jax.clear_caches()
    with pytest.warns(MirageWarning, match="cannot read"):
        assert_right(
            mirage_jax.jit(gated, config=QUICK.replace(database=tmp_path / "b"))
        )
    assert (tmp_path / "b" / file.name).read_text() != broken


def test_nothing_stored():
    assert_right(mirage_jax.jit(gated, config=Config(on_miss="xla")))
    with pytest.raises(MissError, match="no stored winner for region 0"):
        mirage_jax.jit(gated, config=Config(on_miss="error"))(X, W)


def test_a_decision_is_stored_once(tmp_path):
    config = QUICK.replace(database=tmp_path)
    first = mirage_jax.explain(gated, X, W, config=config)
    mirage_jax.clear_caches()
    second = mirage_jax.explain(gated, X, W, config=config.replace(on_miss="error"))
    assert not first.regions[0].from_database
    assert second.regions[0].from_database
    assert first.regions[0].reason == second.regions[0].reason
