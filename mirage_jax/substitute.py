"""Substitute: a program with its regions optimized and put back as one equation each.

The program is walked with the bodies of its loops, branches, rematerialized parts and
nested jits. Where nothing was won, a body stays the very object it was.
"""

import functools
import heapq
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
from jax.extend import source_info_util

from mirage_jax import _compat, isolate, lift, pipeline
from mirage_jax.config import Config
from mirage_jax.errors import (
    MirageWarning,
    MissError,
    RegionError,
    UnsupportedError,
)
from mirage_jax.inline import Call, Flat, flatten, live
from mirage_jax.partition import Group, Partition, partition, variables
from mirage_jax.primitive import region_p
from mirage_jax.region import Region, aval_text
from mirage_jax.report import Outcome, RegionReport, Skipped

# Bodies that are programs of their own, by primitive: the parameters that hold them.
BODIES: Mapping[str, tuple[str, ...]] = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "checkpoint": ("jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
    "scan": ("jaxpr",),
    "while": ("body_jaxpr",),
    "cond": ("branches",),
    "shard_map": ("jaxpr",),
}
ELEMENTWISE = "elementwise only: nothing here reduces, and XLA fuses it"


@dataclass(frozen=True, eq=False)
class Site:
    """A program cut into regions, with the programs inside it.

    Attributes:
      source: the jaxpr it was made from, open or closed.
      flat: the same without plain calls.
      groups: what becomes a region.
      regions: the regions, one for each group.
      bodies: by position and parameter, the programs inside refused equations.
      skipped: what stays with XLA here, not counting `bodies`.
    """

    source: Any
    flat: Flat
    groups: tuple[Group, ...]
    regions: tuple[Region, ...]
    bodies: Mapping[int, Mapping[str, tuple["Site", ...]]]
    skipped: tuple[Skipped, ...]

    def inner(self) -> Iterator["Site"]:
        """The programs inside, in order."""
        for parameters in self.bodies.values():
            for sites in parameters.values():
                yield from sites

    def all_regions(self) -> tuple[Region, ...]:
        """The regions here and inside."""
        inner = (r for site in self.inner() for r in site.all_regions())
        return tuple(sorted((*self.regions, *inner), key=lambda r: r.index))

    def all_skipped(self) -> tuple[Skipped, ...]:
        """What stays with XLA here and inside."""
        inner = (s for site in self.inner() for s in site.all_skipped())
        return (*self.skipped, *inner)


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


