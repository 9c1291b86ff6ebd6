"""Masks from the library of frames are those found without it, however its entries came to be."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from earley import Earley
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mask_sets import tokens_of
from random_rules import ALL_LIMITS, COUNTED, is_language, random_rules
from recursive_cases import Run, build, vocabulary_for
from wide_vocabulary import VOCABULARY

import stepmask
from stepmask.grammar.expression import Grammar
from stepmask.grammar.json_schema.front_end import json_schema
from stepmask.masks import library
from stepmask.masks.batch import Batch
from stepmask.masks.compiled import CompiledGrammar, compile
from stepmask.masks.library import Library, frame_keys, frames_known, library_of
from stepmask.masks.trie import tables_of

TEXTS = (
    '{"name%d": "a \\u00e9\\"',
    '{"name%d": "é", "size%d": -12.5e',
    '{"name%d": "", "any%d": {"x": [1, "b, c',
    '{ "name%d"  ',
)


def schema(number: int) -> Grammar:
    properties = {"name": {"type": "string"}, "size": {"type": "number"}, "any": {}}
    named = {f"{name}{number}": value for name, value in properties.items()}
    return json_schema({"type": "object", "properties": named, "required": [f"name{number}"]})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and nothing known yet."""
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "cache"))
    library._LIBRARIES.pop(tables_of(VOCABULARY), None)
    return tmp_path / "cache"


def forget() -> Library:
    """What a new process knows of the vocabulary."""
    library._LIBRARIES.pop(tables_of(VOCABULARY), None)
    return library_of(VOCABULARY)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "library").rglob("*.stepmask") if "class" not in path.name)


def masks(compiled: CompiledGrammar, number: int) -> tuple[list[set[int]], int]:
    """The masks along some texts, each after every byte, checked token by token now and then; contexts taken."""
    rng = random.Random(number)
    found = []
    batch = Batch(VOCABULARY, 1, None)
    for text in TEXTS:
        slot = batch.add(compiled)
        for byte in text.replace("%d", str(number)).encode():
            assert batch.accept_bytes(slot, bytes([byte]))
            found.append(tokens_of(batch.mask(slot)))
            if rng.random() < 0.05:
                assert found[-1] == {token for token in range(VOCABULARY.size) if batch.allows(slot, token)}
        batch.remove(slot)
    return found, batch.counters["library"]


def test_a_second_grammar_makes_entries_and_a_third_takes_them(folder: Path) -> None:
    first = compile(schema(1), VOCABULARY)
    assert first.library_keys and not first.library and first.stats["library_frames"] == 0
    assert not files(folder)
    assert compile(schema(1), VOCABULARY).library == ()  # the same grammar is no second one
    second = compile(schema(2), VOCABULARY)
    known = library_of(VOCABULARY)
    assert second.stats["library_frames"] == len(second.library) >= 3
    assert known.made == len(known.entries) == len(files(folder))
    third = compile(schema(3), VOCABULARY)
    assert known.made == len(known.entries) and len(third.library) == len(second.library)
    plain, none = masks(compile(schema(3), VOCABULARY, use_cache=False), 3)
    shared, taken = masks(third, 3)
    assert shared == plain and none == 0 < taken


def test_the_state_of_a_string_is_looked_up() -> None:
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
    work = {}
    for use_cache in (True, False):
        batch = Batch(VOCABULARY, 1, None)
        slot = batch.add(compile(schema(3), VOCABULARY, use_cache=use_cache))
        assert batch.accept_bytes(slot, b'{"name3": "a\\')
        batch.mask(slot)
        work[use_cache] = batch.counters["work"], batch.counters["library"]
    assert work[True][1] > 0 == work[False][1]
    assert work[True][0] < work[False][0]


def test_entries_outlive_the_process(folder: Path) -> None:
    """Read from disk, as a new process does, and by one."""
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
    plain = masks(compile(schema(3), VOCABULARY, use_cache=False), 3)[0]
    known = forget()
    compiled = compile(schema(3), VOCABULARY)
    assert known.read == len(files(folder)) and known.made == 0
    found, taken = masks(compiled, 3)
    assert found == plain and taken > 0
    code = (
        "from test_library import *; c = compile(schema(4), VOCABULARY); "
        "k = library_of(VOCABULARY); print(k.read, k.made, masks(c, 4)[1] > 0)"
    )
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ran.stdout.split() == [str(known.read), "0", "True"], ran.stderr


