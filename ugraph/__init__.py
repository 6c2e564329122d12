"""μGraphs: programs and plans of labelled terms, and the search for plans.

A `Program` says what a region computes; a `Plan` says how, at three levels: kernel,
block and thread graphs. `search` proposes plans, `optimize` settles what is left to
settle, `describe` prints all three levels. Standard library and numpy only.
"""

from ugraph.graph import BlockGraph as BlockGraph
from ugraph.graph import Plan as Plan
from ugraph.graph import Predefined as Predefined
from ugraph.ops import Op as Op
from ugraph.ops import register as register
from ugraph.optimize import Optimized as Optimized
from ugraph.optimize import optimize as optimize
from ugraph.program import Program as Program
from ugraph.program import Store as Store
from ugraph.program import Tensor as Tensor
from ugraph.search import Candidate as Candidate
from ugraph.search import Found as Found
from ugraph.search import Limits as Limits
from ugraph.search import search as search
from ugraph.show import describe as describe
from ugraph.target import TARGETS as TARGETS
from ugraph.target import Target as Target
from ugraph.terms import Term as Term
from ugraph.validate import InvalidGraphError as InvalidGraphError
from ugraph.validate import validate as validate
