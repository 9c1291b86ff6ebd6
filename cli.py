"""The command line: `stepmask demo | check | warm-up | bench`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import check

USAGE = check.USAGE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = _Parser(prog="stepmask", description="Token masks for structured LLM output.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="serve structured requests of fourteen kinds together with a small real model"
    )
    demo.add_argument("--slots", type=_positive, default=8, help="requests that run at once (default 8)")
    demo.add_argument("--requests", type=_positive, default=14, help="requests in all (default 14, one of each kind)")
    demo.set_defaults(run=_demo)

    check.add_command(commands)

    warm = commands.add_parser("warm-up", help="compile everything that a step calls, once a machine")
    warm.set_defaults(run=_warm_up)

    bench = commands.add_parser("bench", help="run one of the benchmarks of a checkout")
    bench.add_argument("name", nargs="?", metavar="NAME", help="which one; without it they are listed")
    bench.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="the benchmark's own arguments")
    bench.set_defaults(run=_bench)

    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


# ------------------------------------------------------------------------------------------ demo, warm-up, bench
def _demo(options: argparse.Namespace) -> int:
    # One thread unless told otherwise, before torch is loaded: its threads would disturb each other (see the README).
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from .integrations import demo
    from .integrations.engine.weights import MissingPackage

    try:
        return demo.run(options.slots, options.requests)
    except MissingPackage as error:
        print(f"stepmask: {error}", file=sys.stderr)
        return USAGE


def _warm_up(options: argparse.Namespace) -> int:
    from .masks.warm_up import warm_up

    print("compiling kernels: up to a minute the first time on a machine", file=sys.stderr)
    seconds = warm_up(progress=sys.stderr.isatty())
    print(f"ready after {seconds:.1f} s")
    return 0


def _bench(options: argparse.Namespace) -> int:
    folder = Path(__file__).resolve().parent / "bench"
    # What runs as a program; the others are what the benchmarks share.
    names = sorted(path.stem for path in folder.glob("*.py") if "__main__" in path.read_text("utf-8"))
    if not names:
        print("stepmask: benchmarks are part of a checkout, and this is none", file=sys.stderr)
        return USAGE
    if options.name is None:
        print("\n".join(names))
        return 0
    if options.name not in names:
        print(f"stepmask: no benchmark {options.name!r}; there are: {', '.join(names)}", file=sys.stderr)
        return USAGE
    return subprocess.run([sys.executable, str(folder / f"{options.name}.py"), *options.rest], check=False).returncode