def find_regions(jaxpr: Any) -> Site:
    """Cuts a closed jaxpr and the programs inside it into regions; searches nothing."""
    return _find(jaxpr, "/", iter(range(1 << 62)))


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
    except (RegionError, MissError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if config.strict:
            raise RegionError("the program", "cutting it up", reason) from error
        warnings.warn(f"nothing is optimized: {reason}", MirageWarning, stacklevel=2)
        return Substituted(jaxpr, (), (), (Skipped("program", reason),))


def unfit(jaxpr: Any) -> str | None:
    """Why a closed jaxpr must be run as it is and not evaluated again, or None."""
    if not _plain(jaxpr):
        return "it has inputs that are not arrays"
    if _mixes_x64(jaxpr):
        return "64-bit values where x64 is off: evaluated again they would be narrowed"
    return None


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


# ---------------------------------------------------------------- finding regions


def _find(jaxpr: Any, path: str, numbers: Iterator[int]) -> Site:
    flat = flatten(_compat.opened(jaxpr))
    parts = partition(
        flat,
        functools.lru_cache(maxsize=None)(_refusal),
        functools.partial(_judge, flat),
    )
    regions: dict[int, Region] = {}
    bodies: dict[int, Mapping[str, tuple[Site, ...]]] = {}
    skipped: list[Skipped] = []
    starts = {g.owned[0]: n for n, g in enumerate(parts.groups)}
    for i in sorted(flat.live):
        if i in starts:
            group = parts.groups[starts[i]]
            regions[starts[i]] = _region(flat, group, path, next(numbers))
        elif i in parts.refused:
            bodies[i] = _inside(flat.eqns[i], path, numbers)
            if not bodies[i]:
                skipped.append(_skip(flat.eqns[i], parts.refused[i], path))
    skipped += _light(flat, parts, path)
    ordered = tuple(regions[n] for n in range(len(parts.groups)))
    bodies = {i: b for i, b in bodies.items() if b}
    return Site(jaxpr, flat, parts.groups, ordered, bodies, tuple(skipped))


def _refusal(eqn: Any) -> str | None:
    """What lift says; an exception there is a refusal like any other."""
    if eqn.primitive.name in BODIES or eqn.primitive is region_p:
        return "its body is optimized by itself"
    try:
        return lift.refusal(eqn)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _judge(flat: Flat, group: Group) -> Mapping[int, str]:
    """The equations that keep `group` from being lifted as a whole."""
    found: dict[int, str] = {}
    for variable in group.invars:
        why = lift.boundary_refusal(variable.aval)
        readers = (i for i in group.members if variable in variables(flat.eqns[i].invars))
        found |= {i: f"it reads an input: {why}" for i in readers} if why else {}
    for variable in group.outvars:
        why = lift.boundary_refusal(variable.aval)
        makers = (i for i in group.owned if variable in flat.eqns[i].outvars)
        found |= {i: f"its result is read outside: {why}" for i in makers} if why else {}
    if found:
        return found
    failure = _memo.lift_failure(_region(flat, group, "/", 0))
    if failure is None:
        return {}
    at, why = failure
    return {group.members[at]: why} if at is not None else dict.fromkeys(group.owned, why)


def _inside(
    eqn: Any, path: str, numbers: Iterator[int]
) -> Mapping[str, tuple[Site, ...]]:
    """The programs inside a refused equation that are optimized by themselves."""
    found = {}
    for parameter in BODIES.get(eqn.primitive.name, ()):
        value = eqn.params.get(parameter)
        jaxprs = value if isinstance(value, (tuple, list)) else (value,)
        if all(_plain(j) for j in jaxprs):
            inside = f"{path.rstrip('/')}/{_label(eqn)}"
            found[parameter] = tuple(_find(j, inside, numbers) for j in jaxprs)
    return found


def _plain(jaxpr: Any) -> bool:
    """Whether `jaxpr` is a program over arrays only, with no references."""
    if jaxpr is None or _compat.is_high(jaxpr):
        return False
    body = _compat.opened(jaxpr)
    return all(
        hasattr(v.aval, "shape") and hasattr(v.aval, "dtype") and _is_value(v.aval)
        for v in (*body.constvars, *body.invars)
    )


def _is_value(aval: Any) -> bool:
    return isinstance(aval, jax.core.ShapedArray)


def _label(eqn: Any) -> str:
    name = eqn.params.get("name")
    primitive = eqn.primitive.name
    return f"{primitive}({name})" if isinstance(name, str) and name else primitive


def _region(flat: Flat, group: Group, path: str, index: int) -> Region:
    eqns = [flat.eqns[i] for i in group.members]
    jaxpr = _compat.new_jaxpr(group.invars, group.outvars, eqns, "mirage_region")
    return Region(jaxpr, index, path, _source(flat.eqns[group.owned[0]]))


def _source(eqn: Any) -> str:
    return source_info_util.summarize(eqn.source_info)


def _skip(eqn: Any, reason: str, path: str) -> Skipped:
    types = ", ".join(aval_text(a.aval) for a in eqn.invars[:3])
    more = ", …" if len(eqn.invars) > 3 else ""
    return Skipped(f"{_label(eqn)}({types}{more})", reason, path, _source(eqn))


def _light(flat: Flat, parts: Partition, path: str) -> list[Skipped]:
    if not parts.light:
        return []
    names = sorted({flat.eqns[i].primitive.name for i in parts.light})
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    source = _source(flat.eqns[parts.light[0]])
    return [Skipped(shown, ELEMENTWISE, path, source, len(parts.light))]


def _mixes_x64(jaxpr: Any) -> bool:
    if jax.config.jax_enable_x64:
        return False
    body = _compat.opened(jaxpr)
    for eqn in body.eqns:
        for atom in (*eqn.invars, *eqn.outvars):
            dtype = getattr(atom.aval, "dtype", None)
            if str(dtype) in ("float64", "int64", "uint64", "complex128"):
                return True
        if any(_mixes_x64(inner) for inner in _compat.sub_jaxprs(eqn)):
            return True
    return False


# ---------------------------------------------------------------- outcomes


class _Memo:
    """Outcomes by region and configuration; each is made once, by one thread."""

    def __init__(self) -> None:
        self.lifts: dict[str, tuple[int | None, str] | None] = {}
        self.outcomes: dict[tuple[Any, ...], Outcome] = {}
        self.locks: dict[tuple[Any, ...], threading.Lock] = {}
        self.lock = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], Outcome]) -> Outcome:
        with self.lock:
            lock = self.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self.outcomes:
                self.outcomes[key] = make()
            return self.outcomes[key]

    def lift_failure(self, region: Region) -> tuple[int | None, str] | None:
        """The equation that keeps `region` from being lifted and why, or None."""
        if region.key not in self.lifts:
            try:
                lift.lift(region.jaxpr)
                self.lifts[region.key] = None
            except Exception as error:
                why = str(error) or type(error).__name__
                self.lifts[region.key] = (getattr(error, "equation", None), why)
        return self.lifts[region.key]

    def clear(self) -> None:
        with self.lock:
            self.lifts.clear()
            self.outcomes.clear()
            self.locks.clear()


