"""Sites: a program, and the programs inside it, cut into regions.

A program is walked with the bodies of its loops, branches, rematerialized parts and
nested jits. Nothing is searched here.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import source_info_util

from mirage_jax import _compat, lift
from mirage_jax.inline import Flat, flatten
from mirage_jax.partition import Group, Partition, partition, variables
from mirage_jax.primitive import region_p
from mirage_jax.region import Region, aval_text
from mirage_jax.report import Skipped

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


def find_regions(jaxpr: Any) -> Site:
    """Cuts a closed jaxpr and the programs inside it into regions; searches nothing."""
    return _find(jaxpr, "/", iter(range(1 << 62)))


def unfit(jaxpr: Any) -> str | None:
    """Why a closed jaxpr must be run as it is and not evaluated again, or None."""
    if not _plain(jaxpr):
        return "it has inputs that are not arrays"
    if _mixes_x64(jaxpr):
        return "64-bit values where x64 is off: evaluated again they would be narrowed"
    return None


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
                skipped.append(_skip(flat, i, parts.refused[i], path))
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
        readers = (
            i for i in group.members if variable in variables(flat.eqns[i].invars)
        )
        found |= dict.fromkeys(readers, f"it reads an input: {why}") if why else {}
    for variable in group.outvars:
        why = lift.boundary_refusal(variable.aval)
        makers = (i for i in group.owned if variable in flat.eqns[i].outvars)
        found |= (
            dict.fromkeys(makers, f"its result is read outside: {why}") if why else {}
        )
    if found:
        return found
    failure = _lift_failure(_region(flat, group, "/", 0))
    if failure is None:
        return {}
    at, why = failure
    return dict.fromkeys(group.owned if at is None else (group.members[at],), why)


# By region key: the equation that keeps a region from being lifted and why, or None.
_lifts: dict[str, tuple[int | None, str] | None] = {}


def _lift_failure(region: Region) -> tuple[int | None, str] | None:
    if region.key not in _lifts:
        try:
            lift.lift(region.jaxpr)
            _lifts[region.key] = None
        except Exception as error:
            why = str(error) or type(error).__name__
            _lifts[region.key] = (getattr(error, "equation", None), why)
    return _lifts[region.key]


def forget() -> None:
    """Forgets which regions were lifted before."""
    _lifts.clear()


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
    return Region(jaxpr, index, path, _source(flat, group.owned[0]))


def _source(flat: Flat, i: int) -> str:
    """The user's file and line; in a library's function, those of the call of it."""
    calls = [call.eqn for call in flat.calls if call.start <= i < call.stop]
    found = (
        source_info_util.summarize(e.source_info) for e in (flat.eqns[i], *calls[::-1])
    )
    return next(filter(None, found), "")


def _skip(flat: Flat, i: int, reason: str, path: str) -> Skipped:
    eqn = flat.eqns[i]
    types = ", ".join(aval_text(a.aval) for a in eqn.invars[:3])
    more = ", …" if len(eqn.invars) > 3 else ""
    what = f"{_label(eqn)}({types}{more})"
    return Skipped(what, reason, path, _source(flat, i))


def _light(flat: Flat, parts: Partition, path: str) -> list[Skipped]:
    if not parts.light:
        return []
    names = sorted({flat.eqns[i].primitive.name for i in parts.light})
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    source = _source(flat, parts.light[0])
    return [Skipped(shown, ELEMENTWISE, path, source, len(parts.light))]


def _mixes_x64(jaxpr: Any) -> bool:
    if _compat.setting("jax_enable_x64"):
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
