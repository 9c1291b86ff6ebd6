"""Rows of recursive grammars on the device are where the host's matcher is, and say so where they cannot be."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from device_problems import DEVICE, tensor
from mask_sets import byte_vocabulary, tokens_of
from random_rules import ALL_LIMITS, is_language, random_rules
from recursive_cases import build, vocabulary_for

import stepmask
from stepmask.grammar.automaton import CALLS, RECURSIVE
from stepmask.masks.batch import Batch
from stepmask.masks.device.grammars import ACCEPTED, ESCAPED, DeviceGrammars
from stepmask.masks.device.mirror import PoolMirror
from stepmask.masks.device.pushdowns import prepare
from stepmask.masks.device.sampler import DeviceSampler
from stepmask.masks.vocabulary import Vocabulary

PIECES = [
    '{"',
    '":',
    '", "',
    '":"',
    "}}",
    "]]",
    "]}",
    '"}]',
    "[[",
    "[{",
    ", ",
    "  ",
    "\n  ",
    "12",
    "0.",
    "e+",
    "true",
    "null",
]
PIECES += [
    '"a',
    'a"',
    '\\"',
    "\\u00",
    "éa",
    "日",
    "ab",
    "((",
    "))",
    ")(",
    '":{"',
    "x)",
    '"},{"',
    "]],[",
    '""',
    "[]",
    "{}",
]
TEXT = byte_vocabulary(*(piece.encode() for piece in PIECES))
SIZE = TEXT.size + 2
END = TEXT.size - 1
#: Two end tokens, and a special token that is none.
VOCABULARY = Vocabulary.from_bytes(
    [*(TEXT.token(i) for i in range(END)), b"", b"", b""],
    eos=[END, END + 1],
    special=[END, END + 1, END + 2],
    names={"<end>": END, "<stop>": END + 1, "<tool>": END + 2},
    width=SIZE + 20,
)
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= [ \t\n]*
"""
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "ab": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["ab"],
        }
    },
    "$ref": "#/$defs/node",
}
GRAMMARS = {
    "json": stepmask.json_value(),
    "json text": stepmask.gbnf(JSON),
    "unbounded": stepmask.json_schema(True, max_whitespace=None, max_digits=None),
    "compact": stepmask.json_schema(True, whitespace="compact"),
    "tree": stepmask.json_schema(TREE),
    "object": stepmask.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "maxProperties": 3}),
    "brackets": stepmask.gbnf('root ::= ("(" root ")" root)?'),
    "counted": stepmask.gbnf('root ::= "(" root{0,3} ")" | "[" [a-z]{2,5} "]" | "x"'),
    "tail": stepmask.gbnf('root ::= "a" root | "b" rest\nrest ::= "x" root? ")"'),
    "letters": stepmask.regex("[^x]{1,9}x"),
    "counters": stepmask.regex("(?:[^a,]{1,5},){1,40}"),
    "named ends": stepmask.lark('start: "(" start ")" <stop>? | ("a" | <end> "b")+ <end>?'),
    "tool": stepmask.lark('start: "(" start ")" | <tool> start <tool> | "a"+'),
}
BACKENDS = ["torch", "triton"]


def masks_of(device: DeviceGrammars) -> np.ndarray:
    """bool[rows, width]: the rows' whole masks as the sampler sees them, by masking zeros."""
    rows = len(device.state)
    width = device.vocabulary.width
    logits = torch.zeros(rows, width, device=DEVICE)
    DeviceSampler(width, rows, DEVICE, backend="torch").apply_masks(
        logits, device.mirror.tables, device.mask_ids, end_allowed=device.end_allowed, ends=device.ends
    )
    return (logits == 0).cpu().numpy()


