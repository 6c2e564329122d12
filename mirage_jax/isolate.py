"""Running our own computations away from the user's trace and settings.

A search evaluates and times programs on concrete arrays, and may be started while the
user's function is being traced, under named axes, meshes, `debug_nans`, x64 or a matmul
precision. All of these are properties of a thread in JAX, so the work is done in a
thread of its own, which starts with none of them, with the process-wide settings put
back too.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def neutral() -> Generator[None, None, None]:
    """JAX's default settings, whatever the process has changed."""
    with (
        jax.enable_x64(False),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.disable_jit(False),
        jax.default_matmul_precision(None),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.transfer_guard("allow"),
        jax.log_compiles(False),
    ):
        yield


def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls `function` in a fresh thread with neutral settings and waits for it.

    Ctrl-C is passed on: `function` sees a KeyboardInterrupt and may still return what
    it has. A second one is raised here at once.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            with neutral():
                future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=work, name="mirage_jax", daemon=True)
    thread.start()
    try:
        return future.result()
    except KeyboardInterrupt:
        if future.done():
            raise
        _interrupt(thread)
        return future.result()


def _interrupt(thread: threading.Thread) -> None:
    """Raises KeyboardInterrupt in `thread` at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
