"""The zoo: programs with names and shapes, as a JAX user writes them.

Tests, benchmarks and documentation share them. Nothing outside this package knows them.
Shapes follow the published evaluations of Mirage (OSDI'25) and Prism (arXiv
2604.15272).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, slots=True)
class Case:
    """A named program.

    Attributes:
      name: what flags and tables call it.
      function: takes and returns arrays.
      shapes: of its arguments.
    """

    name: str
    function: Callable[..., jax.Array]
    shapes: tuple[tuple[int, ...], ...]

    def avals(self, dtype: jax.typing.DTypeLike) -> list[jax.ShapeDtypeStruct]:
        """Its arguments as shapes and dtypes."""
        return [jax.ShapeDtypeStruct(shape, dtype) for shape in self.shapes]

    def arguments(self, dtype: jax.typing.DTypeLike, seed: int = 0) -> list[jax.Array]:
        """Random arguments: normal, weights scaled by the root of their fan-in."""
        generator = np.random.default_rng(seed)
        arrays = []
        for shape in self.shapes:
            fan_in = shape[-2] if len(shape) > 1 else 1
            scale = fan_in**-0.5 if fan_in >= 1024 else 1.0
            values = generator.standard_normal(shape, dtype=np.float32) * scale
            arrays.append(jnp.asarray(values, dtype))
        return arrays


def rms_norm(x: jax.Array, eps: float = 1e-6) -> jax.Array:
    """X over its root mean square along the last axis, statistics in float32."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype)


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Softmax attention over [heads, sequence, width], logits in float32."""
    logits = jnp.einsum("hsd,htd->hst", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(logits * q.shape[-1] ** -0.5, axis=-1)
    return jnp.einsum("hst,hte->hse", weights.astype(q.dtype), v)


def _rmsnorm(x: jax.Array, g: jax.Array, w: jax.Array) -> jax.Array:
    return (rms_norm(x) * g) @ w


def _gated_mlp(x: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
    return jax.nn.silu(x @ w1) * (x @ w2)


def _rmsnorm_mlp(
    x: jax.Array, g: jax.Array, up: jax.Array, gate: jax.Array
) -> jax.Array:
    normed = rms_norm(x) * g
    return jax.nn.silu(normed @ gate) * (normed @ up)


def _lora(x: jax.Array, w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    return x @ w + (x @ a) @ b


def _ntrans(h: jax.Array, x: jax.Array, alpha: jax.Array) -> jax.Array:
    return rms_norm(x + alpha * (rms_norm(h) - x))


def _layernorm(x: jax.Array, g: jax.Array, c: jax.Array, w: jax.Array) -> jax.Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (centered * scale * g + c) @ w


def _qknorm(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return attend(rms_norm(q), rms_norm(k), v)


def _causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    logits = jnp.einsum("hsd,htd->hst", q, k, preferred_element_type=jnp.float32)
    rows = jnp.arange(q.shape[1])[:, None]
    columns = jnp.arange(k.shape[1])[None, :]
    masked = jnp.where(columns <= rows, logits * q.shape[-1] ** -0.5, -jnp.inf)
    weights = jax.nn.softmax(masked, axis=-1)
    return jnp.einsum("hst,hte->hse", weights.astype(q.dtype), v)


def cases(batch: int = 16) -> dict[str, Case]:
    """Every case by name; `batch` is the number of rows, or of sequences × 2 heads."""
    heads = max(2, batch // 8 * 2)
    wide = 4096
    listed = (
        Case("rmsnorm", _rmsnorm, ((batch, wide), (wide,), (wide, 6144))),
        Case("gated_mlp", _gated_mlp, ((batch, wide), (wide, wide), (wide, wide))),
        Case("lora", _lora, ((batch, wide), (wide, wide), (wide, 16), (16, wide))),
        Case(
            "rmsnorm_mlp",
            _rmsnorm_mlp,
            ((batch, wide), (wide,), (wide, wide), (wide, wide)),
        ),
        Case("layernorm", _layernorm, ((batch, wide), (wide,), (wide,), (wide, wide))),
        Case("ntrans", _ntrans, ((batch, wide), (batch, wide), (wide,))),
        Case("gqa", attend, ((heads, 256, 64), (heads, 4096, 64), (heads, 4096, 64))),
        Case(
            "qknorm", _qknorm, ((heads, 256, 64), (heads, 4096, 64), (heads, 4096, 64))
        ),
        Case("prefill", attend, ((16, 1024, 128),) * 3),
        Case("causal", _causal, ((16, 512, 128),) * 3),
        Case("decode", attend, ((64, 1, 128), (64, 1024, 128), (64, 1024, 128))),
    )
    return {case.name: case for case in listed}