class Rows:
    """Rows of some grammars on the device, and on the host beside them."""

    def __init__(
        self, compiled: list, backend: str, *, vocabulary: Vocabulary = VOCABULARY, copies: int = 1, **limits: int
    ) -> None:
        self.vocabulary = vocabulary
        self.batch = Batch(vocabulary, len(compiled) * copies, None, max_rollback=0)
        mirror = PoolMirror(self.batch, DEVICE, resident_masks=4000)
        rows = len(compiled) * copies
        self.device = DeviceGrammars(
            vocabulary, mirror, rows, grammars=16, image_bytes=8 << 20, backend=backend, **limits
        )
        calls = CALLS | RECURSIVE
        made = [prepare(grammar) if grammar.automaton.flags & calls else None for grammar in compiled]
        # Half of them prepared by another, as a host would have it.
        made[::2] = [None] * len(made[::2])
        self.numbers = list(map(self.device.add, compiled, made))
        self.compiled = compiled
        self.slots = np.zeros(rows, np.int32)

    def start(self, row: int, number: int | None, grammar, minimum: int = 0, ends: tuple[int, ...] = (END,)) -> None:
        self.slots[row] = self.batch.add(grammar, eos=list(ends), min_tokens=minimum)
        self.device.start(row, number, eos=ends, min_tokens=minimum)

    def step(self, rng: np.random.Generator, legal_share: float = 0.9) -> np.ndarray:
        """One token a row, most of them legal; escaped rows are left out. bool[rows]: escaped now."""
        device, batch = self.device, self.batch
        escaped = device.escaped.cpu().numpy() != 0
        masks = masks_of(device)
        rows = len(self.slots)
        tokens = np.full(rows, -1, np.int32)
        for row in np.flatnonzero(~escaped).tolist():
            expected = np.zeros(self.vocabulary.width, np.bool_)
            expected[list(tokens_of(batch.mask(int(self.slots[row]))))] = True
            np.testing.assert_array_equal(masks[row], expected)
            legal = np.flatnonzero(expected)
            # Text that opens is as likely as text that closes: ends are taken now and then only.
            some = legal[~np.isin(legal, self.vocabulary.eos)]
            some = some if rng.random() < 0.95 and some.size else legal
            chosen = some.size and rng.random() < legal_share
            tokens[row] = rng.choice(some) if chosen else rng.integers(-1, self.vocabulary.width + 2)
        before = [t.clone() for t in (device.pushdowns.state, device.pushdowns.depth, device.position)]
        device.advance(tensor(tokens))
        after = [device.pushdowns.state, device.pushdowns.depth, device.position]
        outcome = device.accepted.cpu().numpy()
        now = (device.escaped.cpu().numpy() != 0) & ~escaped
        np.testing.assert_array_equal(outcome[~escaped] == ESCAPED, now[~escaped])
        accepted = batch.advance(np.where(escaped | now, -1, self.slots).astype(np.int32), tokens)
        there = ~escaped & ~now
        np.testing.assert_array_equal(outcome[there], accepted[there])
        refused = np.flatnonzero(there & (accepted != ACCEPTED)).tolist()
        for old, new in zip(before, after, strict=True):
            assert torch.equal(old[refused], new[refused])
        assert not masks_of(device)[escaped | now].any()
        return now


@pytest.fixture(scope="module")
def compiled() -> list:
    return [stepmask.compile(grammar, VOCABULARY, use_cache=False) for grammar in GRAMMARS.values()]


