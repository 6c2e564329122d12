"""Our own computations see neither the user's trace nor the user's settings."""

import signal
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from mirage_jax import isolate


def settings():
    return (
        jax.config.jax_enable_x64,
        jax.config.jax_debug_nans,
        jax.config.jax_disable_jit,
        jax.config.jax_default_matmul_precision,
        jax.config.jax_numpy_rank_promotion,
    )


def test_results_arguments_and_errors():
    assert isolate.run(lambda a, b=0: a + b, 1, b=2) == 3
    with pytest.raises(KeyError, match="why"):
        isolate.run({}.__getitem__, "why")


def test_settings_are_jaxs_defaults_inside_and_come_back():
    default = settings()
    with (
        jax.enable_x64(True),
        jax.debug_nans(True),
        jax.disable_jit(True),
        jax.default_matmul_precision("highest"),
        jax.numpy_rank_promotion("raise"),
    ):
        mine = settings()
        assert isolate.run(settings) == default
        assert settings() == mine != default
    assert settings() == default


def test_process_wide_settings_are_put_back_too():
    default = settings()
    jax.config.update("jax_debug_nans", True)
    try:
        assert isolate.run(settings) == default
    finally:
        jax.config.update("jax_debug_nans", False)


def test_it_computes_on_concrete_values_while_the_user_traces():
    def inside():
        x = jnp.ones(3) / 0.0
        return bool(jnp.isinf(x).all())

    def f(x):
        assert isolate.run(inside) is True
        return x * 2

    assert jax.jit(f)(jnp.ones(2)).tolist() == [2, 2]
    assert jax.vmap(f)(jnp.ones(2)).tolist() == [2, 2]


@pytest.fixture
def interruptible():
    """Ctrl-C raises, even where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c_after(seconds):
    main = threading.main_thread().ident
    threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT)).start()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_reaches_the_function_which_may_still_answer():
    def search():
        ctrl_c_after(0.2)
        try:
            for _ in range(1000):
                time.sleep(0.01)
        except KeyboardInterrupt:
            return "best so far"
        return "not interrupted"

    assert isolate.run(search) == "best so far"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_is_not_handled_is_raised_here():
    def search():
        ctrl_c_after(0.2)
        for _ in range(1000):
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        isolate.run(search)
