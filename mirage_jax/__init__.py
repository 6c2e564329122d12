"""Mirage for JAX: `jax.jit` that superoptimizes the tensor algebra of a program."""

import importlib.metadata

from mirage_jax import config as config
from mirage_jax import errors as errors
from mirage_jax import targets as targets
from mirage_jax.api import clear_caches as clear_caches
from mirage_jax.api import explain as explain
from mirage_jax.api import jit as jit
from mirage_jax.api import optimize as optimize
from mirage_jax.config import Config as Config
from mirage_jax.errors import MirageError as MirageError
from mirage_jax.errors import MirageWarning as MirageWarning
from mirage_jax.report import Report as Report
from ugraph.target import Target as Target

try:
    __version__ = importlib.metadata.version("mirage-jax")
except importlib.metadata.PackageNotFoundError:  # run from a checkout
    __version__ = "0+checkout"
