"""The vocabulary as kernels see it: a token trie and bitmaps of what tokens are made of.

Text tokens are sorted by their bytes; a token's place in that order is its *rank* (equal byte
strings have adjacent ranks). In the trie the children of a node are neighbours, so that the dead ones cost no more
than their bytes: in preorder (llguidance's layout, FIELD 3.1) each sibling is somewhere else in memory.

For wide states (`masks.wide`) the tokens that contain a byte of some range are kept as bitmaps: a
segment tree over the 256 byte values, so that any range of bytes is the OR of at most 14 rows, and a few sets of
bytes. They are in id order, which a mask is made of.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._numba import helper, kernel
from .memory import Block
from .vocabulary import checked_vocabulary

if TYPE_CHECKING:
    from .class_members import ClassMembers
    from .vocabulary import Vocabulary

# Words of a vocabulary block.
(
    V_SIZE,  # token ids
    V_WORDS,  # int64 words of a bitmap over token ids
    V_RANKS,  # text tokens
    V_RANK_WORDS,
    V_NODE,  # int64[nodes] byte | TOKEN_ENDS | SAME_TOKENS | groups of bytes below | children << 16 | first child << 32
    V_NODE_TOKEN,  # int32[nodes] id of a token that ends there, or -1
    V_NEXT_SAME,  # int32[size] the next token of the same bytes, or -1
    V_ROOT,  # the root's word as in V_NODE
    V_NODE_PARENT,  # int32[nodes] -1: the root
    V_RANK_NODE,  # int32[ranks] the node at which a token ends
    V_RANK_ID,  # int32[ranks] token id
    V_RANK_START,  # int32[ranks + 1] where the token's bytes begin in RANK_BYTES
    V_RANK_BYTES,  # uint8[...] the tokens' bytes in rank order
    V_ID_RANK,  # int32[size] rank of a text token
    V_RECORD,  # int64[ranks] the first RECORD_BYTES, zeros after them; in the highest byte length | RECORD_VALID
    V_PRESENCE,  # int64[ROWS][words] row i: tokens with a byte of segment i; row 256 + b: byte b; 1: any byte; 0: none
    V_REST,  # the same of each token without its first byte
    V_BEGIN,  # the same of each token's first byte alone
    V_VALID,  # int64[words] tokens that are valid UTF-8 text, the last code point perhaps cut short
    V_LENGTH,  # int64[max_length + 1][words] row k: valid tokens of at most k code points, begun ones counted
    V_MAX_LENGTH,  # longest valid token in code points
    V_MAX_BYTES,  # longest text token in bytes
    V_TOKEN_START,  # int64[size + 1] where the token's bytes begin in TOKEN_BYTES
    V_TOKEN_BYTES,  # uint8[...]
    V_TOKEN_TEXT,  # uint8[size] 1 where the token is text
    V_FIRST_RANK,  # int32[257] first rank of the tokens that begin with a byte
    V_BELOW,  # int64[nodes] the first rank of the tokens below a node | the rank after the last of them << 32
    V_ABSENT,  # int64[4] bytes that no token has
    V_BYTE_NODE,  # int32[256] the child of the root for each byte, or -1
    V_SUFFIX_NODE,  # int64[suffix nodes] as V_NODE, of `masks.suffixes`
    V_SUFFIX_BYTE,  # int32[256] the node for the suffixes from each byte on, or -1
    V_SUFFIX_TOKEN_START,  # int32[suffix nodes + 1] where the tokens that end at a node begin
    V_SUFFIX_TOKENS,  # int64[...][2]
    V_FIELDS,
) = range(34)

TOKEN_ENDS = 1 << 8
SAME_TOKENS = 1 << 9  # several tokens end there
RECORD_BYTES = 7
RECORD_LENGTH = 15  # the length, RECORD_BYTES + 1 where it is more than RECORD_BYTES
RECORD_VALID = 1 << 4  # the token is in V_VALID


def ascii_words(some: bytes) -> tuple[int, int]:
    """A set of ASCII bytes as two int64 words."""
    low, high = np.packbits([byte in some for byte in range(128)], bitorder="little").view("<i8").tolist()
    return low, high


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD_BYTES = _LETTERS + _LETTERS.lower() + b"-0123456789_"
#: Sets of ASCII bytes that many languages leave out whole. They have rows of their own after those of the segments.
NAMED_SETS = (
    bytes(byte for byte in range(128) if byte not in _WORD_BYTES),
    bytes(byte for byte in range(128) if byte not in _WORD_BYTES + b" "),
    _LETTERS,
    _LETTERS.lower(),
    b"0123456789",
)
NAMED_LOW, NAMED_HIGH = zip(*map(ascii_words, NAMED_SETS), strict=True)
#: Groups of the bytes below a node, a bit each in its word: these sets, and all other bytes.
BYTE_GROUPS = (b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789", b"_", b" \t\n\r")
GROUPS_LOW, GROUPS_HIGH = zip(*map(ascii_words, BYTE_GROUPS), strict=True)
GROUPS_SHIFT = 10
ALL_GROUPS = (2 << len(BYTE_GROUPS)) - 1
#: The first of these rows. Before them there are those of the segments: row i has the segments 2i and 2i + 1.
NAMED = 512
ROWS = NAMED + len(NAMED_SETS)


@kernel(
    "int64(uint8[::1], int32[::1], int32[::1], int32[::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1])",
    allocates=True,
)
def _flatten(data, start, rank_id, common, groups, node, node_token, next_same, below):  # type: ignore[no-untyped-def]
    """Trie of sorted tokens; returns the root's word. `common[i]`: length of the prefix that token i shares with i - 1.

    `groups` int64[256]: the bit of each byte's group in the words of the nodes above it.

    First in preorder, then block by block: the children of a node, then the blocks below each of them.
    """
    skip = np.empty(len(node), np.int32)
    byte = np.empty(len(node), np.int64)
    token = np.full(len(node), -1, np.int32)
    # Of each node in preorder the ranks of the tokens below it, the first and the one after the last.
    first_rank = np.empty(len(node), np.int32)
    last_rank = np.full(len(node), len(common), np.int32)
    longest = 1
    for rank in range(len(common)):
        longest = max(longest, start[rank + 1] - start[rank])
    open_nodes = np.empty(longest, np.int32)
    n = 0
    depth = 0
    for rank in range(len(common)):
        begin, end = start[rank], start[rank + 1]
        while depth > common[rank]:
            depth -= 1
            skip[open_nodes[depth]] = n
            last_rank[open_nodes[depth]] = rank
        for position in range(begin + depth, end):
            byte[n] = data[position]
            first_rank[n] = rank
            open_nodes[depth] = n
            depth += 1
            n += 1
        last = open_nodes[depth - 1]
        if token[last] >= 0:
            byte[last] |= SAME_TOKENS
            next_same[rank_id[rank]] = token[last]
        token[last] = rank_id[rank]
        first_rank[last] = rank + 1
        byte[last] |= TOKEN_ENDS
    while depth > 0:
        depth -= 1
        skip[open_nodes[depth]] = n
    for i in range(n - 1, -1, -1):
        child = i + 1
        while child < skip[i]:
            byte[i] |= (byte[child] & (ALL_GROUPS << GROUPS_SHIFT)) | groups[byte[child] & 0xFF]
            child = skip[child]
    # (node in preorder, its place) still to be given children; -1: the root.
    waiting = np.empty((len(node) + 1, 2), np.int32)
    waiting[0, 0] = -1
    waiting[0, 1] = -1
    left = 1
    placed = 0
    root = np.int64(0)
    while left > 0:
        left -= 1
        parent, place = waiting[left, 0], waiting[left, 1]
        child = parent + 1
        stop = n if parent < 0 else skip[parent]
        first = placed
        while child < stop:
            node[placed] = byte[child]
            node_token[placed] = token[child]
            below[placed] = np.int64(first_rank[child]) | (np.int64(last_rank[child]) << np.int64(32))
            placed += 1
            child = skip[child]
        children = (np.int64(placed - first) << np.int64(16)) | (np.int64(first) << np.int64(32))
        if parent < 0:
            root = children
        else:
            node[place] |= children
        # The last block to be put on the pile is the next: so in reverse.
        child = parent + 1
        for i in range(placed - first):
            waiting[left + placed - first - 1 - i, 0] = child
            waiting[left + placed - first - 1 - i, 1] = first + i
            child = skip[child]
        left += placed - first
    return root


def _groups() -> npt.NDArray[np.int64]:
    """int64[256]: the bit of each byte's group in the words of nodes."""
    groups = np.full(256, 1 << (GROUPS_SHIFT + len(BYTE_GROUPS)), np.int64)
    for number, some in enumerate(BYTE_GROUPS):
        groups[list(some)] = 1 << (GROUPS_SHIFT + number)
    return groups


