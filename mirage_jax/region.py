"""A region: a convex part of a program that is replaced as one unit.

Regions are compared by `key`, a hash of their structure, so that one search serves
every place where the same computation is written.
"""

import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mirage_jax import _compat

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a program.

    Attributes:
      jaxpr: what it computes; closed, without constants: each one is an input.
      index: its number in the program.
      path: where it is in the program, such as `/scan/jit(block)`.
      source: the user's file and line.
    """

    jaxpr: Any
    index: int = 0
    path: str = "/"
    source: str = ""

    @property
    def in_avals(self) -> tuple[Any, ...]:
        """Types of the inputs."""
        return tuple(self.jaxpr.in_avals)

    @property
    def out_avals(self) -> tuple[Any, ...]:
        """Types of the outputs."""
        return tuple(self.jaxpr.out_avals)

    @functools.cached_property
    def key(self) -> str:
        """Hash of the structure: operators, parameters and types, but no names."""
        text = "\n".join(_lines(_compat.opened(self.jaxpr)))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def where(self) -> str:
        """Number, path and source line, for messages."""
        source = f" ({self.source})" if self.source else ""
        return f"region {self.index} at {self.path}{source}"

    def __str__(self) -> str:
        """The region as a jaxpr."""
        return f"{self.where}\n{self.jaxpr}"


def aval_text(aval: Any) -> str:
    """A short name of a type, such as `bf16[16,4096]`."""
    text = getattr(aval, "str_short", None)
    weak = "~" if getattr(aval, "weak_type", False) else ""
    return weak + (text(short_dtypes=True) if text else str(aval))


def _lines(jaxpr: Any) -> Iterable[str]:
    """The program as text in which variables are numbered in order of definition."""
    number: dict[Any, int] = {}

    def define(variables: Iterable[Any]) -> str:
        for variable in variables:
            number[variable] = len(number)
        return " ".join(aval_text(v.aval) for v in variables)

    def use(atom: Any) -> str:
        return _literal(atom) if _compat.is_literal(atom) else str(number[atom])

    yield "in " + define([*jaxpr.constvars, *jaxpr.invars])
    for eqn in jaxpr.eqns:
        arguments = " ".join(use(a) for a in eqn.invars)
        parameters = _parameter(dict(eqn.params))
        yield f"{eqn.primitive.name} {arguments} {parameters} -> " + define(eqn.outvars)
    yield "out " + " ".join(use(a) for a in jaxpr.outvars)


def _literal(atom: Any) -> str:
    value = np.asarray(atom.val)
    data = value.tobytes().hex() if value.dtype != object else repr(atom.val)
    return f"literal({data}:{aval_text(atom.aval)})"


def _array(data: np.ndarray) -> str:
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    return f"{data.dtype}{data.shape}{digest}"


def _parameter(value: Any) -> str:
    """A parameter as text that is the same in every process."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return "{" + ",".join(f"{k}={_parameter(v)}" for k, v in items) + "}"
    if isinstance(value, (tuple, list, set, frozenset)):
        items = [_parameter(v) for v in value]
        ordered = isinstance(value, (tuple, list))
        return "(" + ",".join(items if ordered else sorted(items)) + ")"
    if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
        consts = _parameter(_compat.constants(value))
        return "[" + ";".join(_lines(_compat.opened(value))) + consts + "]"
    if isinstance(value, (np.ndarray, jax.Array)):
        return _array(np.asarray(value))
    # What is left of the callables are derivative rules, which no search looks at.
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return _ADDRESS.sub("", repr(value))
