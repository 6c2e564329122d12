"""A Flax decoder block under `mirage_jax.jit`, written the way people write them.

RMSNorm, grouped-query attention with a causal mask and rotary embedding, a SwiGLU MLP
and residuals; bf16 weights, float32 softmax. Run it alone:

    python examples/decoder_block.py

It prints the largest difference from `jax.jit`, what was optimized and what was not.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import mirage_jax


class RMSNorm(nn.Module):
    """x over its root mean square, times a learned scale."""

    eps: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.bfloat16)
        wide = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean_square + self.eps)).astype(x.dtype) * scale


def rotary(x: jax.Array, theta: float = 10000.0) -> jax.Array:
    """Rotary position embedding of [batch, sequence, heads, width], halves rotated."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * frequency
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with a causal mask."""

    heads: int
    kv_heads: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def project(heads: int, name: str) -> jax.Array:
            dense = nn.DenseGeneral(
                (heads, self.width),
                use_bias=False,
                dtype=jnp.bfloat16,
                param_dtype=jnp.bfloat16,
                name=name,
            )
            return dense(x)

        batch, length, features = x.shape
        q = rotary(project(self.heads, "q"))
        k = rotary(project(self.kv_heads, "k"))
        v = project(self.kv_heads, "v")
        q = q.reshape(batch, length, self.kv_heads, -1, self.width)
        logits = jnp.einsum("bskgd,btkd->bkgst", q, k).astype(jnp.float32)
        causal = jnp.tril(jnp.ones((length, length), bool))
        logits = jnp.where(causal, logits * self.width**-0.5, -1e30)
        weights = jax.nn.softmax(logits, axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bkgst,btkd->bskgd", weights, v)
        mixed = mixed.reshape(batch, length, self.heads * self.width)
        out = nn.Dense(
            features,
            use_bias=False,
            dtype=jnp.bfloat16,
            param_dtype=jnp.bfloat16,
            name="out",
        )
        return out(mixed)


class SwiGLU(nn.Module):
    """Gated MLP."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def dense(features: int, name: str) -> nn.Dense:
            return nn.Dense(
                features,
                use_bias=False,
                dtype=jnp.bfloat16,
                param_dtype=jnp.bfloat16,
                name=name,
            )

        gate, up = dense(self.hidden, "gate")(x), dense(self.hidden, "up")(x)
        return dense(x.shape[-1], "down")(nn.silu(gate) * up)


class DecoderBlock(nn.Module):
    """One pre-norm decoder layer."""

    heads: int = 8
    kv_heads: int = 2
    width: int = 64
    hidden: int = 1408

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + Attention(self.heads, self.kv_heads, self.width)(RMSNorm()(x))
        return x + SwiGLU(self.hidden)(RMSNorm()(x))


def main() -> None:
    """Runs the block both ways and prints the report."""
    model = DecoderBlock()
    x = jax.random.normal(jax.random.key(0), (2, 64, 512)).astype(jnp.bfloat16)
    variables = model.init(jax.random.key(1), x)
    plain = jax.jit(model.apply)(variables, x)
    ours = mirage_jax.jit(model.apply)
    result = ours(variables, x)
    gap = np.abs(np.asarray(result, np.float32) - np.asarray(plain, np.float32))
    scale = np.abs(np.asarray(plain, np.float32)).max()
    print(
        f"largest difference from jax.jit: {gap.max():.3g} (values up to {scale:.3g})"
    )
    print(mirage_jax.explain(model.apply, variables, x))


if __name__ == "__main__":
    main()
