"""The command line: `stepmask demo | check | warm-up | bench`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .grammar.expression import Grammar
    from .masks.matcher import Matcher

#: Exit codes of `check`.
COMPLETE, ALIVE, DEAD, BAD_GRAMMAR = 0, 1, 2, 3
#: Wrong command line (EX_USAGE of sysexits.h): argparse's own 2 would read as "dead".
USAGE = 64

_END = 256


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = _Parser(prog="stepmask", description="Token masks for structured LLM output.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="serve structured requests of eight kinds together with a small real model")
    demo.add_argument("--slots", type=_positive, default=8, help="requests that run at once (default 8)")
    demo.add_argument("--requests", type=_positive, default=8, help="requests in all (default 8, one of each kind)")
    demo.set_defaults(run=_demo)

    check = commands.add_parser(
        "check",
        help="say whether a text is complete, alive or dead under a grammar, and where and why",
        description="Exit code: 0 complete, 1 alive (more must follow), 2 dead, 3 the grammar is wrong.",
    )
    check.add_argument("grammar", metavar="GRAMMAR", help="the grammar's text; for choice a JSON array, or one a line")
    check.add_argument("text", metavar="TEXT", help="the text, or - to read it from standard input")
    check.add_argument("--kind", choices=sorted(_KINDS), default="regex", help="what the grammar is (default regex)")
    check.add_argument("--file", action="store_true", help="GRAMMAR is the name of a file that holds it")
    check.set_defaults(run=_check)

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


# ----------------------------------------------------------------------------------------------------------- check
def _regex(text: str) -> Grammar:
    from .grammar.regex import regex

    return regex(text)


def _choice(text: str) -> Grammar:
    from .grammar.choice import choice
    from .grammar.errors import GrammarSyntaxError

    if not text.lstrip().startswith("["):
        return choice(text.splitlines())
    try:
        values = json.loads(text)
    except ValueError as error:
        raise GrammarSyntaxError(f"the choices are no JSON array: {error}") from None
    if not all(isinstance(value, str) for value in values):
        raise GrammarSyntaxError("the choices must be strings")
    return choice(values)


_KINDS: dict[str, Callable[[str], Grammar]] = {"choice": _choice, "regex": _regex}


def _check(options: argparse.Namespace) -> int:
    from .grammar.errors import GrammarError
    from .masks.compiled import compile as compile_grammar
    from .masks.vocabulary import Vocabulary

    try:
        grammar_text = Path(options.grammar).read_text("utf-8") if options.file else options.grammar
        text = sys.stdin.buffer.read() if options.text == "-" else os.fsencode(options.text)
    except (OSError, UnicodeDecodeError) as error:
        print(f"stepmask: {error}", file=sys.stderr)
        return USAGE
    if options.file:
        grammar_text = grammar_text.removesuffix("\n")
    vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b""], eos=[_END], special=[_END])
    try:
        compiled = compile_grammar(_KINDS[options.kind](grammar_text), vocabulary)
    except GrammarError as error:
        print(f"bad grammar: {error}")
        return BAD_GRAMMAR
    code, lines = judge(compiled.matcher(), text)
    print("\n".join(lines))
    return code


def judge(matcher: Matcher, text: bytes) -> tuple[int, list[str]]:
    """Feed `text` to a matcher over single bytes (end token 256): the exit code and what to print."""
    for offset, byte in enumerate(text):
        if not matcher.accept(byte):
            return DEAD, [f"dead at {_place(text, offset)}: found {_found(text, offset)}", _expected(matcher)]
    if matcher.is_complete:
        return COMPLETE, ["complete", *([_expected(matcher)] if _allowed(matcher) else [])]
    return ALIVE, [f"alive: the text may not end yet, at {_place(text, len(text))}", _expected(matcher)]


def _place(text: bytes, offset: int) -> str:
    before = text[:offset].decode("utf-8", "replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"byte {offset} (line {line}, column {column})"


def _found(text: bytes, offset: int) -> str:
    byte = text[offset]
    if byte < 0x80:
        return _show(byte)
    start = offset
    while start > 0 and 0x80 <= text[start] < 0xC0:
        start -= 1
    for end in range(offset + 1, min(start + 4, len(text)) + 1):
        try:
            return f"byte {byte:02X} of {text[start:end].decode()!r}"
        except UnicodeDecodeError:
            continue
    return f"byte {byte:02X}"


def _allowed(matcher: Matcher) -> list[int]:
    return [byte for byte in range(256) if matcher.allows(byte)]


def _expected(matcher: Matcher) -> str:
    options = describe(_allowed(matcher))
    if matcher.is_complete:
        options.append("the end of the text")
    return "expected: " + (", ".join(options) if options else "nothing")


def _show(byte: int) -> str:
    return repr(chr(byte)) if byte < 0x80 else f"byte {byte:02X}"


def describe(allowed: Sequence[int]) -> list[str]:
    """A sorted set of bytes in words: runs as ranges, nearly everything by what is missing."""
    ascii_bytes = [byte for byte in allowed if byte < 0x80]
    lead = [byte for byte in allowed if byte >= 0x80]
    missing = sorted(set(range(0x80)) - set(ascii_bytes))
    parts: list[str] = []
    if not missing:
        parts.append("any ASCII character")
    elif len(missing) <= 8:
        parts.append("any ASCII character but " + " ".join(map(_show, missing)))
    else:
        parts += [_range(*run) for run in _runs(ascii_bytes)]
    if lead == list(range(0xC2, 0xF5)):
        parts.append("any non-ASCII character")
    else:
        parts += [_range(*run) for run in _runs(lead)]
    return parts


def _range(first: int, last: int) -> str:
    if first == last:
        return _show(first)
    return f"{_show(first)}-{_show(last)}" if first < 0x80 else f"bytes {first:02X}-{last:02X}"


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive runs of sorted numbers as (first, last); none mixes digits, capitals, small letters and others."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1 and _class(value) == _class(value - 1):
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _class(byte: int) -> int:
    for number, (first, last) in enumerate((b"09", b"AZ", b"az")):
        if first <= byte <= last:
            return number
    return -1
