"""What is learned of next tokens, and counted of masks made ahead, against plain Python."""

from __future__ import annotations

import itertools
from typing import Any

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prefetch_oracle import Foresight, Sequence, key_of, place_of

from stepmask.grammar.automaton import H_FLAGS, RECURSIVE
from stepmask.masks import foresight
from stepmask.masks.foresight import learn_rows, note_plan
from stepmask.masks.layout import (
    B_ARENAS,
    B_CONFIGS,
    B_FIELDS,
    B_HISTORY,
    B_LIST_LENGTH,
    B_LIST_OFFSET,
    B_LIST_TOKENS,
    B_POSITION,
    B_SLOT_GRAMMAR,
    B_STEP_EPOCH,
    BLOCK_COUNT,
    BLOCK_TRIPLES,
    CONFIG_BLOCK,
    CONFIG_FIRST_HEAD,
    CONFIG_HEADS,
    CONFIG_WORDS,
    G_AUTOMATON,
    G_FIELDS,
    G_NUMBER,
    HEAD_DEPTH,
    HEAD_STATES,
    HEAD_WORDS,
    KIND_DENSE,
    KIND_LIST,
    KIND_SHIFT,
    KIND_SINGLE,
    LIMIT,
    MAX_HEADS,
    PENDING,
    READY,
)
from stepmask.masks.memory import Block
from stepmask.masks.prefetch_fields import (
    MOST_TIMES,
    P_BATCH,
    P_COUNTERS,
    P_EPOCH,
    P_EXPECT,
    P_FIELDS,
    P_MADE,
    P_MADE_AT,
    P_MASKS,
    P_PLACES,
    P_ROWS,
    P_SLOTS,
    P_STATUS,
    P_TOKEN,
    PLACE_WORDS,
    PLACES,
    PREFETCH_COUNTERS,
    PREFETCH_HITS,
    PREFETCH_MISSES,
    PREFETCH_WASTED,
    SUCCESSORS,
)
from stepmask.masks.warm_up import warm_up

SLOTS, HISTORY = 5, 4
#: By grammar: a plain one and a recursive one.
GRAMMARS = (1, 2)
#: Sets of states, of which all of one grammar's share one place, but for the last.
CROWD = [(state,) for state in range(40_000) if place_of(key_of(1, (state,))) == place_of(key_of(1, (7,)))][:4]
STATES = [*CROWD, (), (3, 9), (1, 2, 3)]


@numba.njit  # type: ignore[untyped-decorator]
def candidates(block: int, row: int) -> Any:
    return foresight.candidates_of(block, row)