@kernel("void(uint8[::1], int32[::1], int32[::1])")
def _common_prefixes(data, start, common):  # type: ignore[no-untyped-def]
    """common[i]: how many first bytes tokens i and i - 1 share."""
    common[0] = 0
    for rank in range(1, len(common)):
        a, b = start[rank - 1], start[rank]
        limit = min(start[rank] - a, start[rank + 1] - b)
        n = 0
        while n < limit and data[a + n] == data[b + n]:
            n += 1
        common[rank] = n


@helper
def code_points(data, begin, end):  # type: ignore[no-untyped-def]
    """Code points of data[begin:end] if it is well-formed UTF-8 (Unicode 3.9, table 3-7), else -1.

    A last code point may be cut short; it counts as one.
    """
    n = 0
    i = begin
    while i < end:
        b = data[i]
        n += 1
        if b < 0x80:
            i += 1
            continue
        if b < 0xC2 or b > 0xF4:
            return -1
        low, high = 0x80, 0xBF
        if b < 0xE0:
            more = 1
        elif b < 0xF0:
            more = 2
            if b == 0xE0:
                low = 0xA0
            elif b == 0xED:
                high = 0x9F
        else:
            more = 3
            if b == 0xF0:
                low = 0x90
            elif b == 0xF4:
                high = 0x8F
        for k in range(1, min(more, end - 1 - i) + 1):
            c = data[i + k]
            if c < low or c > high:
                return -1
            low, high = 0x80, 0xBF
        i += more + 1
    return n


