"""The order of ops: correct, and with no more barriers than the deepest path."""

from itertools import permutations

from hypothesis import given

from tests.ugraph.plans import FLASH, plans, scheduled
from tests.ugraph.programs import matmul
from ugraph.graph import Plan
from ugraph.optimize.order import Ordered, depths, meets, order
from ugraph.optimize.places import Place, operands, places
from ugraph.program import Program
from ugraph.terms import Ref, Term, lit


def _waits(term: Term, place: Place, sizes: dict[str, int]) -> tuple[Term, ...]:
    attr = term.attr
    if isinstance(attr, Ref):
        folded = attr.when == "now" and attr.name in place.folded
        return (place.folded[attr.name],) if folded else ()
    return operands(term, sizes)


def _ancestors(term: Term, place: Place, sizes: dict[str, int]) -> dict[Term, bool]:
    """What ordered ops a value needs, through constants and accumulators."""
    found: dict[Term, bool] = {}
    for a in _waits(term, place, sizes):
        met = meets(a, term, sizes)
        if a.op == "ref":
            for b, crossed in _ancestors(a, place, sizes).items():
                found[b] = found.get(b, False) or crossed or met
        else:
            found[a] = found.get(a, False) or met
    return found


@given(plans())
def test_ops_follow_their_operands_and_meet_where_they_must(
    case: tuple[Program, Plan],
) -> None:
    _, plan = case
    for kernel in plan.custom:
        found = places(kernel, plan.sizes)
        for place, done in zip(found, order(kernel, plan.sizes), strict=True):
            position = {t: i for i, t in enumerate(done.terms)}
            assert len(position) == len(done.terms)
            for term, at in position.items():
                for a, crossed in _ancestors(term, place, plan.sizes).items():
                    if a not in position:
                        continue
                    assert position[a] < at
                    if crossed:
                        assert any(position[a] < b <= at for b in done.barriers)


@given(plans())
def test_there_are_as_many_barriers_as_the_deepest_path_has(
    case: tuple[Program, Plan],
) -> None:
    _, plan = case
    for kernel in plan.custom:
        found = places(kernel, plan.sizes)
        for place, done in zip(found, order(kernel, plan.sizes), strict=True):
            depth = depths(place, plan.sizes)
            deepest = max((depth[t] for t in done.terms), default=0)
            assert len(done.barriers) <= deepest
            assert list(done.barriers) == sorted(set(done.barriers))


def _barriers_needed(terms: tuple[Term, ...], place: Place, plan: Plan) -> int | None:
    """Barriers of an order, placed as late as possible; None if it is no order."""
    position = {t: i for i, t in enumerate(terms)}
    count, last = 0, -1
    for at, term in enumerate(terms):
        for a, crossed in _ancestors(term, place, plan.sizes).items():
            if a in position:
                if position[a] >= at:
                    return None
                if crossed and position[a] >= last:
                    count, last = count + 1, at
    return count


def test_no_order_of_a_small_block_has_fewer_barriers() -> None:
    for plan in (FLASH, scheduled(matmul(), {"m": 16}, ("k", 16))):
        kernel = plan.custom[0]
        found = places(kernel, plan.sizes)
        for place, done in zip(found, order(kernel, plan.sizes), strict=True):
            if len(done.terms) > 7:
                continue
            needed = [
                _barriers_needed(p, place, plan) for p in permutations(done.terms)
            ]
            assert len(done.barriers) == min(n for n in needed if n is not None)


def test_attention_meets_three_times() -> None:
    body = next(o for o in order(FLASH.custom[0], FLASH.sizes) if o.looped)
    assert isinstance(body, Ordered)
    assert body.place == "pass 0"
    assert len(body.barriers) == 3
    assert [t.op for t in body.terms if t.op == "max"] == ["max"]


def test_constants_and_accumulators_are_there_anyway() -> None:
    (out,) = matmul().outputs
    assert not meets(lit(2), out.term, matmul().sizes)
    left, _ = operands(out.term, matmul().sizes)
    assert meets(left, out.term, matmul().sizes)