class Memory:
    """The parts of a batch and of its prefetch block that are read, as `Foresight` says."""

    def __init__(self, oracle: Foresight) -> None:
        warm_up()
        self.oracle = oracle
        self.batch, self.block = Block(B_FIELDS), Block(P_FIELDS)
        self.grammars = {}
        for number in GRAMMARS:
            grammar, header = Block(G_FIELDS), np.zeros(H_FLAGS + 1, np.int64)
            header[H_FLAGS] = RECURSIVE if number == 2 else 0
            grammar.set_array(G_AUTOMATON, header)
            grammar.set_number(G_NUMBER, number)
            self.grammars[number] = grammar
        self.arenas = np.zeros((SLOTS, 64), np.int64)
        self.batch.set_number(B_HISTORY, HISTORY)
        self.batch.set_array(B_CONFIGS, np.full((SLOTS, HISTORY, CONFIG_WORDS), -1, np.int64))
        self.batch.set_array(B_ARENAS, np.array([arena.ctypes.data for arena in self.arenas], np.int64))
        for field in (B_POSITION, B_SLOT_GRAMMAR):
            self.batch.set_array(field, np.zeros(SLOTS, np.int64))
        self.batch.set_array(B_LIST_OFFSET, np.array([0, 3], np.int32))
        self.batch.set_array(B_LIST_LENGTH, np.array([3, SUCCESSORS + 1], np.int32))
        self.batch.set_array(B_LIST_TOKENS, np.arange(20, 40, dtype=np.int32))
        self.block.set_number(P_BATCH, self.batch.address)
        for field, array in (
            (P_EXPECT, np.zeros(SLOTS, np.int64)),
            (P_MADE, np.full((SLOTS, SUCCESSORS), -1, np.int32)),
            (P_MADE_AT, np.full(SLOTS, -1, np.int64)),
            (P_PLACES, np.zeros((PLACES, PLACE_WORDS), np.int64)),
            (P_COUNTERS, np.zeros(PREFETCH_COUNTERS, np.int64)),
            (P_SLOTS, np.zeros(SLOTS + 1, np.int32)),
            (P_MASKS, np.zeros(SLOTS + 1, np.int32)),
            (P_STATUS, np.zeros(SLOTS + 1, np.uint8)),
            (P_TOKEN, np.zeros(SUCCESSORS, np.int32)),
        ):
            self.block.set_array(field, array)

    def put(self, slot: int) -> None:
        """The sequence of `slot` as the oracle has it."""
        one, arrays = self.oracle.sequences[slot], self.batch.arrays
        arrays[B_POSITION][slot] = one.position
        arrays[B_SLOT_GRAMMAR][slot] = self.grammars[one.grammar].address if one.grammar else 0
        config = arrays[B_CONFIGS][slot, one.position % HISTORY]
        if one.grammar == 2:
            config[CONFIG_HEADS] = min(1, len(one.states))
            config[CONFIG_BLOCK] = 5
            heads = self.arenas[slot, 5:]
            heads[BLOCK_COUNT] = len(one.states)
            heads[BLOCK_TRIPLES + 1 : BLOCK_TRIPLES + 1 + 3 * len(one.states) : 3] = one.states
        else:
            config[CONFIG_HEADS] = len(one.states)
            for i, state in enumerate(one.states):
                head = config[CONFIG_FIRST_HEAD + i * HEAD_WORDS :]
                head[HEAD_DEPTH] = 2  # the state on top counts
                head[HEAD_STATES : HEAD_STATES + 2] = 99, state
        made = self.block.arrays[P_MADE][slot]
        made[:] = -1
        made[: len(one.made)] = one.made
        self.block.arrays[P_MADE_AT][slot] = -1 if one.made_at is None else one.made_at

    def counted(self, place: int, key: int, tokens: list[list[int]]) -> None:
        """Begin with something in a place."""
        words = self.block.arrays[P_PLACES][place]
        words[0] = np.uint64(key | 1).astype(np.int64)
        words[1:] = list(itertools.chain(*tokens))

    def check(self) -> None:
        """Everything is as the oracle says."""
        counters = self.block.arrays[P_COUNTERS]
        found = [int(counters[i]) for i in (PREFETCH_HITS, PREFETCH_MISSES, PREFETCH_WASTED)]
        assert found == [self.oracle.hits, self.oracle.misses, self.oracle.wasted]
        for slot, one in enumerate(self.oracle.sequences):
            assert self.block.arrays[P_EXPECT][slot] == (0 if one.expect is None else one.expect + 1)
            assert (self.block.arrays[P_MADE_AT][slot] == -1) == (one.made_at is None)
        places = self.block.arrays[P_PLACES]
        assert set(np.flatnonzero(places[:, 0])) == set(self.oracle.entries)
        for place, entry in self.oracle.entries.items():
            assert int(places[place, 0]) & ((1 << 64) - 1) == entry.key | 1
            pairs = places[place, 1:].reshape(-1, 2).tolist()
            assert [pair if pair[1] else 0 for pair in pairs] == [pair if pair[1] else 0 for pair in entry.tokens]


tokens = st.integers(-1, 7)
sequences = st.builds(
    Sequence,
    grammar=st.sampled_from([0, 1, 1, 1, 2]),
    states=st.sampled_from(STATES),
    position=st.integers(0, 9),
    made=st.lists(st.integers(0, 7), max_size=SUCCESSORS, unique=True),
)
moves = st.lists(
    st.tuples(st.integers(-1, SLOTS - 1), tokens), min_size=1, max_size=SLOTS, unique_by=lambda move: move[0]
)
statuses = st.sampled_from([READY, PENDING, LIMIT])


