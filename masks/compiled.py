"""`compile`: a grammar meets a vocabulary; the result is immutable and shared by any number of sequences."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..grammar.automaton import FINITE, TOKENS, UTF8, Automaton
from ..grammar.compile import compile_grammar
from ..grammar.errors import GrammarError
from ..grammar.expression import Grammar
from ..grammar.limits import DEFAULT_LIMITS, Limits, checked_limits
from ..grammar.text import matches_text_only
from . import cache
from .errors import UnknownTokenError, VocabularyError
from .library import KEY_BYTES, Entry, classes_known, frame_keys, frames_known
from .ready import Ready, build, start_tokens
from .spelling import spelling
from .trie import tables_of
from .vocabulary import checked_vocabulary
from .warm_up import warm_up

if TYPE_CHECKING:
    from .matcher import Matcher
    from .vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class CompiledGrammar:
    """A grammar compiled for one vocabulary.

    `automaton` is the byte automaton; `token_ids` int32 the token id of each special token that it names;
    `boundary` uint8[states] where tokens may end, or None for everywhere; `ready` the masks built ahead, or
    None; `fingerprint` a hex digest of grammar, limits, vocabulary and version; `build_seconds` what compiling took;
    `library_keys` the frames that other grammars may have too, by digest, `library` those whose masks are known
    (`masks.library`); None and empty where the disk cache is not used. `start_tokens` int32: the first mask of a large
    DFA without `ready`, or None.
    """

    automaton: Automaton
    vocabulary: Vocabulary
    token_ids: npt.NDArray[np.int32]
    boundary: npt.NDArray[np.uint8] | None
    ready: Ready | None
    fingerprint: str
    build_seconds: float
    from_cache: bool = False
    library: tuple[tuple[int, Entry], ...] = ()
    library_keys: tuple[tuple[int, bytes], ...] | None = None
    start_tokens: npt.NDArray[np.int32] | None = None

    def matcher(
        self, *, eos: list[int] | None = None, min_tokens: int = 0, text_start: bool = False, max_rollback: int = 256
    ) -> Matcher:
        """A new sequence. Parameters as of `Batch.add`; `max_rollback` is how many tokens can be taken back."""
        from .matcher import Matcher

        return Matcher(self, eos=eos, min_tokens=min_tokens, text_start=text_start, max_rollback=max_rollback)

    @property
    def stats(self) -> dict[str, Any]:
        """Sizes: of the automaton, of the masks built ahead, in bytes, and the seconds it took."""
        ready = self.ready
        return {
            "states": self.automaton.n_states,
            "frames": len(self.automaton["frame_start"]),
            "classes": self.automaton.n_classes,
            "lazy_positions": max(0, len(self.automaton["lazy_edge_start"]) - 1),
            "contexts": ready.contexts if ready else 0,
            "distinct_masks": ready.distinct if ready else 0,
            "complete": ready is not None,
            "bytes": self.automaton.memory.nbytes + (ready.nbytes if ready else 0),
            "library_frames": len(self.library),
            "build_seconds": self.build_seconds,
            "from_cache": self.from_cache,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write to a file, at once or not at all."""
        cache.write(path, self._arrays(), self._metadata())

    def pack(self) -> npt.NDArray[np.uint8]:
        """The bytes that `save` writes, uint8[total]: a message from one process to another."""
        return cache.pack(self._arrays(), self._metadata())

    def _metadata(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "build_seconds": self.build_seconds}

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"automaton": self.automaton.buffer}
        if self.boundary is not None:
            arrays["boundary"] = self.boundary
        if self.ready is not None:
            arrays |= self.ready.arrays()
        if self.start_tokens is not None:
            arrays["start_tokens"] = self.start_tokens
        if self.library_keys is not None:
            arrays["library_frames"] = np.array([frame for frame, _ in self.library_keys], np.int32)
            arrays["library_keys"] = np.array([list(key) for _, key in self.library_keys], np.uint8)
        return arrays

    @classmethod
    def load(cls, path: str | PathLike[str] | int, vocabulary: Vocabulary) -> CompiledGrammar:
        """Map what `save` wrote. Raises `GrammarError` if damaged, `VocabularyError` for another vocabulary's.

        `path` may be a file descriptor, which is closed. Nothing is copied.
        """
        vocabulary = checked_vocabulary(vocabulary)
        arrays, metadata = cache.read(path)
        if "automaton" not in arrays or "fingerprint" not in metadata:
            raise GrammarError(f"{path} holds no compiled grammar")
        automaton = Automaton.adopt(arrays["automaton"], check=False)
        if metadata["fingerprint"].partition("-")[0] != vocabulary.fingerprint[:32]:
            raise VocabularyError(f"{path} was compiled for another vocabulary")
        compiled = cls(
            automaton,
            vocabulary,
            _token_ids(automaton, vocabulary),
            arrays.get("boundary"),
            Ready.from_arrays(arrays),
            metadata["fingerprint"],
            metadata["build_seconds"],
            True,
            start_tokens=arrays.get("start_tokens"),
        )
        if "library_keys" not in arrays:
            return compiled
        keys = arrays["library_keys"].tobytes()
        numbers = arrays["library_frames"].tolist()
        named = tuple((frame, keys[i * KEY_BYTES : (i + 1) * KEY_BYTES]) for i, frame in enumerate(numbers))
        return _with_library(compiled, named, make=False)


