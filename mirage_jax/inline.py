"""Inlining: a program with the bodies of its plain calls written in place.

Regions may then cross `jit` boundaries, of which `jax.nn` and `jax.numpy` have many.
Where each call began and ended is kept, so that a call of which nothing was replaced
can be put back as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mirage_jax import _compat


@dataclass(frozen=True)
class Call:
    """A call that was inlined.

    Attributes:
      eqn: the call, reading variables of the flat program.
      start: position of the first equation of its body in the flat program.
      stop: position after the last.
      results: what its outputs are in the flat program.
    """

    eqn: Any
    start: int
    stop: int
    results: tuple[Any, ...]


@dataclass(frozen=True)
class Flat:
    """A program without plain calls.

    Attributes:
      jaxpr: the open jaxpr it was made from, whose inputs it shares.
      eqns: the equations in program order.
      outvars: the results.
      calls: what was inlined, outer calls before inner ones.
      live: positions of equations that a result or an effect needs.
    """

    jaxpr: Any
    eqns: tuple[Any, ...]
    outvars: tuple[Any, ...]
    calls: tuple[Call, ...]
    live: frozenset[int]


def flatten(jaxpr: Any, opaque: Iterable[str] = ()) -> Flat:
    """Inlines the plain calls of an open `jaxpr`, at every depth.

    Args:
      jaxpr: the program.
      opaque: names of primitives to leave alone even though they are plain calls.
    """
    builder = _Builder(frozenset(opaque))
    outvars = builder.body(jaxpr, {}, fresh=False)
    eqns = tuple(builder.eqns)
    calls = tuple(sorted(builder.calls, key=lambda c: (c.start, -c.stop)))
    return Flat(jaxpr, eqns, tuple(outvars), calls, live(eqns, outvars))


def live(eqns: Iterable[Any], outvars: Iterable[Any]) -> frozenset[int]:
    """Positions of the equations that some of `outvars` or an effect needs."""
    needed = {v for v in outvars if not _compat.is_literal(v)}
    positions = set()
    for i, eqn in reversed(list(enumerate(eqns))):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            positions.add(i)
            needed.update(v for v in eqn.invars if not _compat.is_literal(v))
    return frozenset(positions)


def callee(eqn: Any) -> Any | None:
    """The body of a call that means the same written in place, as an open jaxpr.

    A call with shardings, layouts, donated arguments or compiler options is not plain,
    nor one whose body closes over constants or has types that are not arrays.
    """
    name, params = eqn.primitive.name, eqn.params
    if name == "mirage_region":
        return _compat.opened(params["jaxpr"])
    if name not in ("jit", "pjit") or eqn.effects:
        return None
    unspecified = type(_compat.unspecified_sharding())
    shardings = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    layouts = (*params.get("in_layouts", ()), *params.get("out_layouts", ()))
    plain = (
        all(isinstance(s, unspecified) for s in shardings)
        and all(layout is None for layout in layouts)
        and not any(params.get("donated_invars", ()))
        and not params.get("compiler_options_kvs")
        and not _compat.keeps_call(params.get("inline"))
        and not _compat.constants(params["jaxpr"])
        and not _compat.opened(params["jaxpr"]).constvars
        and not _compat.is_high(params["jaxpr"])
    )
    return _compat.opened(params["jaxpr"]) if plain else None


class _Builder:
    """Collects the flat program; local to `flatten`."""

    def __init__(self, opaque: frozenset[str]) -> None:
        self.eqns: list[Any] = []
        self.calls: list[Call] = []
        self.opaque = opaque

    def body(self, jaxpr: Any, env: dict[Any, Any], *, fresh: bool) -> list[Any]:
        """Appends the equations of `jaxpr` and returns its results."""

        def read(atom: Any) -> Any:
            return atom if _compat.is_literal(atom) else env.get(atom, atom)

        for eqn in jaxpr.eqns:
            invars = [read(a) for a in eqn.invars]
            eqn = eqn.replace(invars=invars)
            inner = None if eqn.primitive.name in self.opaque else callee(eqn)
            if inner is None:
                outvars = eqn.outvars
                if fresh:
                    outvars = [_renamed(v) for v in outvars]
                    env.update(zip(eqn.outvars, outvars, strict=True))
                self.eqns.append(eqn.replace(outvars=list(outvars)))
                continue
            start = len(self.eqns)
            inside = dict(zip(inner.invars, invars, strict=True))
            results = self.body(inner, inside, fresh=True)
            env.update(zip(eqn.outvars, results, strict=True))
            call = Call(eqn, start, len(self.eqns), tuple(results))
            self.calls.append(call)
        return [read(a) for a in jaxpr.outvars]


def _renamed(variable: Any) -> Any:
    return variable if _compat.is_drop(variable) else _compat.Var(variable.aval)
