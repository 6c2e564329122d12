"""What happened: plain data for each region, and its text and HTML forms."""

import dataclasses
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RegionReport:
    """What became of one region. Plain data: it survives a round trip through JSON.

    Attributes:
      index: number of the region in the program.
      path: where in the program it is.
      source: the user's file and line.
      key: hash of its structure.
      target: name of the device optimized for.
      status: "winner" when the region was replaced, else "original".
      reason: why the original stays, or how the winner was chosen.
      jaxpr: the region as JAX code.
      program: the region lifted, as text.
      winner: the winning μGraph as text.
      pallas: source of the emitted kernels.
      counts: of candidates seen, pruned, verified, ….
      certificate: what was proved of the winner.
      errors: numeric errors against float64, of the original and of the winner.
      predicted_s: predicted seconds on the target, of the winner and of XLA's plan.
      measured_s: measured seconds, where the target is present.
      stage_s: seconds spent in each stage.
      from_database: whether the winner was stored before.
      derivation: names of the algebraic steps to the winner.
      notes: anything else worth a line.
    """

    index: int = 0
    path: str = "/"
    source: str = ""
    key: str = ""
    target: str = ""
    status: str = "original"
    reason: str = ""
    jaxpr: str = ""
    program: str = ""
    winner: str = ""
    pallas: str = ""
    counts: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)
    predicted_s: Mapping[str, Any] = field(default_factory=dict)
    measured_s: Mapping[str, Any] = field(default_factory=dict)
    stage_s: Mapping[str, Any] = field(default_factory=dict)
    from_database: bool = False
    derivation: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON has."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: _plain(v) for k, v in values.items()}

    def at(self, index: int, path: str, source: str) -> "RegionReport":
        """The same report, for another place where the region stands."""
        return dataclasses.replace(self, index=index, path=path, source=source)

    def __str__(self) -> str:
        """The report for people."""
        where = f"region {self.index} at {self.path}"
        where += f" ({self.source})" if self.source else ""
        verdict = "replaced" if self.status == "winner" else "stays with XLA"
        lines = [f"{where}: {verdict}" + (f": {self.reason}" if self.reason else "")]
        if self.target:
            stored = ", winner from the database" if self.from_database else ""
            lines.append(f"  target       {self.target}{stored}")
        tables = (
            ("candidates", self.counts, str),
            ("predicted", self.predicted_s, _seconds),
            ("measured", self.measured_s, _seconds),
            ("stages", self.stage_s, _seconds),
        )
        for name, table, show in tables:
            if table:
                cells = ", ".join(f"{k} {show(v)}" for k, v in table.items())
                lines.append(f"  {name:12} {cells}")
        lines += _proof(self.certificate) + _numbers(self.errors)
        if self.derivation:
            lines.append(f"  {'derivation':12} {' → '.join(self.derivation)}")
        lines += [f"  note         {note}" for note in self.notes]
        for name, text in (("program", self.program), ("winner", self.winner)):
            if text:
                lines += [f"  {name}:", *("    " + line for line in text.splitlines())]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """What the pipeline made of a region. Compared by identity.

    Attributes:
      region_key: the region's `key`.
      platform: jax platform the replacement runs on, `cpu` or `cuda`.
      call: the replacement, from arrays to a tuple of arrays; None keeps the original.
      report: what happened.
      again: makes the outcome of another region, given as a jaxpr, in the same way.
    """

    region_key: str
    platform: str | None = None
    call: Callable[..., Any] | None = None
    report: RegionReport = field(default_factory=RegionReport)
    again: Callable[[Any], "Outcome"] | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Skipped:
    """A part of the program that no region holds.

    Attributes:
      what: the operator, or what the operators have in common.
      reason: why it stays with XLA.
      path: where in the program it is.
      source: the user's file and line.
      count: how many equations it stands for.
    """

    what: str
    reason: str
    path: str = "/"
    source: str = ""
    count: int = 1

    def __str__(self) -> str:
        """One line."""
        times = f" ×{self.count}" if self.count > 1 else ""
        source = f" ({self.source})" if self.source else ""
        return f"{self.what}{times} at {self.path}{source}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """What happened to a function.

    Attributes:
      name: of the function.
      target: name of the device optimized for.
      regions: one report per region, in program order.
      skipped: what stays with XLA, and why.
    """

    name: str
    target: str
    regions: tuple[RegionReport, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def replaced(self) -> int:
        """How many regions were replaced."""
        return sum(r.status == "winner" for r in self.regions)

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON has."""
        return {
            "name": self.name,
            "target": self.target,
            "regions": [r.to_dict() for r in self.regions],
            "skipped": [dataclasses.asdict(s) for s in self.skipped],
        }

    def __str__(self) -> str:
        """The report for people."""
        head = (
            f"{self.name} on {self.target}: {len(self.regions)} region(s), "
            f"{self.replaced} replaced"
        )
        lines = [head, *_distinct(self.regions)]
        if self.skipped:
            lines += ["left to XLA:", *(f"  {s}" for s in merged(self.skipped))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The report in a notebook."""
        parts = [f"<h3>{html.escape(str(self).splitlines()[0])}</h3>"]
        for region in self.regions:
            title, _, body = str(region).partition("\n")
            parts.append(
                f"<details><summary>{html.escape(title)}</summary>"
                f"<pre>{html.escape(body)}</pre>"
                + (f"<pre>{html.escape(region.pallas)}</pre>" if region.pallas else "")
                + "</details>"
            )
        rows = "".join(
            f"<tr><td>{html.escape(s.what)}</td><td>{s.count}</td>"
            f"<td>{html.escape(s.reason)}</td></tr>"
            for s in merged(self.skipped)
        )
        head = "<tr><th>left to XLA</th><th>equations</th><th>why</th></tr>"
        return "".join(parts) + (f"<table>{head}{rows}</table>" if rows else "")

    def save(self, path: str | Path) -> Path:
        """Writes the report; `.html`, `.json` or text, by the file's suffix."""
        path = Path(path)
        if path.suffix == ".html":
            title = html.escape(self.name)
            text = (
                f'<!doctype html><meta charset="utf-8"><title>{title}</title>'
                f"{self._repr_html_()}"
            )
        elif path.suffix == ".json":
            text = json.dumps(self.to_dict(), indent=1)
        else:
            text = str(self)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def save_kernels(self, folder: str | Path) -> tuple[Path, ...]:
        """Writes the source of each distinct emitted kernel module into `folder`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"\W+", "_", self.name).strip("_") or "program"
        paths: dict[str, Path] = {}
        for region in self.regions:
            if region.pallas and region.pallas not in paths:
                path = folder / f"{stem}_region{region.index}.py"
                path.write_text(region.pallas, encoding="utf-8")
                paths[region.pallas] = path
        return tuple(paths.values())


def merged(skipped: Sequence[Skipped]) -> tuple[Skipped, ...]:
    """`skipped` with entries that differ only in place put together."""
    found: dict[tuple[str, str], Skipped] = {}
    for s in skipped:
        old = found.get((s.what, s.reason))
        found[s.what, s.reason] = (
            s if old is None else dataclasses.replace(old, count=old.count + s.count)
        )
    return tuple(found.values())


def _distinct(regions: Sequence[RegionReport]) -> list[str]:
    """Each distinct region in full, and its repetitions in a line."""
    first: dict[str, int] = {}
    lines = []
    for region in regions:
        if region.key and region.key in first:
            lines.append(
                f"region {region.index} at {region.path}: "
                f"the same as region {first[region.key]}"
            )
        else:
            first[region.key] = region.index
            lines.append(str(region))
    return lines


def _proof(certificate: Mapping[str, Any]) -> list[str]:
    """What was proved, and under which assumptions."""
    if not certificate:
        return []
    fields = " and ".join(str(n) for n in certificate["fields"].values())
    opaque = ", ".join(certificate["opaque"]) or "none"
    passes = f"{certificate['bound']:.1e} at most ({certificate['theorem']})"
    return [
        "  certificate  equal to the original over the fields of "
        f"{fields} elements in {certificate['tests']} random tests",
        f"               a wrong plan passes with probability {passes}; "
        f"opaque ops: {opaque}",
        *(f"               assumed: {a}" for a in certificate["assumptions"]),
    ]


def _numbers(errors: Mapping[str, Any]) -> list[str]:
    """Errors against float64 by kind of input."""
    if not errors:
        return []
    lines = ["  errors       against float64, original → winner"]
    for name, found in errors.items():
        pair = f"{found['original']:.2e} → {found['winner']:.2e}"
        worst = f"{found['original_max']:.1e} → {found['winner_max']:.1e}"
        lines.append(f"               {name + ' inputs':20} {pair} (largest {worst})")
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return (
        value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
    )


def _seconds(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1 or unit == "µs":
            return f"{value * scale:.3g} {unit}"
    return str(value)