@given(st.data(), st.sampled_from([1, 3, MOST_TIMES - 2]))
def test_learning_and_counting_are_those_of_plain_python(data: Any, most: int) -> None:
    """Places that several sets of states share, tokens that push others out, times that are halved."""
    oracle = Foresight([data.draw(sequences) for _ in range(SLOTS)])
    memory = Memory(oracle)
    if most > 1:
        key = key_of(1, CROWD[0])
        memory.counted(place_of(key), key, [[token, most - token // 2] for token in range(SUCCESSORS)])
        oracle._count(key, 0)
        oracle.entries[place_of(key)].tokens = [[token, most - token // 2] for token in range(SUCCESSORS)]
    for _ in range(data.draw(st.integers(1, 12))):
        for slot in range(SLOTS):
            if data.draw(st.booleans()):
                oracle.sequences[slot] = data.draw(sequences)
                oracle.sequences[slot].expect = None
                memory.block.arrays[P_EXPECT][slot] = 0
            one = oracle.sequences[slot]
            one.made_at = data.draw(st.sampled_from([None, one.position, one.position, one.position + 1]))
            memory.put(slot)
        for _ in range(data.draw(st.integers(1, 3))):
            rows = data.draw(moves)
            slots, taken = (np.array(column, np.int32) for column in zip(*rows, strict=True))
            learn_rows(memory.block.address, slots.ctypes.data, len(rows), taken.ctypes.data)
            assert memory.block.header[P_ROWS] == 0
            for slot, token in rows:
                oracle.learn(slot, token)
            memory.check()
        for slot in range(SLOTS):
            memory.block.arrays[P_SLOTS][0], memory.block.arrays[P_MASKS][0] = slot, KIND_DENSE << KIND_SHIFT
            if oracle.sequences[slot].grammar:
                n = candidates(memory.block.address, 0)
                assert memory.block.arrays[P_TOKEN][:n].tolist() == oracle.usual(slot)
            if data.draw(st.booleans()):
                oracle.sequences[slot].position += 1
                memory.put(slot)
        found = [(slot, data.draw(statuses)) for slot in range(-1, SLOTS)]
        slots, status = np.array([s for s, _ in found], np.int32), np.array([s for _, s in found], np.uint8)
        masks = np.arange(len(found), dtype=np.int32)
        memory.batch.header[B_STEP_EPOCH] += 1
        at = (array.ctypes.data for array in (masks, status))
        note_plan(memory.block.address, slots.ctypes.data, len(found), *at)
        for field, array in ((P_SLOTS, slots), (P_MASKS, masks), (P_STATUS, status)):
            np.testing.assert_array_equal(memory.block.arrays[field], array)
        assert memory.block.header[P_ROWS] == len(found)
        assert memory.block.header[P_EPOCH] == memory.batch.header[B_STEP_EPOCH]
        for slot, one_status in found:
            oracle.score(slot, ready=one_status == READY, pending=one_status == PENDING)
        memory.check()


def test_few_legal_tokens_are_those_of_the_mask() -> None:
    """A single one and a list of up to four; a longer list says nothing, and neither does no mask."""
    memory = Memory(Foresight([Sequence(1, (7,)) for _ in range(SLOTS)]))
    memory.put(0)
    masks, found = memory.block.arrays[P_MASKS], memory.block.arrays[P_TOKEN]
    for mask, expected in (
        (KIND_SINGLE << KIND_SHIFT | 1234, [1234]),
        (KIND_LIST << KIND_SHIFT | 0, [20, 21, 22]),
        (KIND_LIST << KIND_SHIFT | 1, []),
        (-1, []),
    ):
        masks[0] = mask
        assert found[: candidates(memory.block.address, 0)].tolist() == expected


def test_the_crowd_shares_a_place() -> None:
    """And no set of states has more heads than a configuration."""
    assert len({place_of(key_of(1, states)) for states in CROWD}) == 1 and len(CROWD) == 4
    assert max(map(len, STATES)) <= MAX_HEADS
