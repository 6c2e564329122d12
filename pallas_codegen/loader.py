"""From the text of a module to its function; tracebacks show the generated lines."""

import functools
import linecache
import types
from collections.abc import Callable, Sequence

import jax

from pallas_codegen.source import Source


def load(source: Source) -> Callable[..., Sequence[jax.Array]]:
    """The function `run(*inputs, interpret=False)` of an emitted module.

    Equal sources give the same function, so that JAX's caches hit.
    """
    return _module(source).run


@functools.lru_cache(maxsize=1024)
def _module(source: Source) -> types.ModuleType:
    name = f"<mirage_jax:{source.backend}-{source.key}>"
    module = types.ModuleType(f"mirage_jax_{source.backend}_{source.key}")
    lines = source.text.splitlines(keepends=True)
    linecache.cache[name] = (len(source.text), None, lines, name)
    exec(compile(source.text, name, "exec"), module.__dict__)
    return module
