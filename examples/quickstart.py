"""The main job: an RMSNorm and a linear layer under `mirage_jax.jit`.

    python examples/quickstart.py

First the function is optimized for the device that is here and called; then the same
function is optimized for an H200, which need not be here: the search, the proof, the
emitted kernel and its numbers are real, its time is a prediction.
"""

import tempfile
import time

import jax
import jax.numpy as jnp

import mirage_jax


def norm_linear(x: jax.Array, scale: jax.Array, weight: jax.Array) -> jax.Array:
    """An RMSNorm followed by a linear layer, as one writes it."""
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    normed = (wide * jax.lax.rsqrt(mean_square + 1e-6)).astype(x.dtype)
    return (normed * scale) @ weight


def best_ms(function, *arguments: jax.Array) -> float:  # noqa: ANN001
    """The fastest of ten calls, in milliseconds."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def main() -> None:
    """Runs both parts and prints what happened."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (16, 4096), jnp.bfloat16)
    scale = 1 + 0.1 * jax.random.normal(keys[1], (4096,), jnp.bfloat16)
    weight = jax.random.normal(keys[2], (4096, 6144), jnp.bfloat16) / 64

    print("== on the device that is here\n")
    plain, ours = jax.jit(norm_linear), mirage_jax.jit(norm_linear)
    gap = jnp.abs(plain(x, scale, weight) - ours(x, scale, weight)).max()
    print(mirage_jax.explain(ours, x, scale, weight))
    print(f"\nlargest difference from jax.jit: {gap:.2g}")
    before, after = (best_ms(f, x, scale, weight) for f in (plain, ours))
    print(f"measured: jax.jit {before:.2f} ms, mirage_jax.jit {after:.2f} ms")

    print("\n== for an H200\n")
    config = mirage_jax.Config(target="h200")
    report = mirage_jax.explain(norm_linear, x, scale, weight, config=config)
    print(report)
    folder = tempfile.mkdtemp(prefix="mirage_jax_")
    for path in report.save_kernels(folder):
        print(f"\nemitted kernel saved to {path}; run it to check it:\n")
        text = path.read_text(encoding="utf-8")
        print(text[text.index("\n\n\ndef ") : text.index("\n\n\ndef run")].strip())
    print(f"\nthe whole report: {report.save(f'{folder}/report.html')}")


if __name__ == "__main__":
    main()
