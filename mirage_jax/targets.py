"""Targets by name, and which of them is present."""

import jax

from mirage_jax.errors import ConfigError
from ugraph.target import TARGETS as TARGETS
from ugraph.target import Target as Target
from ugraph.target import find


def resolve(target: str | Target) -> Target:
    """The target that a `Config` names; `auto` is the device jax would use.

    Raises:
      ConfigError: for a name that no target has; the message lists the known ones.
    """
    if isinstance(target, Target):
        return target
    if target == "auto":
        return find(jax.devices()[0].device_kind) or TARGETS["cpu"]
    if target not in TARGETS:
        known = ", ".join(sorted(TARGETS))
        raise ConfigError(
            f"Config(target={target!r}) is not a known target; known targets are "
            f"'auto', {known}. Describe another device with mirage_jax.Target(...)."
        )
    return TARGETS[target]


def is_present(target: Target) -> bool:
    """Whether the device that jax would use is this target's."""
    device = jax.devices()[0]
    if target.platform == "cpu":
        return device.platform == "cpu"
    return device.platform == "gpu" and find(device.device_kind) == target