def test_a_saved_grammar_finds_its_entries(tmp_path: Path) -> None:
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
    compiled = compile(schema(3), VOCABULARY)
    compiled.save(tmp_path / "saved")
    forget()
    loaded = CompiledGrammar.load(tmp_path / "saved", VOCABULARY)
    assert loaded.library_keys == compiled.library_keys and len(loaded.library) == len(compiled.library)
    assert masks(loaded, 3)[0] == masks(compiled, 3)[0]


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other", "swap"])
def test_damaged_and_foreign_files_are_noticed_and_made_anew(folder: Path, harm: str) -> None:
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
    plain = masks(compile(schema(3), VOCABULARY, use_cache=False), 3)[0]
    paths = files(folder)
    good = [path.read_bytes() for path in paths]
    for path, data in zip(paths, good, strict=True):
        if harm == "cut":
            path.write_bytes(data[:-64])
        elif harm == "flip":
            path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "other":
            path.write_bytes(b"something else" * 100)
        else:
            path.write_bytes(good[paths.index(path) - 1])  # another frame's
    known = forget()
    assert compile(schema(3), VOCABULARY).library == ()
    compiled = compile(schema(4), VOCABULARY)
    assert known.read == 0 and known.made == len(paths) and compiled.library
    assert [path.read_bytes() for path in paths] == good
    assert masks(compile(schema(3), VOCABULARY), 3)[0] == plain


def test_another_vocabulary_has_entries_of_its_own(folder: Path) -> None:
    other = stepmask.Vocabulary.from_bytes(
        [bytes([b]) for b in range(256)] + [b'"a', b'",', b""], eos=[258], special=[258]
    )
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
        assert compile(schema(number), other).vocabulary is other
    assert len({path.parent for path in files(folder)}) == 2
    assert compile(schema(3), other).library


def test_a_folder_that_cannot_be_written_to_costs_the_files_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path / "file"))
    for number in (1, 2):
        compile(schema(number), VOCABULARY)
    compiled = compile(schema(3), VOCABULARY)
    assert compiled.library and not folder.exists()
    assert masks(compiled, 3)[0] == masks(compile(schema(3), VOCABULARY, use_cache=False), 3)[0]


def test_without_the_cache_nothing_is_looked_for(folder: Path) -> None:
    for number in (1, 2, 3):
        compiled = compile(schema(number), VOCABULARY, use_cache=False)
        assert compiled.library == () and compiled.library_keys is None
    assert not folder.exists() and not library_of(VOCABULARY).seen


def test_prepare_makes_json_frames_for_all_that_come(folder: Path) -> None:
    prepared = library.prepare_library(VOCABULARY)
    assert prepared == len(files(folder)) >= 3
    known = forget()
    compiled = compile(schema(1), VOCABULARY)
    assert compiled.library and known.made == 0
    masks_of, taken = masks(compiled, 1)
    assert taken > 0 and masks_of == masks(compile(schema(1), VOCABULARY, use_cache=False), 1)[0]


def test_classes_are_kept(folder: Path) -> None:
    tables = tables_of(VOCABULARY)
    tables.class_members.clear()
    grammar = stepmask.regex(r"(?:\p{L}+ )*\p{L}{1,30}[.]")
    compile(grammar, VOCABULARY)
    made = dict(tables.class_members)
    tables.class_members.clear()
    (path,) = (folder / "library").rglob("class-*.stepmask")
    compile(grammar, VOCABULARY)
    read = dict(tables.class_members)
    tables.class_members.clear()
    assert made.keys() == read.keys() and all(np.array_equal(made[key].bits, read[key].bits) for key in made)
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(8))
    compile(grammar, VOCABULARY)
    assert path.read_bytes() == data


def test_equal_frames_have_equal_keys_in_other_grammars() -> None:
    one, two = (dict(frame_keys(compile(schema(n), VOCABULARY, use_cache=False).automaton)) for n in (1, 2))
    assert set(one.values()) == set(two.values())
    bounded = json_schema({"type": "object", "properties": {"a": {"type": "string", "maxLength": 7}}})
    other = dict(frame_keys(compile(bounded, VOCABULARY, use_cache=False).automaton))
    assert set(other.values()) & set(one.values()) and set(other.values()) - set(one.values())


# A counter whose bound a token gets to, which the library does not know of.
@example(5844, COUNTED)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ALL_LIMITS))
def test_random_grammars_with_every_frame_in_the_library(seed: int, limits: Any) -> None:
    rng = random.Random(seed)
    found = random_rules(rng, members=True)
    assume(is_language(found))
    oracle = Earley(found, "S")
    vocabulary = vocabulary_for([found], rng, every_byte=True)
    plain = build(found, vocabulary, limits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library, "MIN_BYTES", 1)
        keys = tuple(frame_keys(plain.automaton))
        library_of(vocabulary).seen.update({key: "of another grammar" for _, key in keys})
        patched.setattr(library, "_read", lambda *_: None)
        patched.setattr(library, "_write", lambda *_: None)
        known = replace(plain, library=frames_known(plain, keys, make=True), library_keys=keys)
    assert len(known.library) == len(keys)
    run = Run(Batch(vocabulary, 2, None), known, oracle)
    other = run.batch.add(plain)
    for _ in range(10):
        legal = run.check()
        assert np.array_equal(run.batch.mask(run.slot), run.batch.mask(other))
        texts = [token for token in sorted(legal) if vocabulary.is_text[token]]
        if not texts or run.place.finished:
            break
        token = rng.choice(texts)
        assert run.accept(token)
        run.batch.advance(np.array([other], np.int32), np.array([token], np.int32))
