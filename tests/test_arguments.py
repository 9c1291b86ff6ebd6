"""Arguments of the public functions that are no such thing: refused by name, never changed in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_schema_oracles import language
from mask_sets import byte_vocabulary

import stepmask
from stepmask.masks import cache
from stepmask.masks.arguments import converted
from stepmask.masks.candidates import Candidates
from stepmask.masks.sampling import SamplingParameters
from stepmask.masks.tables import EndSets, MaskTables

VOCABULARY = byte_vocabulary(b"ab")
COMPILED = stepmask.compile(stepmask.regex("[ab]{1,4}"), VOCABULARY, use_cache=False)
TAG = {"begin": "<a>", "content": stepmask.json_object(), "end": "</a>"}
LOGITS = np.zeros((2, VOCABULARY.width), np.float32)
POOL = MaskTables.empty(VOCABULARY.words)
ANY = [-1, -1]


def batch() -> stepmask.Batch:
    found = stepmask.Batch(VOCABULARY, 2, None)
    found.add(COMPILED)
    return found


def sample(*arguments: Any, **options: Any) -> Any:
    return stepmask.sample(*arguments, **{"parameters": SamplingParameters.build(2), **options})


def array(*values: Any, dtype: Any = None) -> Any:
    return np.array(values, dtype)


FAR = 2**32 + ord("a")
REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("limits of a regex", lambda: stepmask.regex("a", limits=5), TypeError, "limits must be"),
    ("limits of gbnf", lambda: stepmask.gbnf('root ::= "a"', limits={}), TypeError, "limits must be"),
    ("limits of ebnf", lambda: stepmask.ebnf('root ::= "a"', limits=5), TypeError, "limits must be"),
    ("limits of lark", lambda: stepmask.lark('start: "a"', limits=5), TypeError, "limits must be"),
    ("limits of json_schema", lambda: stepmask.json_schema({}, limits=5), TypeError, "limits must be"),
    ("limits of structural_tag", lambda: stepmask.structural_tag([TAG], limits=5), TypeError, "limits must be"),
    ("limits of compile", lambda: stepmask.compile(stepmask.regex("a"), VOCABULARY, 5), TypeError, "limits must be"),
    ("a limit", lambda: stepmask.Limits(max_repeat=-1), ValueError, "Limits.max_repeat"),
    ("a limit that is no number", lambda: stepmask.Limits(max_depth=None), ValueError, "Limits.max_depth"),
    ("vocabulary of compile", lambda: stepmask.compile(stepmask.regex("a"), None), TypeError, "Vocabulary is needed"),
    ("vocabulary of a batch", lambda: stepmask.Batch(None), TypeError, "Vocabulary is needed"),
    ("vocabulary of the library", lambda: stepmask.prepare_library("x"), TypeError, "Vocabulary is needed"),
    ("vocabulary of a service", lambda: stepmask.CompileService(5), TypeError, "Vocabulary is needed"),
    ("bounds of a service", lambda: stepmask.CompileService(VOCABULARY, bounds=5), TypeError, "bounds must be"),
    ("workers", lambda: stepmask.CompileService(VOCABULARY, workers=1.5), ValueError, "at least one worker"),
    ("choice", lambda: stepmask.choice(None), TypeError, "choice takes a list"),
    ("tools", lambda: stepmask.tools(None), TypeError, "tools is a list"),
    ("keys of tools", lambda: stepmask.tools([{"name": "f"}], arguments_key="name"), ValueError, "are two names"),
    ("registry", lambda: stepmask.json_schema({}, registry={}), TypeError, "registry must be"),
    ("registry of tools", lambda: stepmask.tools([{"name": "f"}], registry=5), TypeError, "registry must be"),
    ("separators", lambda: stepmask.json_schema({}, separators=(",",)), ValueError, "separators are two texts"),
    ("a separator", lambda: stepmask.json_schema({}, separators=(1, 2)), ValueError, "a separator is"),
    ("indent", lambda: stepmask.json_schema({}, indent=10**9), ValueError, "indent is at most"),
    ("max_digits", lambda: stepmask.json_value(max_digits=True), ValueError, "max_digits is"),
    ("bytes", lambda: stepmask.json_schema(b"\xff"), stepmask.GrammarSyntaxError, "byte 0 is no UTF-8"),
    ("a name", lambda: stepmask.json_schema({"properties": {1: {}}}), stepmask.GrammarSyntaxError, "#/properties"),
    ("a key", lambda: stepmask.json_schema({"const": {1: 2}}), stepmask.GrammarSyntaxError, "1 is no name.*#/const"),
    ("tags", lambda: stepmask.structural_tag(5), TypeError, "tags is a list"),
    ("triggers", lambda: stepmask.structural_tag([TAG], triggers=5), TypeError, "triggers is a list"),
    ("excludes", lambda: stepmask.structural_tag([TAG], excludes="ab"), TypeError, "write excludes="),
    ("tokens of lark", lambda: stepmask.lark('start: "a"', tokens=5), TypeError, "tokens are a mapping"),
    ("a token of lark", lambda: stepmask.lark("start: A\n%declare A", tokens={"A": 1.5}), TypeError, "tokens: A is"),
    ("import_paths", lambda: stepmask.lark('start: "a"', import_paths="x"), TypeError, "import_paths are a list"),
    ("a folder", lambda: stepmask.lark('start: "a"', import_paths=[None]), TypeError, "import_paths: a folder"),
    ("tokens", lambda: stepmask.Vocabulary.from_bytes(None, eos=None), ValueError, "tokens are a list"),
    ("eos", lambda: stepmask.Vocabulary.from_bytes([b"a"], eos=5), ValueError, "end tokens are a list"),
    ("width", lambda: stepmask.Vocabulary.from_bytes([b"a"], eos=None, width="9"), ValueError, "width is"),
    ("large width", lambda: stepmask.Vocabulary.from_bytes([b"a"], eos=None, width=2**40), ValueError, "width 1099"),
    ("names", lambda: stepmask.Vocabulary.from_bytes([b"a"], eos=None, names={5: 0}), ValueError, "names are"),
    ("tiktoken", lambda: stepmask.Vocabulary.from_tiktoken(None), ValueError, "tiktoken.Encoding is needed"),
    ("a token of a vocabulary", lambda: VOCABULARY.token(None), ValueError, "no token id"),
    ("a token that is no whole one", lambda: VOCABULARY.id_of(1.5), ValueError, "no token id"),
    ("slots", lambda: stepmask.Batch(VOCABULARY, 1.5), TypeError, "slots must be an integer"),
    ("budget", lambda: stepmask.Batch(VOCABULARY, 1, -1), ValueError, "budget_us must be at least 0"),
    ("no number", lambda: stepmask.Batch(VOCABULARY, 1, float("nan")), ValueError, "budget_us must be at least 0"),
    ("pool_masks", lambda: stepmask.Batch(VOCABULARY, 1, pool_masks=4.5), TypeError, "pool_masks must be"),
    ("max_rollback", lambda: COMPILED.matcher(max_rollback=None), TypeError, "max_rollback must be"),
    ("min_tokens", lambda: COMPILED.matcher(min_tokens=-1), ValueError, "min_tokens must be at least 0"),
    ("half a token", lambda: COMPILED.matcher(min_tokens=1.5), TypeError, "min_tokens must be an integer"),
    ("an end in digits", lambda: COMPILED.matcher(eos=["1"]), stepmask.VocabularyError, "end token '1'"),
    ("an end of a half", lambda: COMPILED.matcher(eos=[1.5]), stepmask.VocabularyError, "end token 1.5"),
    ("no list of ends", lambda: COMPILED.matcher(eos=5), stepmask.VocabularyError, "end tokens are a list"),
    ("a grammar", lambda: batch().add(stepmask.regex("a")), TypeError, "compiled by stepmask.compile"),
    ("accept", lambda: COMPILED.matcher().accept(97.5), TypeError, "token id must be an integer"),
    ("allows", lambda: COMPILED.matcher().allows(97.5), TypeError, "token id must be an integer"),
    ("try_accept", lambda: COMPILED.matcher().try_accept([97, 97.5]), TypeError, "token id must be an integer"),
    ("draft_masks", lambda: COMPILED.matcher().draft_masks([97.5]), TypeError, "token id must be an integer"),
    ("text", lambda: COMPILED.matcher().accept_bytes("a"), TypeError, "text must be bytes"),
    ("no text", lambda: COMPILED.matcher().accept_bytes(None), TypeError, "text must be bytes"),
    ("rollback", lambda: COMPILED.matcher().rollback(0.0), TypeError, "take back must be an integer"),
    ("a slot", lambda: batch().mask(0.0), TypeError, "slot must be an integer"),
    ("a row", lambda: batch().plan(array(0.5)), ValueError, "slots must be integers of int32"),
    ("a far row", lambda: batch().plan(array(2**32)), ValueError, "slots must be integers of int32"),
    ("rows in rows", lambda: batch().plan(np.zeros((1, 1), np.int32)), ValueError, "slots: expected 1 dim"),
    ("a far token", lambda: batch().advance(array(0), array(FAR)), ValueError, "tokens must be integers of int32"),
    ("a half token", lambda: batch().advance(array(0), array(97.5)), ValueError, "tokens must be integers of int32"),
    ("fuel", lambda: batch().prefetch_start(0.5), TypeError, "fuel must be an integer"),
    ("candidates", lambda: batch().settle(None), TypeError, "candidates come from sampling"),
    ("logits", lambda: sample(None, ANY, POOL), TypeError, "logits must be a NumPy array"),
    ("one row", lambda: sample(LOGITS[0], ANY, POOL), ValueError, "2 dimensions"),
    ("a pool", lambda: sample(LOGITS, ANY, None), TypeError, "pool must be MaskTables"),
    ("far masks", lambda: sample(LOGITS, array(-1, 2**32), POOL), ValueError, "mask_ids must be integers"),
    ("masks in digits", lambda: stepmask.apply_masks(LOGITS, POOL, ["1", "1"]), ValueError, "mask_ids must be"),
    ("end_sets", lambda: sample(LOGITS, ANY, POOL, end_sets=5), TypeError, "end_sets must be"),
    ("out", lambda: sample(LOGITS, ANY, POOL, out=5), TypeError, "out must be"),
    ("parameters", lambda: sample(LOGITS, ANY, POOL, parameters=None), TypeError, "parameters must be"),
    ("half rows", lambda: sample(LOGITS, ANY, POOL, rows=[0.5, 1]), ValueError, "rows must be integers"),
    ("end tokens", lambda: EndSets.same(2, [1.5]), ValueError, "end tokens must be integers"),
    ("seed", lambda: SamplingParameters.build(2, seed=-1), ValueError, "seed must be integers of uint64"),
    ("top_k", lambda: SamplingParameters.build(2, top_k=1.5), ValueError, "top_k must be integers of int32"),
    ("temperatures", lambda: SamplingParameters.build(2, temperature=[1, 2, 3]), ValueError, "temperature: a number"),
    ("rows of parameters", lambda: SamplingParameters.build(-1), ValueError, "rows must be at least 0"),
    ("rows of candidates", lambda: Candidates.empty(-1), ValueError, "rows must be at least 0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_by_name(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


WHOLE = st.one_of(st.integers(-(2**70), 2**70), st.integers(-3, 300), st.sampled_from([2**31, 2**32 + 97, 2**63]))
NO_NUMBERS = st.sampled_from([None, "1", "a", 97.5, float("nan"), float("inf"), b"a", [1], object()])


@given(st.lists(WHOLE, max_size=4), st.sampled_from([np.int32, np.int64, np.uint64, np.uint8, np.uint32]))
def test_integers_stay_as_they_are(values: list[int], dtype: type[np.generic]) -> None:
    limits = np.iinfo(dtype)
    if all(limits.min <= value <= limits.max for value in values):
        assert converted(values, dtype, "values").tolist() == values
    else:
        with pytest.raises(ValueError, match="values must be integers"):
            converted(values, dtype, "values")
    for other in (np.int64, np.uint64, np.int32, object):
        if other is object or all(np.iinfo(other).min <= value <= np.iinfo(other).max for value in values):
            given_array = np.array(values, other)
            try:
                assert converted(given_array, dtype, "values").tolist() == values
            except ValueError:
                assert not all(limits.min <= value <= limits.max for value in values)


@given(st.lists(WHOLE, max_size=3), NO_NUMBERS)
def test_what_is_no_integer_is_refused(values: list[int], wrong: Any) -> None:
    with pytest.raises(ValueError, match="values must be integers"):
        converted([*values, wrong], np.int32, "values")
    matcher = COMPILED.matcher()
    with pytest.raises(TypeError, match="token id must be an integer"):
        matcher.try_accept([*values, wrong])
    with pytest.raises(TypeError, match="token id must be an integer"):
        matcher.accept(wrong)
    assert matcher.accept_bytes(b"abab"), "nothing was accepted"


@given(WHOLE)
def test_token_ids_of_any_size(token: int) -> None:
    for value in [token, *(kind(token) for kind in (np.int64, np.uint64) if 0 <= token < 2**63)]:
        matcher = COMPILED.matcher()
        legal = token in (97, 98, 256)
        assert matcher.allows(value) == matcher.accept(value) == legal
        matcher.reset()
        assert matcher.try_accept([97, value]) == 1 + legal


def test_files_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    cache.write(path, {"known": np.zeros(3, np.uint8)}, {"library": 1})
    with pytest.raises(stepmask.GrammarError, match="holds no compiled grammar"):
        stepmask.CompiledGrammar.load(path, VOCABULARY)
    COMPILED.save(path)
    with pytest.raises(TypeError, match="Vocabulary is needed"):
        stepmask.CompiledGrammar.load(path, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [{"const": "\ud800"}, {"title": "\ud800", "const": "a"}])
def test_lone_surrogates_in_schemas(schema: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON text may have them, as escapes."""
    monkeypatch.setenv("STEPMASK_CACHE", str(tmp_path))
    for given_schema in (schema, json.dumps(schema)):
        compiled = stepmask.compile(stepmask.json_schema(given_schema), VOCABULARY)
        matcher = compiled.matcher()
        assert matcher.accept_bytes(json.dumps(schema["const"]).encode()) and matcher.is_complete
    assert language({"properties": {"\udfff": {"const": 1}}}).has('{"\\udfff": 1}')
