"""However a compiled grammar came to be, its masks are the same; damaged cache files are noticed and replaced."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mask_sets import brute_mask, byte_vocabulary, tokens_of
from oracles import ReferenceMatcher

from stepmask.grammar.choice import choice
from stepmask.grammar.errors import GrammarError
from stepmask.grammar.expression import Grammar
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks import cache
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.errors import VocabularyError
from stepmask.masks.pool import WORDS_OF_A_MASK

WORDS = [
    b"ab",
    b"abc",
    b"cab",
    b" a",
    b" the",
    "é".encode(),
    b"a\xc3",
    b"\xa9b",
    b'",',
    b'"a',
    b"12",
    b"1,",
    b"bb",
    b"a",
]
VOCABULARY = byte_vocabulary(*WORDS)
FINITE = [regex("(?:ab|cab|abc)[12]{0,3}"), regex(r"\d{1,3},[ab]{2,9}"), choice(["abc", "abd", "the end", "é", "12,1"])]
INFINITE = [
    regex('"[^"]*"(?:,"[^"]*")*'),
    regex(r"(?:\w+ )*\w{1,40}"),
    regex("(?:ab|cab|é){3,200}"),
    regex(".*[ab].{3}"),
]
GRAMMARS = FINITE + INFINITE
NAMES = [repr(g) for g in GRAMMARS]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, into which everything is written."""
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)
    return tmp_path / "cache" / "grammars"


def walk(compiled: Sequence[CompiledGrammar], seed: int, steps: int = 12) -> None:
    """Along a random walk, all masks are equal, and those that brute force finds."""
    rng = random.Random(seed)
    matchers = [c.matcher() for c in compiled]
    reference = ReferenceMatcher(compiled[0].automaton)
    for _ in range(steps):
        expected = brute_mask(reference, VOCABULARY)
        for matcher in matchers:
            assert tokens_of(matcher.mask()) == expected
            assert matcher.is_complete == reference.is_complete
        choices = sorted(expected - set(VOCABULARY.eos or ()))
        # Words rather than bytes where there are any, as a tokenizer would.
        choices = [t for t in choices if t > 255 and rng.random() < 0.7] or choices
        if not choices:
            break
        token = rng.choice(choices)
        assert all(m.accept(token) for m in matchers)
        assert reference.accept(VOCABULARY.token(token))


def files_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("grammar", GRAMMARS, ids=NAMES)
def test_every_way_to_compile(grammar: Grammar, folder: Path, tmp_path: Path) -> None:
    fresh = compile(grammar, VOCABULARY, use_cache=False)
    assert not folder.exists()
    written = compile(grammar, VOCABULARY)
    read = compile(grammar, VOCABULARY)
    assert (fresh.from_cache, written.from_cache, read.from_cache) == (False, False, True)
    assert len(files_in(folder)) == 1
    assert fresh.fingerprint == written.fingerprint == read.fingerprint
    fresh.save(tmp_path / "saved")
    loaded = CompiledGrammar.load(tmp_path / "saved", VOCABULARY)
    read.save(str(tmp_path / "again"))
    again = CompiledGrammar.load(str(tmp_path / "again"), VOCABULARY)
    lazy = compile(grammar, VOCABULARY, Limits(max_dfa_states=1))
    on_demand = compile(grammar, VOCABULARY, Limits(max_eager_contexts=0))
    assert len({c.fingerprint for c in (fresh, lazy, on_demand)}) == 3
    assert on_demand.ready is None
    assert (fresh.ready is not None) == (grammar in FINITE)
    for other in (written, read, loaded, again):
        assert np.array_equal(other.automaton.buffer, fresh.automaton.buffer)
        assert (other.ready is None) == (fresh.ready is None)
        if fresh.ready and other.ready:
            mine, theirs = fresh.ready.arrays(), other.ready.arrays()
            assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    for seed in range(3):
        walk([fresh, written, read, loaded, again, lazy, on_demand], seed)


