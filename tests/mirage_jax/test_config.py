"""Settings: checked, comparable, and taken from one of four places."""

import os
import pickle

import jax.numpy as jnp
import pytest

import mirage_jax
from mirage_jax import Config, config
from mirage_jax.errors import ConfigError
from ugraph.target import TARGETS

WRONG = {
    "target": ("h2000", "one of 'auto', 'a100'"),
    "max_kernel_ops": (0, "an integer, from 1 to 64"),
    "max_block_ops": (1.5, "an integer"),
    "search_seconds": (-1, "a number, at least 0"),
    "max_states": (True, "an integer"),
    "failure_probability": (1.0, "between 0 and 1"),
    "measure": ("yes", "'auto', 'on', 'off'"),
    "interpret": (None, "'auto', 'on', 'off'"),
    "database": (7, "the path of a folder"),
    "on_miss": ("xla!", "'search', 'xla', 'error'"),
    "strict": ("no", "True or False"),
    "seed": (-1, "at least 0"),
    "progress": ("loud", "'auto', 'on', 'off'"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_value_is_named_with_what_is_right(field):
    value, allowed = WRONG[field]
    with pytest.raises(ConfigError, match=f"`{field}` is {value!r}, but must be") as e:
        Config(**{field: value})
    assert allowed in str(e.value)


def test_every_field_is_checked_above():
    assert set(WRONG) == set(Config.__dataclass_fields__)


def test_unknown_fields_and_positions_are_refused():
    with pytest.raises(TypeError, match="colour"):
        Config(colour=1)
    with pytest.raises(TypeError):
        Config("h200")


def test_equal_settings_are_equal_and_hash_alike(tmp_path):
    assert Config(measure=True) == Config(measure="on")
    assert hash(Config(database=None)) == hash(Config(database="off"))
    assert Config(search_seconds=2) == Config(search_seconds=2.0)
    assert Config(database=tmp_path) == Config(database=str(tmp_path))
    assert Config() != Config(seed=1)
    assert pickle.loads(pickle.dumps(Config(seed=1))) == Config(seed=1)
    assert Config(seed=1).replace(seed=0) == Config()


def test_targets_by_name_or_described():
    h200 = TARGETS["h200"]
    assert Config(target="h200").target_name == "h200"
    assert Config(target=h200).target_name == h200.name
    assert Config().target_name == "auto"


def test_the_environment_gives_defaults(monkeypatch):
    monkeypatch.setenv("MIRAGE_JAX_SEARCH_SECONDS", "2.5")
    monkeypatch.setenv("MIRAGE_JAX_STRICT", "1")
    monkeypatch.setenv("MIRAGE_JAX_TARGET", "a100")
    monkeypatch.setenv("MIRAGE_JAX_SEED", "4")
    assert config.resolve() == Config(
        search_seconds=2.5, strict=True, target="a100", seed=4, database="off"
    )
    assert config.resolve(Config(seed=9)) == Config(seed=9)


@pytest.mark.parametrize(
    ("name", "text"),
    [("STRICT", "maybe"), ("SEED", "1.5"), ("SEARCH_SECONDS", "long"), ("TARGET", "x")],
)
def test_a_wrong_environment_is_an_error(monkeypatch, name, text):
    monkeypatch.setenv(f"MIRAGE_JAX_{name}", text)
    with pytest.raises(ConfigError, match=f"(?i){name}.*{text}"):
        config.resolve()


def test_nothing_else_of_the_environment_is_looked_at(monkeypatch):
    monkeypatch.setenv("UNRELATED", "1")
    allowed = {"HOME", "XDG_CACHE_HOME", "MIRAGE_JAX_DATABASE"}
    assert set(config.environment()) <= allowed
    assert config.environment().get("HOME") == os.environ.get("HOME")


def test_a_context_overrides_and_ends():
    outer, inner = Config(seed=1), Config(seed=2)
    with config.use(outer):
        assert config.resolve(Config(seed=3)) == outer
        with config.use(inner):
            assert config.resolve() == inner
        assert config.resolve() == outer
    assert config.resolve(Config(seed=3)) == Config(seed=3)
    with pytest.raises(ConfigError, match="`config` is 'h200'"):
        config.use("h200")


def test_a_context_is_part_of_the_key_of_jitted_functions(winners):
    f = mirage_jax.jit(lambda x: x @ x.T)
    x = jnp.ones((3, 4))
    f(x)
    with config.use(Config(seed=5)):
        f(x)
        f(x)
    f(x)
    assert [c.seed for c in winners.configs] == [0, 5]
