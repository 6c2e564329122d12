"""From jaxprs to labelled terms: what of JAX has a meaning in the IR, and which.

What lifts, and to what:

* the primitives that rows of the op table name (exp, log, log1p, expm1, tanh, logistic,
  erf, sin, cos, abs, sign, floor, ceil, max, min, lt, le, gt, ge, eq, ne, and those of
  rows added from outside): their op, elementwise;
* add, add_any, sub, mul, neg (also on integer positions), div, square, integer_pow,
  sqrt, rsqrt, pow by a constant multiple of 1/2, one_minus_square, clamp, is_finite,
  and, or, not, select_n by a boolean: products, sums, rational powers and selects;
* convert_element_type to a float: the identity, and a rounding that the program notes;
* stop_gradient, copy, name: the identity;
* broadcast_in_dim, reshape, transpose, squeeze, expand_dims, tile: a relabeling;
* slice, split and unstack into equal parts (contiguous or strided): a fixed index of a
  factor;
* concatenate, stack and pad of equal parts: a select by a factor's position;
* iota: the position of its label; comparisons with it make masks;
* dot_general, reduce_sum, reduce_max, reduce_min on floats: reductions;
* jit, custom_jvp_call, custom_vjp_call, checkpoint before differentiation: their body.

What does not: other dtypes than bf16, f16, f32, bool and int32 positions; integer
inputs and outputs; gathers, dynamic slices, sorts, scans of any kind, rev, cumulative
and arg reductions, convolutions; casts to integers; unequal slices and concatenations;
effects; shardings; and arithmetic that relies on rounding, such as `x -
float32(bfloat16(x))`.
"""

from mirage_jax.lift import contraction, elementwise, pieces, shapes
from mirage_jax.lift.program import LiftError as LiftError
from mirage_jax.lift.program import boundary_refusal as boundary_refusal
from mirage_jax.lift.program import lift as lift
from mirage_jax.lift.program import refusal as refusal

__all__ = ["LiftError", "boundary_refusal", "lift", "refusal"]
del contraction, elementwise, pieces, shapes