def test_eager_masks_are_used_and_bounded() -> None:
    grammar = FINITE[0]
    assert compile(grammar, VOCABULARY, Limits(max_eager_contexts=1), use_cache=False).ready is None
    compiled = compile(grammar, VOCABULARY, use_cache=False)
    assert compiled.stats["complete"] and compiled.stats["contexts"] > 1
    matcher = compiled.matcher()
    before = matcher._batch.counters
    matcher.mask()
    matcher.accept(97)
    matcher.mask()
    after = matcher._batch.counters
    # Nothing is walked: all that is counted is accepting, one for the token and one for its byte, and taking two masks.
    taken = 2 * ((VOCABULARY.size + 63) // 64 // WORDS_OF_A_MASK + 1)
    assert after["work"] - before["work"] == 2 + taken and after["misses"] == before["misses"]


def test_lazy_and_plain_files_differ(folder: Path) -> None:
    for limits in (Limits(), Limits(max_dfa_states=1), Limits(max_repeat=7)):
        assert not compile(INFINITE[3], VOCABULARY, limits).from_cache
        assert compile(INFINITE[3], VOCABULARY, limits).from_cache
    assert not compile(INFINITE[3], byte_vocabulary(*WORDS, b"one more")).from_cache
    assert len(files_in(folder)) == 4


# ---------------------------------------------------------------------- damage


def check_rebuilt(grammar: Grammar, folder: Path, seed: int = 0) -> None:
    """The file that is there is not believed; compiling works all the same and writes a good one."""
    rebuilt = compile(grammar, VOCABULARY)
    assert not rebuilt.from_cache
    again = compile(grammar, VOCABULARY)
    assert again.from_cache
    walk([rebuilt, again], seed, steps=4)
    assert len(files_in(folder)) == 1


@pytest.mark.parametrize("grammar", [FINITE[1], INFINITE[2], INFINITE[3]], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_altered_bytes_are_noticed(grammar: Grammar, seed: int, folder: Path) -> None:
    compile(grammar, VOCABULARY)
    (name,) = files_in(folder)
    path = folder / name
    good = path.read_bytes()
    rng = random.Random(seed)
    # The header field by field, and anywhere.
    offsets = [rng.randrange(a, b) for a, b in ((0, 8), (8, 16), (16, 24), (24, 32), (32, 64))]
    for offset in [*offsets, *(rng.randrange(64, len(good)) for _ in range(20)), len(good) - 1]:
        damaged = bytearray(good)
        damaged[offset] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(GrammarError):
            CompiledGrammar.load(path, VOCABULARY)
    check_rebuilt(grammar, folder, seed)


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 65, 1000, -64, -1])
def test_files_cut_short_are_noticed(kept: int, folder: Path) -> None:
    compile(FINITE[0], VOCABULARY)
    path = folder / files_in(folder)[0]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(GrammarError):
        CompiledGrammar.load(path, VOCABULARY)
    check_rebuilt(FINITE[0], folder)


def test_longer_files_are_noticed(folder: Path) -> None:
    compile(FINITE[0], VOCABULARY)
    path = folder / files_in(folder)[0]
    path.write_bytes(path.read_bytes() + b"\0" * 64)
    check_rebuilt(FINITE[0], folder)


def test_other_versions_are_noticed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile(FINITE[0], VOCABULARY)
    path = folder / files_in(folder)[0]
    with monkeypatch.context() as patch:
        patch.setattr(cache, "VERSION", cache.VERSION + 1)
        compiled.save(path)
    with pytest.raises(GrammarError, match="version"):
        CompiledGrammar.load(path, VOCABULARY)
    check_rebuilt(FINITE[0], folder)
    path.write_bytes(b"something else entirely" * 10)
    with pytest.raises(GrammarError, match="version"):
        CompiledGrammar.load(path, VOCABULARY)
    check_rebuilt(FINITE[0], folder)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    compile(FINITE[0], VOCABULARY).save(tmp_path / "saved")
    with pytest.raises(VocabularyError, match="another vocabulary"):
        CompiledGrammar.load(tmp_path / "saved", byte_vocabulary(b"ab"))
    with pytest.raises(VocabularyError, match="another vocabulary"):
        CompiledGrammar.load(tmp_path / "saved", VOCABULARY.with_eos([0]))
    with pytest.raises(FileNotFoundError):
        CompiledGrammar.load(tmp_path / "nothing", VOCABULARY)


