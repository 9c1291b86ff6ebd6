"""stepmask, xgrammar and llguidance behind one interface.

`Library.compile(case)` gives a `Compiled`, and so does `compile_schema` of the libraries in `SCHEMA_LIBRARIES`; its
`matcher()` gives a `Matcher` with `mask()` and `accept(token)`. The library's `batches` make a `Batch` of compiled
grammars, one a row, stepped by one call to `step(tokens)`; there are several where the library has several ways to step
a batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from cases import Case
from numpy.typing import NDArray


class Refused(Exception):
    """The library does not take this grammar, or gave up on it in mid-text."""


class Matcher(Protocol):
    """State of one sequence."""

    def mask(self) -> Any:
        """Compute the token bitmask of the next token."""

    def accept(self, token: int) -> bool:
        """Advance by a token."""

    def check(self) -> None:
        """Raise `Refused` where the library has put the matcher into an error state."""

    def may_end(self) -> bool:
        """Whether the text is one of the grammar's."""


class Compiled(Protocol):
    """A compiled grammar."""

    def matcher(self) -> Matcher: ...


class Batch(Protocol):
    """One sequence a row, all stepped together. `late` counts steps that put a mask off."""

    late: int

    def warm(self, tokens: NDArray[np.int32]) -> None:
        """A step that leaves no mask for later, however long it takes."""

    def step(self, tokens: NDArray[np.int32]) -> None:
        """Masks of all rows, then one token for each."""

    def restart(self, rows: Sequence[int]) -> None:
        """Put these rows back to the start of their grammar."""


class Library(Protocol):
    """One library with one tokenizer."""

    name: str
    batches: Mapping[str, Callable[[Sequence[Any]], Batch]]

    def compile(self, case: Case) -> Compiled:
        """Compile anew, from nothing kept."""


def _hf_tokenizer(path: Path) -> Any:
    """A tokenizer.json as transformers loads it, end token included where tokenizer_config.json is beside it."""
    import transformers

    if (path.parent / "tokenizer_config.json").exists():
        return transformers.AutoTokenizer.from_pretrained(str(path.parent))
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))


class Stepmask:
    """This library. Each compile starts from an empty disk cache and an empty mask store."""

    name = "stepmask"

    def __init__(self, tokenizer: Path) -> None:
        import stepmask

        stepmask.warm_up()
        self.vocabulary = stepmask.Vocabulary.from_file(tokenizer)
        self.batches = {self.name: self._batch}

    def compile(self, case: Case) -> Compiled:
        import stepmask

        return _StepmaskCompiled(stepmask.compile(self._grammar(case), self.vocabulary, use_cache=False))

    def compile_schema(self, schema: Any, *, any_order: bool = False) -> Compiled:
        """A JSON schema; `any_order` of properties, or the declared one."""
        import stepmask

        grammar = stepmask.json_schema(schema, property_order="any" if any_order else "declared")
        return _StepmaskCompiled(stepmask.compile(grammar, self.vocabulary, use_cache=False))

    def _grammar(self, case: Case) -> Any:
        import stepmask

        if case.ebnf:
            return stepmask.ebnf(case.ebnf)
        return stepmask.choice(case.options) if case.options else stepmask.regex(case.pattern)

    def _batch(self, compiled: Sequence[_StepmaskCompiled]) -> Batch:
        return _StepmaskBatch(self.vocabulary, [one.inner for one in compiled])


class StepmaskLark(Stepmask):
    """The same from the Lark texts."""

    name = "stepmask lark"

    def _grammar(self, case: Case) -> Any:
        import stepmask

        return stepmask.lark(case.lark) if case.lark else super()._grammar(case)


class _StepmaskCompiled:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def matcher(self) -> Matcher:
        return _StepmaskMatcher(self.inner.matcher())


class _StepmaskMatcher:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.mask = inner.mask
        self.accept = inner.accept

    def check(self) -> None:
        pass

    def may_end(self) -> bool:
        return bool(self._inner.is_complete)

    def is_forced(self) -> bool:
        """Whether only one text can follow."""
        return bool(self._inner.forced_bytes())


