"""The optimizer: what is decided of a chosen plan after the search.

Layouts of intermediates, thread graphs, the order of ops and shared memory. Pure
functions from plans to values; the plan's meaning never changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ugraph.graph import BlockGraph, Plan, Predefined
from ugraph.optimize.layout import apply, choose
from ugraph.optimize.memory import Memory, plan_memory
from ugraph.optimize.order import Ordered, order
from ugraph.optimize.threads import ThreadGraph, threads
from ugraph.target import Target


@dataclass(frozen=True)
class Optimized:
    """A plan and what was decided of it.

    Attributes:
      plan: the plan with the layouts applied, and pipelines no deeper than memory
      allows.
      threads: thread graphs of each custom kernel, by the kernel's name.
      order: the order of each custom kernel's ops, place by place.
      memory: the shared memory of each custom kernel.
      layouts: for each intermediate its axes in order of memory, the innermost last.
    """

    plan: Plan
    threads: Mapping[str, tuple[ThreadGraph, ...]]
    order: Mapping[str, tuple[Ordered, ...]]
    memory: Mapping[str, Memory]
    layouts: Mapping[str, tuple[int, ...]]


def optimize(plan: Plan, target: Target) -> Optimized:
    """Decides layouts, thread graphs, order and memory of `plan` for `target`."""
    layouts = choose(plan)
    laid = apply(plan, layouts)
    sizes = plan.sizes
    kernels = tuple(_fitted(k, sizes, target) for k in laid.kernels)
    made = replace(laid, kernels=kernels)
    orders = {k.name: order(k, sizes) for k in made.custom}
    return Optimized(
        made,
        {k.name: threads(k, sizes) for k in made.custom},
        orders,
        {k.name: plan_memory(k, orders[k.name], sizes) for k in made.custom},
        layouts,
    )


def _fitted(
    kernel: BlockGraph | Predefined, sizes: Mapping[str, int], target: Target
) -> BlockGraph | Predefined:
    """`kernel` with its pipeline as deep as shared memory allows."""
    if isinstance(kernel, Predefined):
        return kernel
    done = order(kernel, sizes)
    while (
        kernel.num_stages > 1
        and plan_memory(kernel, done, sizes).peak > target.shared_bytes
    ):
        kernel = replace(kernel, num_stages=kernel.num_stages - 1)
    return kernel
