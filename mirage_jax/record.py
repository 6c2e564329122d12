"""What is known of a region so far: facts, notes, and how long each stage took.

A stage that takes more than a moment says so, where `Config.progress` wants it.
"""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mirage_jax.config import Config
from mirage_jax.region import Region
from mirage_jax.report import RegionReport

PATIENCE_S = 2.0


@dataclass
class Record:
    """Notes on one region, local to one run of the pipeline.

    Attributes:
      region: the region.
      progress: whether to say which stage runs when it takes long.
      facts: fields of the report to be.
      stage_s: seconds spent in each stage.
      notes: anything else worth a line.
    """

    region: Region
    progress: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    stage_s: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Times a stage, and says that it runs when it takes long."""
        start = time.perf_counter()
        line = f"mirage_jax: {self.region.where}: {name} ...\n"
        timer = threading.Timer(PATIENCE_S, sys.stderr.write, [line])
        timer.daemon = True
        if self.progress:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            seconds = time.perf_counter() - start
            self.stage_s[name] = self.stage_s.get(name, 0.0) + seconds

    def report(self, **facts: Any) -> RegionReport:
        """The region's report."""
        return RegionReport(
            index=self.region.index,
            path=self.region.path,
            source=self.region.source,
            key=self.region.key,
            jaxpr=str(self.region.jaxpr),
            stage_s=self.stage_s,
            notes=tuple(self.notes),
            **{**self.facts, **facts},
        )


def wants_progress(config: Config) -> bool:
    """Whether progress is shown: as the config says, or on a terminal."""
    return config.progress == "on" or (
        config.progress == "auto" and sys.stderr.isatty()
    )