class _StepmaskBatch:
    def __init__(self, vocabulary: Any, compiled: Sequence[Any]) -> None:
        import stepmask

        self._compiled = compiled
        self._batch = stepmask.Batch(vocabulary, slots=len(compiled))
        self._slots = np.array([self._batch.add(one) for one in compiled], np.int32)
        self.late = 0

    def warm(self, tokens: NDArray[np.int32]) -> None:
        while not self._batch.plan(self._slots).all_ready:
            pass
        self._batch.advance(self._slots, tokens)

    def step(self, tokens: NDArray[np.int32]) -> None:
        plan = self._batch.plan(self._slots)
        if not plan.all_ready:
            self.late += 1
        self._batch.advance(self._slots, tokens)

    def restart(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._batch.remove(int(self._slots[row]))
            self._slots[row] = self._batch.add(self._compiled[row])


class Xgrammar:
    """xgrammar as it comes, its compile cache emptied before each compile."""

    name = "xgrammar"
    #: Refuse properties and items that a schema does not name: its default.
    strict = True

    def __init__(self, tokenizer: Path) -> None:
        import xgrammar

        hf = _hf_tokenizer(tokenizer)
        self._info = xgrammar.TokenizerInfo.from_huggingface(hf, vocab_size=_ids(hf))
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=1)
        self.batches = {
            self.name: lambda compiled: _XgrammarBatch(compiled, self._info.vocab_size, loop=False),
            f"{self.name}, loop": lambda compiled: _XgrammarBatch(compiled, self._info.vocab_size, loop=True),
        }

    def compile(self, case: Case) -> Compiled:
        self._compiler.clear_cache()
        try:
            if case.ebnf:
                inner = self._compiler.compile_grammar(case.ebnf)
            elif case.options:
                quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in case.options)
                inner = self._compiler.compile_grammar("root ::= " + " | ".join(f'"{text}"' for text in quoted))
            else:
                inner = self._compiler.compile_regex(case.pattern)
        except RuntimeError as error:
            raise Refused(str(error).strip().splitlines()[-1].rpartition(": ")[2]) from None
        return _XgrammarCompiled(inner, self._info.vocab_size)

    def compile_schema(self, schema: Any, *, any_order: bool = False) -> Compiled:
        """A JSON schema; `any_order` of properties leaves unchecked which are present."""
        self._compiler.clear_cache()
        text = json.dumps(schema)
        try:
            inner = self._compiler.compile_json_schema(text, strict_mode=self.strict, any_order=any_order)
        except RuntimeError as error:
            raise Refused(str(error).strip().splitlines()[-1].rpartition(": ")[2]) from None
        return _XgrammarCompiled(inner, self._info.vocab_size)


class XgrammarOpen(Xgrammar):
    """The same, where objects and arrays are as open as JSON Schema says."""

    name = "xgrammar, not strict"
    strict = False


class _XgrammarCompiled:
    def __init__(self, inner: Any, ids: int) -> None:
        self.inner = inner
        self._ids = ids

    def matcher(self) -> Matcher:
        return _XgrammarMatcher(self.inner, self._ids)


class _XgrammarMatcher:
    def __init__(self, compiled: Any, ids: int) -> None:
        import xgrammar

        self._inner = xgrammar.GrammarMatcher(compiled)
        self._bits = xgrammar.allocate_token_bitmask(1, ids)
        self.accept = self._inner.accept_token

    def mask(self) -> Any:
        self._inner.fill_next_token_bitmask(self._bits)
        return self._bits

    def check(self) -> None:
        pass

    def may_end(self) -> bool:
        return bool(self._inner.is_completed())


class _PeerBatch:
    """The peers put nothing off."""

    late = 0
    step: Callable[..., None]

    def warm(self, tokens: NDArray[np.int32]) -> None:
        self.step(tokens)