def test_file_of_another_grammar(folder: Path) -> None:
    """A whole file under a wrong name, as a copied folder may have, is another grammar's."""
    compile(FINITE[0], VOCABULARY)
    path = folder / files_in(folder)[0]
    compile(FINITE[1], VOCABULARY)
    (other,) = (folder / name for name in files_in(folder) if name != path.name)
    path.write_bytes(other.read_bytes())
    walk([compile(FINITE[0], VOCABULARY, use_cache=False), compile(FINITE[0], VOCABULARY)], 0)


# ---------------------------------------------------------------------- folders and disks


def test_no_temporary_file_is_left(folder: Path) -> None:
    for grammar in GRAMMARS:
        compile(grammar, VOCABULARY)
    assert len(files_in(folder)) == len(GRAMMARS)
    assert all(name.endswith(".stepmask") for name in files_in(folder))


def test_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "file"))
    compiled = compile(FINITE[0], VOCABULARY)
    assert not compile(FINITE[0], VOCABULARY).from_cache
    walk([compiled], 0)


def test_read_only_folder(folder: Path) -> None:
    compile(FINITE[0], VOCABULARY)
    folder.chmod(0o555)
    try:
        assert compile(FINITE[0], VOCABULARY).from_cache
        walk([compile(FINITE[1], VOCABULARY)], 0)
        if not os.access(folder, os.W_OK):  # an administrator may write anywhere
            assert len(files_in(folder)) == 1
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("call", ["tempfile.mkstemp", "os.replace"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_failed_writes_cost_only_the_entry(
    call: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        compiled = compile(FINITE[0], VOCABULARY)
        walk([compiled], 1, steps=3)
        with pytest.raises(OSError, match=os.strerror(number)):  # `save` was asked for, and says so
            compiled.save(tmp_path / "saved")
    assert files_in(folder) == []
    assert not (tmp_path / "saved").exists()
    check_rebuilt(FINITE[0], folder)


def test_an_older_file_in_use_stays_whole(folder: Path) -> None:
    """A file is replaced, never written to: what was loaded from it goes on working."""
    compile(INFINITE[0], VOCABULARY)
    loaded = compile(INFINITE[0], VOCABULARY)
    assert loaded.from_cache
    before = loaded.automaton.buffer.copy()
    compile(INFINITE[1], VOCABULARY, use_cache=False).save(folder / files_in(folder)[0])
    assert np.array_equal(loaded.automaton.buffer, before)
    walk([loaded], 2)


# ---------------------------------------------------------------------- the same arrays everywhere

_PROGRAM = r"""
import hashlib
from stepmask.grammar.choice import choice
from stepmask.grammar.compile import compile_grammar
from stepmask.grammar.limits import Limits
from stepmask.grammar.regex import regex
from stepmask.masks.cache import grammar_digest
patterns = [
    "(?:ab|cab|abc){1,300}", r"\w+@\w+\.[a-z]{2,5}", "(?!.*aa)[ab]{1,30}c",
    ".*[ab].{12}", "(?i:straße|ﬁ)x*", r"\p{L}{1,200}",
]
grammars = [*map(regex, patterns), choice(["b", "a", "ab", "é", "the end", "abc" * 9])]
for grammar in grammars:
    for limits in (Limits(), Limits(max_dfa_states=1)):
        digest = hashlib.sha256(compile_grammar(grammar, limits).buffer).hexdigest()
        print(digest, grammar_digest(grammar, limits))
"""


def test_equal_arrays_under_any_hash_seed() -> None:
    outputs = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) == 14
    assert outputs[0] == outputs[1]
