"""Measuring and choosing, with a made-up clock."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax import tune
from mirage_jax.tune import Timing


class Clock:
    """Time that passes only when a timed function says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tune, "time", made)
    monkeypatch.setattr(tune.jax, "jit", lambda f: f)
    return made


def taking(clock: Clock, seconds: float):
    def function(*arguments: object) -> jax.Array:
        clock.now += seconds
        return jnp.zeros(())

    return function


def test_every_function_is_timed_in_turn(clock: Clock) -> None:
    functions = {"original": taking(clock, 0.5), "plan": taking(clock, 0.4)}
    timings = tune.measure(functions, (), seconds=100)
    assert timings["plan"].median == pytest.approx(0.4)
    assert timings["original"].fastest == pytest.approx(0.5)
    assert len(timings["plan"].samples) == tune.ROUNDS


def test_time_is_limited(clock: Clock) -> None:
    functions = {"original": taking(clock, 1.0), "plan": taking(clock, 1.1)}
    timings = tune.measure(functions, (), seconds=3)
    assert 3 <= len(timings["plan"].samples) < tune.ROUNDS


def test_the_hopeless_are_dropped_early_and_the_original_never(clock: Clock) -> None:
    functions = {
        "original": taking(clock, 9.0),
        "bad": taking(clock, 2.0),
        "good": taking(clock, 1.0),
    }
    timings = tune.measure(functions, (), seconds=1000)
    assert timings["bad"].samples == ()
    assert len(timings["original"].samples) == tune.ROUNDS
    assert tune.faster(timings, "original") == ("good",)


def test_an_exception_is_a_result(clock: Clock) -> None:
    def broken() -> jax.Array:
        raise ZeroDivisionError("no such tile")

    functions = {"original": taking(clock, 1.0), "plan": broken}
    timings = tune.measure(functions, (), seconds=100)
    assert "no such tile" in timings["plan"].error
    assert tune.faster(timings, "original") == ()


def test_a_winner_beats_the_noise() -> None:
    timings = {
        "original": Timing("original", (1.0, 1.3)),
        "a little": Timing("a little", (0.97, 0.97)),
        "clearly": Timing("clearly", (0.8, 0.85)),
        "more": Timing("more", (0.5, 0.6)),
        "not run": Timing("not run"),
    }
    assert tune.faster(timings, "original") == ("more", "clearly")


def test_inputs_have_the_types_asked_for() -> None:
    avals = [
        jax.ShapeDtypeStruct((3, 4), jnp.bfloat16),
        jax.ShapeDtypeStruct((5,), bool),
    ]
    first, second = tune.inputs_like(avals, 0)
    assert (first.shape, first.dtype) == ((3, 4), jnp.bfloat16)
    assert set(np.unique(second)) <= {False, True}
    again = tune.inputs_like(avals, 0)
    assert (again[0] == first).all()
