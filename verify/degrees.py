"""Degrees of programs and plans as rational expressions, and the forms of exponents.

One walk finds for every value a bound on the degrees of its numerator and denominator,
and for values mod Q of which *atoms* they are a combination: what is left when sums,
literal factors, maxima and selections are opened.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ugraph.graph import BlockGraph, Plan, Predefined, tile_sizes
from ugraph.program import Program
from ugraph.terms import Access, Reduction, Ref, Term, yields

EXPONENTIALS = frozenset({"exp", "logistic", "tanh"})
SLOPE: Mapping[str, Fraction] = {
    "exp": Fraction(1),
    "logistic": Fraction(-1),
    "tanh": Fraction(2),
}
CHOICES = frozenset(
    {"max", "min", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne"}
)


@dataclass(frozen=True, slots=True)
class Degree:
    """Bounds on the total degrees of a numerator and of a denominator."""

    top: int
    bottom: int

    def times(self, other: "Degree") -> "Degree":
        """Of a product."""
        return Degree(self.top + other.top, self.bottom + other.bottom)

    def plus(self, other: "Degree") -> "Degree":
        """Of a sum."""
        return Degree(
            max(self.top + other.bottom, other.top + self.bottom),
            self.bottom + other.bottom,
        )

    def either(self, other: "Degree") -> "Degree":
        """Of one of the two."""
        return Degree(max(self.top, other.top), max(self.bottom, other.bottom))

    def repeated(self, count: int) -> "Degree":
        """Of a sum of `count` such values."""
        return Degree(self.top + (count - 1) * self.bottom, count * self.bottom)

    def power(self, exponent: int) -> "Degree":
        """Of a whole power."""
        n = abs(exponent)
        top, bottom = (
            (self.top, self.bottom) if exponent > 0 else (self.bottom, self.top)
        )
        return Degree(n * top, n * bottom)


CONSTANT = Degree(0, 0)
VARIABLE = Degree(1, 0)


@dataclass(frozen=True, slots=True)
class Linear:
    """A value mod Q as a combination of atoms, and a constant.

    Attributes:
      total: at most the sum of the coefficients' magnitudes.
      coefficients: every coefficient's magnitude.
      atoms: what is combined.
      constant: at most the magnitude of the constant.
      constants: the magnitude of everything that is added up in it.
    """

    total: Fraction = Fraction(0)
    coefficients: frozenset[Fraction] = frozenset()
    atoms: frozenset[Term] = frozenset()
    constant: Fraction = Fraction(0)
    constants: frozenset[Fraction] = frozenset()

    def scaled(self, factor: Fraction) -> "Linear":
        """The combination times a literal."""
        n = abs(factor)
        return Linear(
            n * self.total,
            frozenset(n * c for c in self.coefficients if n),
            self.atoms,
            n * self.constant,
            frozenset(n * c for c in self.constants if n),
        )


@dataclass(frozen=True, slots=True)
class Units:
    """What the coefficients of atoms, and the constants, are whole multiples of."""

    atoms: Fraction = Fraction(1)
    constants: Fraction = Fraction(1)

    def exponent(self, form: Linear) -> int:
        """The degree of ω to the power of a combination: atoms and 1 are variables."""
        return math.ceil(form.total / self.atoms) + math.ceil(
            form.constant / self.constants
        )


def _union(parts: Iterable[Linear], *, of_all: bool) -> Linear:
    parts = list(parts)

    def magnitude(found: list[Fraction]) -> Fraction:
        return sum(found, Fraction(0)) if of_all else max(found, default=Fraction(0))

    return Linear(
        magnitude([p.total for p in parts]),
        frozenset(c for p in parts for c in p.coefficients),
        frozenset(a for p in parts for a in p.atoms),
        magnitude([p.constant for p in parts]),
        frozenset(c for p in parts for c in p.constants),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a value: its degree, and its form mod Q (None: it has none)."""

    degree: Degree
    linear: Linear | None


