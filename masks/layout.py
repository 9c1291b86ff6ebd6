"""Where things are in the blocks that kernels share: configurations, grammars in a store, the store.

A *configuration* is what one sequence is between two tokens: a few *heads*, each a stack of
(state, register) pairs, level 0 being the root frame. Below the top level the state is the one the
frame will be in when the callee returns. A configuration is closed: every return and every call that
could be next has been followed, so each head rests on a state with edges of its own.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------- configurations
MAX_DEPTH = 6  # frames on one stack; the compiler nests no deeper
MAX_HEADS = 16  # heads of one configuration; the compiler proves that they suffice
WORK_HEADS = 64  # heads while a configuration is being closed

CONFIG_HEADS, CONFIG_FLAGS, CONFIG_POSITION, CONFIG_UNUSED = range(4)
CONFIG_FIRST_HEAD = 4
HEAD_DEPTH, HEAD_STATES, HEAD_REGISTERS = 0, 1, 1 + MAX_DEPTH
HEAD_WORDS = 1 + 2 * MAX_DEPTH
CONFIG_WORDS = CONFIG_FIRST_HEAD + MAX_HEADS * HEAD_WORDS
WORK_CONFIG_WORDS = CONFIG_FIRST_HEAD + (WORK_HEADS + 1) * HEAD_WORDS
SCRATCH_WORDS = WORK_CONFIG_WORDS + CONFIG_WORDS  # the second part: SPARE_CONFIG

# Flags of a configuration.
COMPLETE = 1  # may end here
FINISHED = 2  # an end token was accepted
OVERFLOW = 4  # more heads than MAX_HEADS: the compiler's proof was wrong

# ------------------------------------------------------------------------------- a grammar in a store
(
    G_AUTOMATON,  # address of the automaton's buffer
    G_NUMBER,  # number of the grammar in its store; part of every context key
    G_TOKEN_IDS,  # int32[symbols] token id of each token symbol
    G_STATE_MASK,  # int64[n_states] mask slot of each root-frame state: epoch << 32 | mask id; -1 unknown
    G_LOOP_BITS,  # int64[n_loops][2][words] tokens made of the loop class alone; after one space
    G_KINDS,  # int64[KIND_WORDS] bytes that do the same in every state
    G_LOOP_EXACT,  # uint8[n_states] 1 where no code point above U+007F but those of the loop class may come next
    G_LOOP_SIZE,  # int32[n_loops] tokens made of the class
    G_BOUNDARY,  # uint8[n_states] 1 where a token may end; 0 (no address): everywhere
    G_READY_START,  # int32[n_states][2] masks built ahead: where the token list of a state begins and ends; 0: none
    G_READY_TOKENS,  # int32[...]
    G_READY_DENSE,  # int32[n_states] row of READY_ROWS, or -1
    G_READY_ROWS,  # uint32[rows][2 * words]
    G_SINGLE,  # uint8[frames] 1 where each item of a counter is one code point
    G_LAZY_WORDS,  # int64 words of one lazy state set
    G_LAZY_CAPACITY,  # lazy state sets there is room for
    G_LAZY_COUNT,
    G_LAZY_SETS,  # int64[capacity][lazy words]
    G_LAZY_TABLE,  # int32[table size] open addressing by content, -1 free
    G_LAZY_TABLE_SIZE,
    G_LAZY_MASK,  # int64[capacity] mask slot of each lazy state set
    G_LAZY_LOOP,  # int64[lazy states][3] L_STAY and L_TEXT of each position that loops on itself
    G_LIVE,  # int64[4] bytes on any edge
    G_LAZY_RENAMED,  # int32[capacity] scratch of compaction
    G_FIELDS,
) = range(25)

# ------------------------------------------------------------------------------- a store (one batch)
(
    B_VOCABULARY,  # address of the vocabulary's block
    B_VOCABULARY_START,  # the same as spelled at the start of a text
    B_WORDS,  # int64 words of a mask
    B_SLOTS,
    B_SLOT_GRAMMAR,  # int64[slots] address of the grammar's block, 0: free
    B_CONFIGS,  # int64[slots][history][CONFIG_WORDS]
    B_HISTORY,  # configurations kept for each slot
    B_POSITION,  # int64[slots] tokens accepted
    B_OLDEST,  # int64[slots] lowest position that can be gone back to
    B_ENDS,  # int32[slots][MAX_ENDS] end tokens of the slot
    B_END_COUNT,  # int32[slots]
    B_MIN_TOKENS,  # int64[slots]
    B_TEXT_START,  # uint8[slots] the first token drops its leading space
    B_EPOCH,  # pool epoch
    B_HALF,  # dense rows in each half of the pool
    B_DENSE,  # uint32[2 * half][2 * words]
    B_DENSE_USED,  # rows used in the current half
    B_LIST_OFFSET,  # int32[2 * lists]
    B_LIST_LENGTH,  # int32[2 * lists]
    B_LISTS,  # lists in each half
    B_LIST_USED,
    B_LIST_TOKENS,  # int32[2 * list tokens]
    B_LIST_TOKENS_HALF,
    B_LIST_TOKENS_USED,
    B_DEDUP,  # int64[dedup size][2] hash of a mask's content, mask id + 1 | epoch << 32
    B_DEDUP_SIZE,
    B_TABLE,  # int64[table size][4] key low, key high, mask slot, in use
    B_TABLE_SIZE,
    B_TABLE_USED,
    B_SCRATCH,  # int64[SCRATCH_WORDS or words] configurations while they are being closed, masks while they are copied
    B_SET_SCRATCH,  # int64[2][lazy words]
    B_JOB,  # int64[JOB_WORDS] the mask being computed
    B_JOB_UNDECIDED,  # int64[words] tokens of the head that must be walked
    B_JOB_RANKS,  # int64[rank words] ranks still to be walked
    B_JOB_STATE,  # int64[max bytes + 2] state after each byte of the path; -1: a whole configuration
    B_JOB_REGISTER,  # int64[max bytes + 2]
    B_JOB_CONFIGS,  # int64[max bytes + 2][CONFIG_WORDS]
    B_JOB_SETS,  # int64[max bytes + 2][lazy words] state sets after each byte of the path
    B_JOB_CHILDREN,  # int64[max bytes + 2] TRIE: next child on each level | end of the children << 32
    B_JOB_LIST,  # int32[MAX_UNDECIDED + 64] the undecided tokens
    B_JOB_TOTAL,  # int64[words] the mask so far
    B_JOB_SELECTION,  # int64[SELECTION_WORDS] what bitmaps.select_tokens reads
    B_RUN_JOB,  # address of the kernel walk.run_job
    B_COUNTERS,  # int64[COUNTERS]
    B_FIELDS,
) = range(45)

MAX_ENDS = 32  # end tokens of one slot

# Counters, for reports and tests.
(
    COUNT_WORK,  # units of fuel spent
    COUNT_HITS,  # rows whose mask was there
    COUNT_MISSES,
    COUNT_CONTEXTS,  # contexts computed
    COUNT_MASKS,  # distinct masks stored
    COUNT_FLUSHES,
    COUNT_PROMOTED,
    COUNT_PENDING,
    COUNT_ACCEPTED,
    COUNT_REFUSED,
    COUNTERS,
) = range(11)

# ------------------------------------------------------------------------------- mask ids
UNCONSTRAINED = -1
KIND_SHIFT = 28
KIND_DENSE, KIND_LIST, KIND_SINGLE, KIND_EMPTY = range(4)
MASK_INDEX = (1 << KIND_SHIFT) - 1
MAX_LIST = 256  # masks of at most so many tokens are lists (1 KB) rather than rows (16 KB at 128k)

# A row's status.
READY, PENDING = 0, 1

# ------------------------------------------------------------------------------- the mask being computed
(
    J_STAGE,  # IDLE, NEXT_HEAD, TRIE, RANKS
    J_KEY_LOW,  # key of the configuration whose mask this is
    J_KEY_HIGH,
    J_GRAMMAR,
    J_VOCABULARY,
    J_HEAD,  # head being walked
    J_CURSOR,  # RANKS: next word
    J_PATH_RANK,  # RANKS: token whose bytes the path follows, -1: none
    J_PATH_LENGTH,  # bytes of it that are alive on the path; TRIE: bytes of the path, -1: none yet
    J_SOURCE,  # address of the configuration
    J_FOLLOW,  # address of 4 words: bytes that may follow once the head's top frame has returned
    J_LOOP,  # address of the words that masks.wide uses
    J_UNFINISHED,  # 1 where the walk stopped for want of fuel
    JOB_WORDS,
) = range(14)
IDLE, NEXT_HEAD, TRIE, RANKS = range(4)

# What masks.wide finds out about a head (words at J_LOOP).
L_STAY = 0  # 2 words: ASCII bytes on which it stays alive whatever the string
L_TEXT = 2  # 1 where the same holds for all code points above U+007F
L_CLASS = 3  # loop class of which any string is alive, or -1
L_LIMIT = 4  # ... for strings of at most so many code points
L_EXACT = 5  # 1 where longer strings of these are certainly dead
L_LEAVE = 6  # 4 words: the other bytes that may come next
L_STATES = 10  # the states among which it stays
MAX_LOOP_STATES = 24
L_AFTER = L_STATES + MAX_LOOP_STATES + 1  # 1 where the words after these describe the state after one of the L_FIRST
L_SELF = L_AFTER + 1  # 1 where it stays in its own state on all of L_STAY (and L_TEXT)
L_FIRST = L_SELF + 1  # 2 words: ASCII bytes that all lead to that state
LOOP_WORDS = L_FIRST + 2
NO_LIMIT = 1 << 40
#: With more undecided tokens than this, all tokens are walked: sorting the undecided out is done in one go.
MAX_UNDECIDED = 32768

# Words at G_KINDS. Bytes of one kind lead to the same state from every state.
KIND_COUNT = 0
KIND_OF = 1  # 256 words: the kind of each byte
KIND_FIRST = KIND_OF + 256  # the lowest byte of each kind
KIND_BYTES = KIND_FIRST + 256  # 4 words a kind: its bytes
KIND_WORDS = KIND_BYTES + 4 * 256
