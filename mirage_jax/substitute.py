"""Substitute: a program with its regions optimized and put back as one equation each.

Where nothing was won, a body stays the very object it was.
"""

import heapq
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from mirage_jax import _compat
from mirage_jax.config import Config
from mirage_jax.errors import MirageWarning, MissError, RegionError
from mirage_jax.inline import Call, Flat, live
from mirage_jax.outcomes import outcome_of
from mirage_jax.partition import Group, variables
from mirage_jax.primitive import region_p
from mirage_jax.region import Region
from mirage_jax.report import Outcome, RegionReport, Skipped
from mirage_jax.sites import Site, find_regions, unfit


@dataclass(frozen=True, eq=False)
class Substituted:
    """What became of a program.

    Attributes:
      jaxpr: the program to run: the one given where nothing was won.
      outcomes: one for each region.
      reports: what happened to each region, at the place where it stands.
      skipped: what stays with XLA, and why.
    """

    jaxpr: Any
    outcomes: tuple[Outcome, ...]
    reports: tuple[RegionReport, ...]
    skipped: tuple[Skipped, ...]


def optimize_jaxpr(jaxpr: Any, config: Config) -> Substituted:
    """Optimizes every region of a closed jaxpr.

    Whatever fails here costs the optimization only: the jaxpr comes back as it was.

    Raises:
      RegionError: in strict mode, when the optimizer failed.
    """
    why = unfit(jaxpr)
    if why is not None:
        return Substituted(jaxpr, (), (), (Skipped("program", why),))
    try:
        return _optimize_program(jaxpr, config)
    except (RegionError, MissError, MirageWarning):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if config.strict:
            raise RegionError("the program", "cutting it up", reason) from error
        warnings.warn(f"nothing is optimized: {reason}", MirageWarning, stacklevel=2)
        return Substituted(jaxpr, (), (), (Skipped("program", reason),))


def _optimize_program(jaxpr: Any, config: Config) -> Substituted:
    site = find_regions(jaxpr)
    regions = site.all_regions()
    outcomes = {r.index: outcome_of(r, config) for r in regions}
    won = {i: o for i, o in outcomes.items() if o.call is not None}
    program = _rebuild(site, won) if won else jaxpr
    reports = tuple(
        outcomes[r.index].report.at(r.index, r.path, r.source) for r in regions
    )
    return Substituted(
        program, tuple(outcomes[r.index] for r in regions), reports, site.all_skipped()
    )


@dataclass(frozen=True)
class _Item:
    """An equation to emit, and where in the program it belongs."""

    eqn: Any
    position: int


def _rebuild(site: Site, won: Mapping[int, Outcome]) -> Any:
    """The program of `site` with the regions in `won` replaced."""
    winners = [
        (group, region, won[region.index])
        for group, region in zip(site.groups, site.regions, strict=True)
        if region.index in won
    ]
    bodies = {i: b for i, b in site.bodies.items() if _changes(b, won)}
    if not winners and not bodies:
        return site.source
    changed = {i for group, _, _ in winners for i in group.owned} | bodies.keys()
    items = [
        _Item(_region_equation(site.flat, *winner), winner[0].owned[-1])
        for winner in winners
    ]
    owned = {i for group, _, _ in winners for i in group.owned}
    read = {v for item in items for v in variables(item.eqn.invars)}
    kept = _kept_calls(site.flat, changed, read, _unbound(site.flat, winners))
    for candidate in (kept, ()):
        rest = _others(site.flat, owned, bodies, candidate, won)
        eqns = _ordered([*items, *rest])
        if eqns is not None:
            break
    else:
        raise AssertionError("regions of one program depend on each other")
    keep = live(eqns, site.flat.outvars)
    return _compat.with_equations(
        site.source, site.flat.outvars, [e for i, e in enumerate(eqns) if i in keep]
    )


def _changes(
    parameters: Mapping[str, tuple[Site, ...]], won: Mapping[int, Outcome]
) -> bool:
    sites = (site for sites in parameters.values() for site in sites)
    return any(r.index in won for site in sites for r in site.all_regions())