@dataclass
class Analysis:
    """A walk over a program or plan that bounds degrees and finds atoms.

    Attributes:
      units: of the exponents.
      bound: labels that one output element depends on many positions of.
      stored: facts of tensors in device memory that a kernel stored.
      exponents: the form of every argument of an exponential.
      exponentials: how many values of exponentials an output element may depend on.
      blind: exponential ops that are taken to be opaque too.
      opaque: for every opaque function, how many of its values an output element may
        depend on, and the largest degree of their operands.
      choices: whether anything is chosen at random: an order, a comparison, a boolean.
    """

    units: Units = Units()
    bound: frozenset[str] = frozenset()
    stored: dict[str, Facts] = field(default_factory=dict)
    exponents: list[Linear] = field(default_factory=list)
    exponentials: int = 0
    blind: frozenset[str] = frozenset()
    opaque: dict[str, tuple[int, int]] = field(default_factory=dict)
    choices: bool = False

    def of_plan(self, plan: Plan) -> None:
        """Walks a plan; facts of its tensors are in `stored`."""
        for kernel in plan.kernels:
            if isinstance(kernel, Predefined):
                walk = _Walk(self, plan.sizes)
                for s in kernel.stores:
                    self._store(s.tensor.name, walk.facts(s.term))
            else:
                self._block(kernel, plan)

    def of_program(self, program: Program) -> None:
        """Walks a program as one kernel."""
        kernel = Predefined("program", program.outputs)
        tensors = tuple(o.tensor for o in program.outputs)
        self.of_plan(Plan(program.extents, program.inputs, tensors, (kernel,)))

    def _store(self, name: str, facts: Facts) -> None:
        self.stored[name] = facts

    def _block(self, kernel: BlockGraph, plan: Plan) -> None:
        sizes = {
            x: min(n, plan.sizes[x]) for x, n in tile_sizes(kernel, plan.sizes).items()
        }
        known: dict[str, Facts] = {}
        for p in kernel.passes:
            assert kernel.loop is not None
            before: dict[str, Facts] = {}
            for _ in range(-(-plan.sizes[kernel.loop.label] // kernel.loop.tile)):
                now: dict[str, Facts] = {}
                for a in p.accumulators:
                    walk = _Walk(self, sizes, {**known, **now}, before)
                    now[a.name] = walk.accumulated(a.name, a.op, a.body, a.rescale)
                for s in p.stores:
                    self._store(s.tensor.name, _Walk(self, sizes, known).facts(s.term))
                before = now
            known |= before
        walk = _Walk(self, sizes, known)
        for s in kernel.stores:
            self._store(s.tensor.name, walk.facts(s.term))


@dataclass
class _Walk:
    """Facts of the terms of one iteration."""

    analysis: Analysis
    sizes: Mapping[str, int]
    now: Mapping[str, Facts] = field(default_factory=dict)
    before: Mapping[str, Facts] = field(default_factory=dict)
    done: dict[Term, Facts] = field(default_factory=dict)

    def accumulated(
        self, name: str, op: str, body: Term, rescale: Term | None
    ) -> Facts:
        """Facts of an accumulator after this iteration."""
        new = self.facts(body)
        if name not in self.before:
            return new
        old = self.before[name]
        if rescale is not None:
            old = Facts(self.facts(rescale).degree.times(old.degree), None)
        if op != "sum":
            return _either((old, new))
        return Facts(old.degree.plus(new.degree), None)

    def facts(self, term: Term) -> Facts:
        """Facts of a term."""
        if term not in self.done:
            self.done[term] = self._facts(term)
        return self.done[term]

    def _facts(self, term: Term) -> Facts:
        attr, args = term.attr, [self.facts(a) for a in term.args]
        concrete = bool(term.args) and yields(term.args[0]) == "int"
        self.analysis.choices |= term.op in CHOICES and not concrete
        if isinstance(attr, Access):
            self.analysis.choices |= attr.yields == "bool"
            known = self.analysis.stored.get(attr.tensor)
            return known or Facts(VARIABLE, _atom(term))
        if isinstance(attr, Ref):
            return (self.now if attr.when == "now" else self.before)[attr.name]
        if term.op in EXPONENTIALS - self.analysis.blind:
            return self._exponential(term, args[0])
        if isinstance(attr, Reduction) and term.op == "sum":
            count = math.prod(self.sizes[x] for x in attr.labels)
            return Facts(args[0].degree.repeated(count), _own(term, args))
        return self._map(term, args)

    def _map(self, term: Term, args: list[Facts]) -> Facts:
        match term.op:
            case "lit":
                return Facts(CONSTANT, _constant(term))
            case "int" | "iota" | "extent" | "to_float":
                return Facts(CONSTANT, _own(term, args))
            case "add" | "mul":
                return self._combined(term, args)
            case "pow":
                return self._power(term, args)
            case "max" | "min" | "maximum" | "minimum" | "finite" | "select":
                return _either(args[1:] if term.op == "select" else args)
        return self._opaque(term, args)

    def _power(self, term: Term, args: list[Facts]) -> Facts:
        exponent = Fraction(term.attr)  # pyrefly: ignore
        if exponent.denominator != 1:
            root = self._opaque(term, args)
            return Facts(root.degree.power(exponent.numerator), root.linear)
        return Facts(args[0].degree.power(exponent.numerator), _own(term, args))

    def _opaque(self, term: Term, args: list[Facts]) -> Facts:
        """A value of an opaque function: one more variable, if no operands collide."""
        operand = [a.degree.top + a.degree.bottom for a in args]
        name = f"{term.op} {term.attr}"
        count, degree = self.analysis.opaque.get(name, (0, 0))
        found = count + self._count(term), max(degree, *operand, 0)
        self.analysis.opaque[name] = found
        return Facts(VARIABLE, _atom(term))

    def _count(self, term: Term) -> int:
        """How many elements of a term an output element may depend on."""
        bound = self.analysis.bound
        return math.prod(self.sizes[x] for x in term.labels if x in bound)

    def _combined(self, term: Term, args: list[Facts]) -> Facts:
        total = args[0].degree
        for a in args[1:]:
            total = total.plus(a.degree) if term.op == "add" else total.times(a.degree)
        if term.op == "add":
            return Facts(total, _if_known(args, of_all=True))
        return Facts(total, self._scaled(term, args))

    def _scaled(self, term: Term, args: list[Facts]) -> Linear | None:
        rest = [(t, f) for t, f in zip(term.args, args, strict=True) if t.op != "lit"]
        scale = Fraction(1)
        for t in term.args:
            if isinstance(t.attr, Fraction) and t.op == "lit":
                scale *= t.attr
        if len(rest) == 1 and rest[0][1].linear is not None:
            return rest[0][1].linear.scaled(scale)
        return _own(term, args)

    def _exponential(self, term: Term, argument: Facts) -> Facts:
        if argument.linear is None:
            return self._opaque(term, [argument])
        form = argument.linear.scaled(SLOPE[term.op])
        self.analysis.exponents.append(form)
        self.analysis.exponentials += self._count(term)
        size = self.analysis.units.exponent(form)
        power = Degree(size, size)
        if term.op == "exp":
            return Facts(power, None)
        return Facts(Degree(2 * size, 2 * size), None)


def _constant(term: Term) -> Linear:
    value = abs(term.attr) if isinstance(term.attr, Fraction) else Fraction(0)
    return Linear(constant=value, constants=frozenset({value} - {0}))


def _atom(term: Term) -> Linear:
    return Linear(Fraction(1), frozenset({Fraction(1)}), frozenset({term}))


def _own(term: Term, args: list[Facts]) -> Linear | None:
    """An atom of its own, unless a part has no value mod Q."""
    return None if any(a.linear is None for a in args) else _atom(term)


def _if_known(args: list[Facts], *, of_all: bool) -> Linear | None:
    forms = [a.linear for a in args if a.linear is not None]
    return _union(forms, of_all=of_all) if len(forms) == len(args) else None


def _either(args: Iterable[Facts]) -> Facts:
    args = list(args)
    degree = args[0].degree
    for a in args[1:]:
        degree = degree.either(a.degree)
    return Facts(degree, _if_known(args, of_all=False))


def units_of(forms: Iterable[Linear]) -> Units:
    """The largest units of some combinations."""
    forms = list(forms)
    return Units(
        _common({c for f in forms for c in f.coefficients}),
        _common({c for f in forms for c in f.constants}),
    )


def _common(found: set[Fraction]) -> Fraction:
    if not found:
        return Fraction(1)
    bottom = math.lcm(*(c.denominator for c in found))
    return Fraction(math.gcd(*(int(c * bottom) for c in found)), bottom)