@kernel(
    "void(uint8[::1], int32[::1], int32[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], "
    "int64[:, ::1], int32[::1])"
)
def _fill_bitmaps(data, start, place, presence, rest, begin, valid, length, lengths):  # type: ignore[no-untyped-def]
    """Bitmaps over places (token ids or ranks) of the tokens at data[start[i]:start[i + 1]]."""
    one = np.int64(1)
    for rank in range(len(place)):
        word = place[rank] >> 6
        bit = one << np.int64(place[rank] & 63)
        for position in range(start[rank], start[rank + 1]):
            presence[256 + data[position], word] |= bit
            if position > start[rank]:
                rest[256 + data[position], word] |= bit
        begin[256 + data[start[rank]], word] |= bit
        if lengths[rank] >= 0:
            valid[word] |= bit
            length[lengths[rank], word] |= bit
    for table in (presence, rest, begin):
        for i in range(255, 0, -1):
            for w in range(table.shape[1]):
                table[i, w] = table[2 * i, w] | table[2 * i + 1, w]
        for i in range(len(NAMED_LOW)):
            for byte in range(128):
                if ((NAMED_LOW[i] if byte < 64 else NAMED_HIGH[i]) >> (byte & 63)) & 1 != 0:
                    for w in range(table.shape[1]):
                        table[NAMED + i, w] |= table[256 + byte, w]
    for k in range(1, length.shape[0]):
        for w in range(length.shape[1]):
            length[k, w] |= length[k - 1, w]


@kernel("void(uint8[::1], int32[::1], int32[::1])")
def _count_lengths(data, start, lengths):  # type: ignore[no-untyped-def]
    for rank in range(len(lengths)):
        lengths[rank] = code_points(data, start[rank], start[rank + 1])


