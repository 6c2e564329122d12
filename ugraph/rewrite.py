"""Applying axioms: from one program's terms to the equal ones.

One driver, breadth first, deterministic: a state is the tuple of the program's output
terms; a step rewrites one subterm by one rule wherever it occurs. A step whose abstract
expression differs from the program's is pruned: no axiom can have made it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ugraph.abstract import expression
from ugraph.rules import Rule
from ugraph.terms import Term, rebuild, replace, subterms


@dataclass(frozen=True, slots=True)
class Step:
    """One application of an axiom: `before` became `after`."""

    rule: str
    before: Term
    after: Term


@dataclass(frozen=True, slots=True)
class Variant:
    """An equal form of the program's outputs, and how it came about."""

    roots: tuple[Term, ...]
    derivation: tuple[Step, ...] = ()


@dataclass(slots=True)
class Counts:
    """What the search saw; filled in while it runs, returned with its result."""

    seen: int = 0
    duplicates: int = 0
    pruned: int = 0


def steps(roots: tuple[Term, ...], rules: Iterable[Rule]) -> Iterator[Step]:
    """Every single application of a rule anywhere in `roots`."""
    for term in subterms(*roots):
        for rule in rules:
            for after in rule.rewrite(term):
                if after is not term:
                    yield Step(rule.name, term, after)


def saturate(variant: Variant, rules: tuple[Rule, ...], limit: int = 200) -> Variant:
    """`variant` with the rules applied, operands first, until none applies."""
    derivation = list(variant.derivation)
    done: dict[Term, Term] = {}

    def visit(term: Term) -> Term:
        if term not in done:
            t = rebuild(term, tuple(visit(a) for a in term.args))
            step = next(steps_at(t, rules), None)
            if step is not None and len(derivation) < limit:
                derivation.append(step)
                t = visit(step.after)
            done[term] = t
        return done[term]

    return Variant(tuple(visit(r) for r in variant.roots), tuple(derivation))


def steps_at(term: Term, rules: Iterable[Rule]) -> Iterator[Step]:
    """Every application of a rule at `term` itself."""
    for rule in rules:
        for after in rule.rewrite(term):
            if after is not term:
                yield Step(rule.name, term, after)


def variants(
    roots: tuple[Term, ...], rules: tuple[Rule, ...], *, limit: int, counts: Counts
) -> tuple[Variant, ...]:
    """Equal forms of `roots`, the form as written first.

    The forms saturated under a prefix of the rules come next (they are what
    breadth-first search would find last), then single steps, breadth first.

    Args:
      roots: output terms.
      rules: axioms, most useful first.
      limit: how many forms at most.
      counts: seen, duplicate and pruned forms are added here.
    """
    goal = tuple(expression(r) for r in roots)
    start = Variant(roots)
    found: dict[tuple[Term, ...], Variant] = {}

    def offer(v: Variant) -> bool:
        counts.seen += 1
        if v.roots in found:
            counts.duplicates += 1
        elif tuple(expression(r) for r in v.roots) != goal:
            counts.pruned += 1
        else:
            found[v.roots] = v
            return True
        return False

    offer(start)
    for end in range(1, len(rules) + 1):
        offer(saturate(start, rules[:end]))
    queue = list(found.values())
    while queue and len(found) < limit:
        current = queue.pop(0)
        for step in steps(current.roots, rules):
            table = {step.before: step.after}
            new = tuple(replace(r, table) for r in current.roots)
            v = Variant(new, (*current.derivation, step))
            if offer(v):
                queue.append(v)
            if len(found) >= limit:
                break
    return tuple(found.values())
