"""What the benchmarks share: percentiles, the machine, cache eviction, tables, JSON and plots."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Where reports go by default.
OUT = Path(__file__).resolve().parent / "out"


def summary(nanoseconds: Sequence[int] | NDArray[np.int64]) -> dict[str, float]:
    """Count, mean, p50, p90, p99, p99.9 and max of a series of times, in microseconds."""
    if not len(nanoseconds):
        return {"count": 0}
    times = np.asarray(nanoseconds, np.float64) / 1000
    p50, p90, p99, p999 = np.percentile(times, [50, 90, 99, 99.9])
    return {
        "count": len(times), "mean": float(times.mean()), "p50": float(p50), "p90": float(p90), "p99": float(p99),
        "p99.9": float(p999), "max": float(times.max()),
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """Processor, its caches, cores and Python."""
    info: dict[str, Any] = {
        "python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count(), "processor": "",
    }  # fmt: skip
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        info["processor"] = names[0] if names else platform.machine()
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
        if kind != "Instruction":
            info[f"L{level}"] = (index / "size").read_text().strip()
    return info


def versions(*packages: str) -> dict[str, str]:
    """Installed versions; packages that are not installed are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Evictor:
    """Streams through an array, as the weights of a forward pass do, so that what a step touched leaves the caches."""

    def __init__(self, megabytes: int) -> None:
        self._array = np.zeros(megabytes * 2**20 // 8, np.float64)

    def __call__(self) -> None:
        self._array += 1.0


def number(value: float | None) -> str:
    """A figure with three significant digits, `-` where there is none."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as text in aligned columns; the first column is left-aligned."""
    widths = [max(len(str(row[i])) for row in [headings, *rows]) for i in range(len(headings))]
    lines = []
    for row in [headings, ["-" * width for width in widths], *rows]:
        cells = [str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = str(row[0]).ljust(widths[0])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def write_json(folder: Path, name: str, data: Any) -> Path:
    """Write FOLDER/NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def bar_plot(folder: Path, name: str, title: str, panels: dict[str, dict[str, dict[str, float]]], unit: str) -> Path:
    """Write FOLDER/NAME.png: one panel of grouped bars each, `panels[panel][series][group]`, on a log axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(panels), 1, figsize=(13, 4.2 * len(panels)), squeeze=False)
    for axis, (panel, series) in zip(axes[:, 0], panels.items(), strict=True):
        groups = list(dict.fromkeys(group for values in series.values() for group in values))
        width = 0.8 / max(1, len(series))
        for k, (label, values) in enumerate(series.items()):
            at = [i + (k - (len(series) - 1) / 2) * width for i, group in enumerate(groups) if group in values]
            axis.bar(at, [values[group] for group in groups if group in values], width, label=label)
        axis.set_xticks(range(len(groups)), groups, rotation=30, ha="right", fontsize=8)
        axis.set_yscale("log")
        axis.set_ylabel(unit)
        axis.set_title(panel, fontsize=10)
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