_memo = _Memo()


def forget() -> None:
    """Forgets every outcome of this process; the winners database is untouched."""
    _memo.clear()


def outcome_of(region: Region, config: Config) -> Outcome:
    """What the pipeline makes of `region`; made once per process and configuration."""
    key = (region.key, config, jax.default_backend())
    return _memo.get(key, lambda: _optimize(region, config))


def _optimize(region: Region, config: Config) -> Outcome:
    """Runs the pipeline away from the user's trace; a failure keeps the original."""
    try:
        return isolate.run(pipeline.optimize_region, region, config)
    except MissError:
        raise
    except UnsupportedError as error:
        return _left(region, config, str(error))
    except Exception as error:
        if config.strict:
            if isinstance(error, RegionError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise RegionError(region.where, "optimizing it", reason) from error
        reason = f"the optimizer failed: {type(error).__name__}: {error}"
        warnings.warn(
            f"{region.where} stays with XLA: {reason}", MirageWarning, stacklevel=2
        )
        return _left(region, config, reason)


def _left(region: Region, config: Config, reason: str) -> Outcome:
    report = RegionReport(
        index=region.index,
        path=region.path,
        source=region.source,
        key=region.key,
        target=config.target_name,
        reason=reason,
        jaxpr=str(region.jaxpr),
    )
    return Outcome(region.key, report=report)


# ---------------------------------------------------------------- rebuilding


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
    kept = _kept_calls(site.flat, changed, read)
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


def _kept_calls(
    flat: Flat, changed: set[int], read: set[Any]
) -> tuple[Call, ...]:
    """The outermost calls that can be put back as they were.

    None of their equations was replaced, and no region reads a value inside them.
    """
    kept: list[Call] = []
    for call in flat.calls:
        if kept and call.start < kept[-1].stop:
            continue
        span = range(call.start, call.stop)
        inside = {v for i in span for v in flat.eqns[i].outvars} - set(
            variables(call.results)
        )
        if span and changed.isdisjoint(span) and read.isdisjoint(inside):
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