def _parents(node: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The parent of each node of the trie, -1 for the children of the root."""
    children, first = (node >> 16) & 0xFFFF, node >> 32
    parent = np.full(len(node), -1, np.int32)
    total = np.cumsum(children)
    places = np.arange(int(children.sum())) + np.repeat(first - total + children, children)
    parent[places] = np.repeat(np.arange(len(node), dtype=np.int32), children)
    return parent


def _rank_nodes(
    node: npt.NDArray[np.int64], node_token: npt.NDArray[np.int32], next_same: npt.NDArray[np.int32], size: int
) -> npt.NDArray[np.int32]:
    """The node at which each token id ends."""
    nodes = np.zeros(size, np.int32)
    at = np.flatnonzero(node & TOKEN_ENDS)
    tokens = node_token[at]
    while len(tokens):
        nodes[tokens] = at
        tokens = next_same[tokens]
        at, tokens = at[tokens >= 0], tokens[tokens >= 0]
    return nodes


@dataclass(frozen=True)
class FlatTrie:
    """`node` int64[nodes] as V_NODE; `parent` int64[nodes], -1 for the root's children; `end_node` int64[strings]."""

    node: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    end_node: npt.NDArray[np.int64]


def flatten_trie(strings: list[bytes]) -> FlatTrie:
    """The trie of different strings, sorted."""
    data = np.frombuffer(b"".join(strings), np.uint8).copy()
    start = np.concatenate([[0], np.cumsum([len(s) for s in strings])]).astype(np.int32)
    number = np.arange(len(strings), dtype=np.int32)
    common = np.zeros(len(strings), np.int32)
    if len(strings):
        _common_prefixes(data, start, common)
    nodes = int(len(data) - common.sum())
    node, node_token = np.zeros(nodes, np.int64), np.zeros(nodes, np.int32)
    next_same = np.full(len(strings), -1, np.int32)
    if len(strings):
        groups, below = np.zeros(256, np.int64), np.zeros(nodes, np.int64)
        _flatten(data, start, number, common, groups, node, node_token, next_same, below)
    end_node = _rank_nodes(node, node_token, next_same, len(strings))
    return FlatTrie(node, _parents(node).astype(np.int64), end_node.astype(np.int64))


class VocabularyTables:
    """The block of one vocabulary (and of one way to begin: see `drop_space`).

    With `drop_space` the tokens are spelled as at the start of a text, where SentencePiece decoders
    drop one leading space; a token that is only that space is then no text.
    """

    def __init__(self, vocabulary: Vocabulary, drop_space: bool = False) -> None:
        from .suffixes import add_suffixes

        size = vocabulary.size
        text = vocabulary.is_text.astype(np.uint8)
        token_start = vocabulary.token_offsets.astype(np.int64)
        token_bytes = np.ascontiguousarray(vocabulary.token_bytes)
        if drop_space:
            starts = token_start[:-1]
            lengths_all = np.diff(token_start)
            first = np.zeros(size, np.uint8)
            some = lengths_all > 0
            first[some] = token_bytes[starts[some]]
            spaced = (first == 0x20) & (text == 1)
            keep = np.ones(len(token_bytes), bool)
            keep[starts[spaced]] = False
            token_bytes = token_bytes[keep]
            token_start = np.concatenate([[0], np.cumsum(lengths_all - spaced)]).astype(np.int64)
            text = (text & (np.diff(token_start) > 0)).astype(np.uint8)
        raw = token_bytes.tobytes()
        ids = np.flatnonzero(text)
        bounds = token_start.tolist()
        order = sorted(ids.tolist(), key=lambda i: raw[bounds[i] : bounds[i + 1]])
        joined = b"".join([raw[bounds[i] : bounds[i + 1]] for i in order])
        data = np.frombuffer(joined, np.uint8).copy()
        rank_id = np.array(order, np.int32)
        rank_start = np.concatenate([[0], np.cumsum(np.diff(token_start)[rank_id])]).astype(np.int32)
        ranks = len(order)
        common = np.zeros(max(ranks, 1), np.int32)[:ranks]
        if ranks:
            _common_prefixes(data, rank_start, common)
        nodes = int(len(data) - common.sum())
        node = np.zeros(nodes, np.int64)
        node_token = np.zeros(nodes, np.int32)
        next_same = np.full(size, -1, np.int32)
        below = np.zeros(nodes, np.int64)
        root = _flatten(data, rank_start, rank_id, common, _groups(), node, node_token, next_same, below)
        lengths = np.zeros(ranks, np.int32)
        _count_lengths(data, rank_start, lengths)
        longest = int(lengths.max(initial=0))
        words = -(-max(vocabulary.width, 1) // 64)
        rank_words = max(1, -(-ranks // 64))
        block = Block(V_FIELDS)
        fields = V_PRESENCE, V_REST, V_BEGIN, V_LENGTH, V_VALID
        maps = [np.zeros((n, words), np.int64) for n in (ROWS, ROWS, ROWS, max(longest, 1) + 1, 1)]
        presence, rest, begin, length, valid = maps
        _fill_bitmaps(data, rank_start, rank_id, presence, rest, begin, valid[0], length, lengths)
        for field, bitmap in zip(fields, maps, strict=True):
            block.set_array(field, bitmap)
        id_rank = np.zeros(size, np.int32)
        id_rank[rank_id] = np.arange(ranks, dtype=np.int32)
        places = np.arange(8) + rank_start[:-1, None]
        record = np.append(data, np.zeros(8, np.uint8))[places] * (places < rank_start[1:, None])
        record[:, RECORD_BYTES] = np.minimum(np.diff(rank_start), RECORD_BYTES + 1) | (lengths >= 0) * RECORD_VALID
        used = np.zeros(256, bool)
        used[data] = True
        parent = _parents(node)
        byte_node = np.full(256, -1, np.int32)
        top = np.flatnonzero(parent < 0)
        byte_node[node[top] & 0xFF] = top
        add_suffixes(block, data, rank_start, rank_id, lengths >= 0)
        first_rank = np.searchsorted(data[rank_start[:-1]], np.arange(257)).astype(np.int32)
        for index, number in (
            (V_SIZE, size),
            (V_WORDS, words),
            (V_RANKS, ranks),
            (V_RANK_WORDS, rank_words),
            (V_ROOT, root),
            (V_MAX_LENGTH, max(longest, 1)),
            (V_MAX_BYTES, int(np.diff(rank_start).max(initial=0))),
        ):
            block.set_number(index, number)
        for index, array in (
            (V_NODE, node),
            (V_NODE_TOKEN, node_token),
            (V_BELOW, below),
            (V_NEXT_SAME, next_same),
            (V_NODE_PARENT, parent),
            (V_BYTE_NODE, byte_node),
            (V_RANK_NODE, _rank_nodes(node, node_token, next_same, size)[rank_id]),
            (V_ID_RANK, id_rank),
            (V_RECORD, record.view("<i8")),
            (V_RANK_ID, rank_id),
            (V_RANK_START, rank_start),
            (V_RANK_BYTES, data),
            (V_TOKEN_START, token_start),
            (V_TOKEN_BYTES, token_bytes),
            (V_TOKEN_TEXT, text),
            (V_FIRST_RANK, first_rank),
            (V_ABSENT, np.packbits(~used, bitorder="little").view(np.int64).copy()),
        ):
            block.set_array(index, array)
        block.pack()
        self.block = block
        self.words = words
        self.rank_words = rank_words
        self.max_bytes = int(block.header[V_MAX_BYTES])
        #: Of the classes of code points that grammars had so far, by their ranges (`class_members`).
        self.class_members: dict[bytes, ClassMembers] = {}
        #: bool[256]: the bytes that are a token by themselves.
        self.single_bytes = np.zeros(256, np.bool_)
        alone = rank_start[:-1][np.diff(rank_start) == 1]
        self.single_bytes[data[alone]] = True
        #: The bytes that no text token has: no string that holds one can be written.
        self.absent_bytes = frozenset(np.flatnonzero(~used).tolist())
        #: Whether all others are tokens by themselves.
        self.has_single_bytes = bool(self.single_bytes[used].all())

    @property
    def address(self) -> int:
        return self.block.address

    @property
    def nbytes(self) -> int:
        return self.block.nbytes


_LOCK = threading.Lock()
_TABLES: weakref.WeakKeyDictionary[Vocabulary, dict[bool, VocabularyTables]] = weakref.WeakKeyDictionary()


def tables_of(vocabulary: Vocabulary, drop_space: bool = False) -> VocabularyTables:
    """The tables of `vocabulary`, made at the first call and kept with it (about 40 MB and 0.2 s for 128k tokens)."""
    drop_space = checked_vocabulary(vocabulary).text_start and drop_space
    with _LOCK:
        cache = _TABLES.setdefault(vocabulary, {})
        if drop_space not in cache:
            cache[drop_space] = VocabularyTables(vocabulary, drop_space)
        return cache[drop_space]