class _XgrammarBatch(_PeerBatch):
    def __init__(self, compiled: Sequence[_XgrammarCompiled], ids: int, loop: bool) -> None:
        import xgrammar

        self._matchers = [xgrammar.GrammarMatcher(one.inner) for one in compiled]
        self._bits = xgrammar.allocate_token_bitmask(len(compiled), ids)
        self._batch = None if loop else xgrammar.BatchGrammarMatcher(max_threads=1)

    def step(self, tokens: NDArray[np.int32]) -> None:
        if self._batch is not None:
            self._batch.batch_fill_next_token_bitmask(self._matchers, self._bits)
        else:
            for row, matcher in enumerate(self._matchers):
                matcher.fill_next_token_bitmask(self._bits, row)
        for matcher, token in zip(self._matchers, tokens.tolist(), strict=True):
            matcher.accept_token(token)

    def restart(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._matchers[row].reset()


class Llguidance:
    """llguidance as it comes; a batch step is its executor with one thread."""

    name = "llguidance"

    def __init__(self, tokenizer: Path) -> None:
        import llguidance.hf

        hf = _hf_tokenizer(tokenizer)
        self._tokenizer = llguidance.hf.from_tokenizer(hf, n_vocab=_ids(hf))
        self.batches = {self.name: lambda compiled: _LlguidanceBatch(compiled, self._tokenizer.vocab_size)}

    def compile(self, case: Case) -> Compiled:
        import llguidance

        if case.lark:
            grammar = llguidance.LLMatcher.grammar_from_lark(case.lark)
        else:
            pattern = "|".join(re.escape(option) for option in case.options) if case.options else case.pattern
            grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
        return self._checked(grammar)

    def compile_schema(self, schema: Any, *, any_order: bool = False) -> Compiled:
        """A JSON schema; it knows the declared order of properties only."""
        import llguidance

        if any_order:
            raise Refused("any order of properties")
        try:
            return self._checked(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        except ValueError as error:
            raise Refused(str(error).splitlines()[0]) from None

    def _checked(self, grammar: str) -> Compiled:
        compiled = _LlguidanceCompiled(self._tokenizer, grammar)
        compiled.matcher().check()
        return compiled


class _LlguidanceCompiled:
    """The parsed grammar; matchers are copies of the first, as its documentation advises."""

    def __init__(self, tokenizer: Any, grammar: str) -> None:
        import llguidance

        self.inner = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        self._ids = tokenizer.vocab_size

    def matcher(self) -> Matcher:
        return _LlguidanceMatcher(self.inner.deep_copy(), self._ids)


class _LlguidanceMatcher:
    def __init__(self, inner: Any, ids: int) -> None:
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self._inner = inner
        self._bits = allocate_token_bitmask(1, ids)
        self._fill = fill_next_token_bitmask
        self.accept = inner.consume_token

    def mask(self) -> Any:
        self._fill(self._inner, self._bits)
        return self._bits

    def check(self) -> None:
        if self._inner.is_error():
            raise Refused(self._inner.get_error().splitlines()[0])

    def may_end(self) -> bool:
        return bool(self._inner.is_accepting())


class _LlguidanceBatch(_PeerBatch):
    def __init__(self, compiled: Sequence[_LlguidanceCompiled], ids: int) -> None:
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par

        self._matchers = [one.inner.deep_copy() for one in compiled]
        self._rows = [(matcher, row) for row, matcher in enumerate(self._matchers)]
        self._bits = allocate_token_bitmask(len(compiled), ids)
        self._executor = llguidance.LLExecutor(num_threads=1)
        self._fill = fill_next_token_bitmask_par

    def step(self, tokens: NDArray[np.int32]) -> None:
        self._fill(self._executor, self._rows, self._bits)
        for matcher, token in zip(self._matchers, tokens.tolist(), strict=True):
            matcher.consume_token(token)

    def restart(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._matchers[row].reset()


def _ids(hf_tokenizer: Any) -> int:
    """One more than the largest token id (`len()` is less where there are holes)."""
    return 1 + max(hf_tokenizer.get_vocab().values())


LIBRARIES: dict[str, type[Any]] = {one.name: one for one in (Stepmask, Xgrammar, Llguidance)}
#: For grammars that have a Lark text as well.
GRAMMAR_LIBRARIES: dict[str, type[Any]] = {one.name: one for one in (Stepmask, StepmaskLark, Xgrammar, Llguidance)}
#: For JSON schemas.
SCHEMA_LIBRARIES: dict[str, type[Any]] = {one.name: one for one in (Stepmask, Llguidance, Xgrammar, XgrammarOpen)}