@pytest.mark.parametrize(("backend", "steps"), [("torch", 120), ("triton", 14)])
@pytest.mark.parametrize("seed", range(2))
def test_equals_the_host_on_random_tokens(compiled: list, backend: str, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = Rows(compiled, backend, copies=2)
    assert None not in rows.numbers
    count = len(rows.slots)

    def start(row: int) -> None:
        ends = [(END,), (END + 1, END), (END + 1, ord("a")), ()][rng.integers(4)]
        rows.start(row, rows.numbers[row // 2], compiled[row // 2], int(rng.choice([0, 0, 3])), ends)

    for row in range(count):
        start(row)
    escapes = deepest = 0
    for _ in range(steps):
        escapes += int(rows.step(rng).sum())
        deepest = max(deepest, int(rows.device.pushdowns.depth.max()))
        for row, slot in enumerate(rows.slots.tolist()):
            if rows.batch.is_finished(slot) or rows.device.escaped[row] or rng.random() < 0.01:
                rows.batch.remove(slot)
                start(row)
    assert escapes < 0.05 * steps * count
    assert deepest > 3


def test_every_json_is_deterministic(compiled: list) -> None:
    """The device can step all of JSON, with the bounds of white space and digits."""
    rng = np.random.default_rng(7)
    names = ["json", "json text", "unbounded", "compact", "tree", "object"]
    some = [compiled[list(GRAMMARS).index(name)] for name in names]
    rows = Rows(some, "torch")
    for row, grammar in enumerate(some):
        rows.start(row, rows.numbers[row], grammar)
    for _ in range(150):
        assert not rows.step(rng, 1.0).any()
        for row, slot in enumerate(rows.slots.tolist()):
            if rows.batch.is_finished(slot):
                rows.batch.remove(slot)
                rows.start(row, rows.numbers[row], some[row])


@pytest.mark.parametrize(("backend", "seeds", "least"), [("torch", range(160), 14), ("triton", range(160, 200), 3)])
def test_random_grammars(backend: str, seeds: range, least: int) -> None:
    """Whatever rules there are: a row is where the host is, or it has escaped."""
    eligible = escapes = taken = 0
    for seed in seeds:
        rng = random.Random(seed)
        found = random_rules(rng, tokens=True, members=True)
        if not is_language(found):
            continue
        vocabulary = vocabulary_for([found], rng)
        grammar = build(found, vocabulary, ALL_LIMITS[seed % len(ALL_LIMITS)])
        rows = Rows([grammar], backend, vocabulary=vocabulary, copies=3, levels=16)
        if not grammar.automaton.flags & (CALLS | RECURSIVE) or rows.numbers[0] is None:
            continue
        eligible += 1
        for row in range(3):
            rows.start(row, rows.numbers[0], grammar, row, vocabulary.eos or ())
        numbers = np.random.default_rng(seed)
        for _ in range(12):
            taken += int((rows.device.escaped == 0).sum())
            escapes += int(rows.step(numbers).sum())
    assert eligible >= least
    assert escapes < taken // 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_past_the_stack_rows_escape(compiled: list, backend: str) -> None:
    brackets = compiled[list(GRAMMARS).index("brackets")]
    rows = Rows([brackets], backend, copies=2, levels=5)
    for row in range(2):
        rows.start(row, rows.numbers[0], brackets)
    device = rows.device
    opening = tensor(np.array([ord("("), ord("a")], np.int32))
    for level in range(6):  # the call that a bracket is followed by comes with the next one
        device.advance(opening)
        assert device.accepted.tolist() == [ACCEPTED, 0] and device.pushdowns.depth.tolist()[0] == level
    device.advance(opening)
    assert device.accepted.tolist() == [ESCAPED, 0]
    assert device.escaped.tolist() == [1, 0] and device.position.tolist() == [6, 0]
    assert not masks_of(device)[0].any() and masks_of(device)[1].any()
    # It is a host row now.
    device.set_host(torch.tensor([0], device=DEVICE), *(t[1:2].clone() for t in (device.mask_ids, device.end_allowed)))
    device.advance(opening)
    assert device.accepted.tolist() == [ACCEPTED, 0] and masks_of(device)[0].any()
    rows.batch.remove(int(rows.slots[0]))
    rows.start(0, rows.numbers[0], brackets)
    assert device.escaped.tolist() == [0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_ways_to_read_a_byte(backend: str) -> None:
    """The mask is right where two rules begin alike, and the row escapes when a token chooses both."""
    grammar = stepmask.gbnf('root ::= one | two | "b" root\none ::= "(" one ")" | "x"\ntwo ::= "(" two "]" | "1"')
    compiled = stepmask.compile(grammar, VOCABULARY, use_cache=False)
    rows = Rows([compiled], backend, copies=2)
    for row in range(2):
        rows.start(row, rows.numbers[0], compiled)
    rows.device.advance(tensor(np.array([ord("b"), ord("b")], np.int32)))
    expected = tokens_of(rows.batch.mask(int(rows.slots[0])))
    assert set(np.flatnonzero(masks_of(rows.device)[0]).tolist()) == expected
    rows.device.advance(tensor(np.array([ord("("), ord("x")], np.int32)))
    assert rows.device.accepted.tolist() == [ESCAPED, ACCEPTED]


def test_grammars_that_stay_with_the_host(compiled: list) -> None:
    rows = Rows([compiled[0]], "torch", levels=0)
    assert rows.numbers == [None] and rows.device.pushdowns is None
    assert prepare(compiled[0], most_contexts=0) is None
    assert prepare(compiled[0], most_numbers=3) is None
    device = Rows([compiled[0]], "torch").device
    left = stepmask.compile(stepmask.gbnf('root ::= root "a" | "b"'), VOCABULARY, use_cache=False)
    assert left.automaton.flags & 32 == 0 or device.add(left) is None
    tool = device.add(compiled[list(GRAMMARS).index("tool")])
    assert tool is not None
    device.start(0, tool, eos=(END, END + 2))
    assert device.end_allowed.tolist()[0] == 0b10  # it may begin with the second of its end tokens
    device.remove(tool)
    assert device.add(compiled[list(GRAMMARS).index("tool")]) == tool


def test_shared_cases() -> None:
    """Of the cases that there are for all front ends, nearly all stay on the device, and do what the host does."""
    paths = sorted((Path(os.environ.get("STEPMASK_DATA", "shared")) / "cases").glob("*.json"))
    cases = [json.loads(path.read_text("utf-8")) for path in paths]
    if not cases:
        pytest.skip("no shared cases here")
    kinds = {"json_schema": stepmask.json_schema, "regex": stepmask.regex, "gbnf": stepmask.gbnf, "lark": stepmask.lark}
    eligible = escapes = total = 0
    rng = np.random.default_rng(0)
    for case in cases:
        if case["kind"] not in kinds:
            continue
        try:
            grammar = stepmask.compile(kinds[case["kind"]](case["grammar"]), VOCABULARY, use_cache=False)
        except stepmask.GrammarError:
            continue  # some cases ask for that
        rows = Rows([grammar], "torch")
        total += 1
        if rows.numbers[0] is None:
            continue
        eligible += 1
        rows.start(0, rows.numbers[0], grammar)
        if not grammar.automaton.flags & (CALLS | RECURSIVE):
            continue
        for _ in range(12):
            escapes += int(rows.step(rng, 0.97).sum())
            if rows.device.escaped[0] or rows.batch.is_finished(int(rows.slots[0])):
                break
    assert eligible > 0.9 * total
    assert escapes < 0.1 * eligible