def _token_ids(automaton: Automaton, vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
    """The id of each special token that the grammar names. Raises `UnknownTokenError` for one that is not there."""
    if not automaton.flags & TOKENS:
        return np.zeros(0, np.int32)
    try:
        return np.array([vocabulary.id_of(name) for name in automaton.metadata["tokens"]], np.int32)
    except VocabularyError as error:
        raise UnknownTokenError(str(error)) from None


def _with_library(compiled: CompiledGrammar, keys: tuple[tuple[int, bytes], ...], *, make: bool) -> CompiledGrammar:
    """The same with what the library has of its frames and of its code point classes."""
    classes_known(compiled.vocabulary, compiled.automaton)
    # Where tokens may end in some places only, masks are found in another way.
    library = frames_known(compiled, keys, make=make) if keys and compiled.boundary is None else ()
    return replace(compiled, library=library, library_keys=keys)


def _check_special(name: str | int, vocabulary: Vocabulary) -> None:
    """Raise `VocabularyError` if a token that the grammar excludes as a special one is text in this vocabulary."""
    if isinstance(name, str) and name not in vocabulary.names:
        spelled = name.encode()
        if any(vocabulary.token(i) == spelled for i in range(vocabulary.size) if vocabulary.is_text[i]):
            raise VocabularyError(f"the grammar excludes the special token {name!r}, which is text in this vocabulary")
    elif vocabulary.is_text[vocabulary.id_of(name)]:
        raise VocabularyError(f"the grammar excludes token {name!r} as a special one; in this vocabulary it is text")


def compile(
    grammar: Grammar, vocabulary: Vocabulary, limits: Limits = DEFAULT_LIMITS, *, use_cache: bool = True
) -> CompiledGrammar:
    """Compile `grammar` for `vocabulary`.

    Results are kept on disk (`masks.cache`) unless `use_cache` is false. Raises the subclasses of
    `GrammarError`, and `UnknownTokenError`, which is one too, for a special token that the vocabulary does not have.
    """
    limits = checked_limits(limits)
    if not isinstance(grammar, Grammar):
        raise TypeError(
            f"a grammar made by stepmask.regex, stepmask.choice, ... is needed, not {type(grammar).__name__}"
        )
    compiled = _compile(grammar, vocabulary, limits, use_cache)
    for name in grammar.options.get("special_tokens", ()):
        _check_special(name, vocabulary)
    return compiled


def _compile(grammar: Grammar, vocabulary: Vocabulary, limits: Limits, use_cache: bool) -> CompiledGrammar:
    warm_up()
    tables = tables_of(vocabulary)
    begin = time.perf_counter()
    fingerprint = f"{vocabulary.fingerprint[:32]}-{cache.grammar_digest(grammar, limits)}"
    if use_cache:
        path = cache.path_of(fingerprint)
        found = cache.load_quietly(path, lambda: CompiledGrammar.load(path, vocabulary))
        if found is not None and found.fingerprint == fingerprint:
            return found
    automaton = compile_grammar(grammar, limits, tables.absent_bytes)
    if not automaton.flags & UTF8 and matches_text_only(grammar):
        automaton.add_flags(UTF8)
    token_ids = _token_ids(automaton, vocabulary)
    boundary = spelling(automaton, tables, vocabulary, token_ids)
    compiled = CompiledGrammar(automaton, vocabulary, token_ids, boundary, None, fingerprint, 0.0)
    ready = None
    if automaton.flags & FINITE and limits.max_eager_contexts:
        ready = build(compiled, limits.max_eager_contexts)
    start = start_tokens(compiled) if ready is None else None
    compiled = replace(compiled, ready=ready, start_tokens=start, build_seconds=time.perf_counter() - begin)
    if use_cache:
        compiled = _with_library(compiled, tuple(frame_keys(automaton)), make=True)
    if use_cache and compiled.build_seconds >= cache.MIN_SECONDS:
        cache.write_quietly(path, compiled._arrays(), compiled._metadata())
    return compiled