def _region_equation(flat: Flat, group: Group, region: Region, outcome: Outcome) -> Any:
    last = flat.eqns[group.owned[-1]]
    return jex.new_jaxpr_eqn(
        list(group.invars),
        list(group.outvars),
        region_p,
        {"jaxpr": region.jaxpr, "outcome": outcome},
        jex.no_effects,
        last.source_info,
        last.ctx,
    )


def _unbound(flat: Flat, winners: Sequence[tuple[Group, Region, Outcome]]) -> set[Any]:
    """Variables that no equation binds any more: inside regions, or of dead code."""
    dead = set(range(len(flat.eqns))) - flat.live
    owned = {i for group, _, _ in winners for i in group.owned}
    gone = {v for i in dead | owned for v in flat.eqns[i].outvars}
    return gone.difference(*(group.outvars for group, _, _ in winners))


def _kept_calls(
    flat: Flat, changed: set[int], read: set[Any], unbound: set[Any]
) -> tuple[Call, ...]:
    """The outermost calls that can be put back as they were.

    None of their equations was replaced, no region reads a value inside them, and all
    their arguments are there, those that only dead code reads too.
    """
    kept: list[Call] = []
    for call in flat.calls:
        if kept and call.start < kept[-1].stop:
            continue
        span = range(call.start, call.stop)
        inside = {v for i in span for v in flat.eqns[i].outvars} - set(
            variables(call.results)
        )
        given = unbound.isdisjoint(variables(call.eqn.invars))
        if span and given and changed.isdisjoint(span) and read.isdisjoint(inside):
            kept.append(call)
    return tuple(kept)


def _others(
    flat: Flat,
    owned: set[int],
    bodies: Mapping[int, Mapping[str, tuple[Site, ...]]],
    kept: Sequence[Call],
    won: Mapping[int, Outcome],
) -> list[_Item]:
    """What is not in a winning region: equations, and calls put back."""
    items = [_Item(_call_equation(flat, call), call.start) for call in kept]
    inside = {i for call in kept for i in range(call.start, call.stop)}
    for i in sorted(flat.live - owned - inside):
        eqn = flat.eqns[i]
        if i in bodies:
            eqn = eqn.replace(params=_parameters(eqn, bodies[i], won))
        items.append(_Item(eqn, i))
    return items


def _parameters(
    eqn: Any, bodies: Mapping[str, tuple[Site, ...]], won: Mapping[int, Outcome]
) -> dict[str, Any]:
    params = dict(eqn.params)
    for name, sites in bodies.items():
        rebuilt = tuple(_rebuild(site, won) for site in sites)
        several = isinstance(params[name], (tuple, list))
        params[name] = rebuilt if several else rebuilt[0]
    return params


def _call_equation(flat: Flat, call: Call) -> Any:
    """The call as it was, its results bound to the flat program's variables."""
    made = {v for i in range(call.start, call.stop) for v in flat.eqns[i].outvars}
    outvars = []
    for old, result in zip(call.eqn.outvars, call.results, strict=True):
        if not _compat.is_literal(result) and result in made:
            made.discard(result)
            outvars.append(result)
        else:
            outvars.append(_compat.Var(old.aval))
    return call.eqn.replace(outvars=outvars)


def _ordered(items: Sequence[_Item]) -> list[Any] | None:
    """Equations in dependency order, else by position; None if there is no order.

    Equations with effects stay in the order they were written in.
    """
    items = sorted(items, key=lambda item: item.position)
    producer = {v: n for n, item in enumerate(items) for v in item.eqn.outvars}
    readers: list[list[int]] = [[] for _ in items]
    waiting = [0] * len(items)
    before: int | None = None
    for n, item in enumerate(items):
        needs = {producer[v] for v in variables(item.eqn.invars) if v in producer}
        if item.eqn.effects:
            needs |= set() if before is None else {before}
            before = n
        waiting[n] = len(needs)
        for p in needs:
            readers[p].append(n)
    ready = [n for n, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)
        order.append(items[n].eqn)
        for reader in readers[n]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order if len(order) == len(items) else None
