"""From plans to readable Pallas source, and from source to functions.

`emit` writes a module; `load` makes its function. One module per backend: `triton` (GPU
kernels) and `xla` (whole arrays: pre-defined kernels, and the CPU).
"""

from pallas_codegen.loader import load as load
from pallas_codegen.module import BACKENDS as BACKENDS
from pallas_codegen.module import emit as emit
from pallas_codegen.source import EmitError as EmitError
from pallas_codegen.source import Source as Source
