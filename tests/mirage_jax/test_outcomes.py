"""Outcomes are made once, and a failure to make one keeps the original."""

import threading
import time
import warnings

import jax
import jax.numpy as jnp
import pytest

from mirage_jax import MirageWarning, outcomes
from mirage_jax.config import Config
from mirage_jax.errors import MissError, RegionError, UnsupportedError
from mirage_jax.region import Region
from mirage_jax.report import Outcome

X = jnp.ones((4, 6))


def region(f=lambda x: x @ x.T, index=0):
    return Region(jax.make_jaxpr(f)(X), index)


def test_once_for_each_structure_and_setting(winners):
    config = Config()
    first = outcomes.outcome_of(region(), config)
    assert outcomes.outcome_of(region(index=7), Config()) is first
    assert outcomes.outcome_of(region(), Config(seed=1)) is not first
    assert outcomes.outcome_of(region(lambda x: x.T @ x), config) is not first
    assert len(winners.regions) == 3
    outcomes.forget()
    assert outcomes.outcome_of(region(), config) is not first


def test_once_for_many_threads(monkeypatch):
    made = []

    def slow(region, config):
        made.append(region)
        time.sleep(0.1)
        return Outcome(region.key)

    monkeypatch.setattr(outcomes.pipeline, "optimize_region", slow)
    found = []

    def work():
        found.append(outcomes.outcome_of(region(), Config()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 1
    assert len(set(map(id, found))) == 1


def raising(monkeypatch, error):
    def fail(region, config):
        raise error

    monkeypatch.setattr(outcomes.pipeline, "optimize_region", fail)


def test_what_is_unsupported_is_left_without_a_word(monkeypatch):
    raising(monkeypatch, UnsupportedError("`sort` has no meaning"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = outcomes.outcome_of(region(), Config(strict=True))
    assert outcome.call is None
    assert outcome.report.status == "original"
    assert outcome.report.reason == "`sort` has no meaning"
    assert "dot_general" in outcome.report.jaxpr


def test_a_failure_warns_once_and_keeps_the_original(failing):
    with pytest.warns(MirageWarning, match="region 0 at / stays with XLA.*Zero"):
        outcome = outcomes.outcome_of(region(), Config())
    assert outcome.call is None
    assert "ZeroDivisionError: the pipeline is broken" in outcome.report.reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcomes.outcome_of(region(), Config()) is outcome


def test_strict_raises_with_region_operation_and_reason(failing):
    with pytest.raises(RegionError) as caught:
        outcomes.outcome_of(region(), Config(strict=True))
    assert caught.value.where == "region 0 at /"
    assert "the pipeline is broken" in caught.value.reason
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_region_errors_and_misses_pass(monkeypatch):
    error = RegionError("region 9", "`exp`", "no")
    raising(monkeypatch, error)
    with pytest.raises(RegionError, match="region 9"):
        outcomes.outcome_of(region(), Config(strict=True))
    with pytest.warns(MirageWarning, match="region 9"):
        assert outcomes.outcome_of(region(), Config()).call is None
    raising(monkeypatch, MissError("no stored winner"))
    with pytest.raises(MissError, match="no stored winner"):
        outcomes.outcome_of(region(), Config(on_miss="error"))


def test_a_second_try_follows_an_interrupt(monkeypatch, winners):
    working = outcomes.pipeline.optimize_region
    raising(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        outcomes.outcome_of(region(), Config())
    monkeypatch.setattr(outcomes.pipeline, "optimize_region", working)
    assert outcomes.outcome_of(region(), Config()).call is not None
