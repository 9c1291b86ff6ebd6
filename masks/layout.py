"""Where things are in the blocks that kernels share: configurations, grammars in a store, the store.

A *configuration* is what one sequence is between two tokens: a few *heads*, each a stack of
(state, register) pairs, level 0 being the root frame. Below the top level the state is the one the
frame will be in when the callee returns. A configuration is closed: every return and every call that
could be next has been followed, so each head rests on a state with edges of its own.
"""

from __future__ import annotations

MAX_DEPTH = 6  # frames on one stack; the compiler nests no deeper
MAX_HEADS = 16  # heads of one configuration; the compiler proves that they suffice
WORK_HEADS = 64  # heads while a configuration is being closed

CONFIG_HEADS, CONFIG_FLAGS, CONFIG_POSITION, CONFIG_UNUSED = range(4)
CONFIG_FIRST_HEAD = 4
HEAD_DEPTH, HEAD_STATES, HEAD_REGISTERS = 0, 1, 1 + MAX_DEPTH
HEAD_WORDS = 1 + 2 * MAX_DEPTH
CONFIG_WORDS = -(-(CONFIG_FIRST_HEAD + MAX_HEADS * HEAD_WORDS) // 8) * 8  # whole cache lines
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
    G_LOOP_BITS,  # int64[n_loops] address of each class's int64[2][words]: tokens made of it alone; after one space
    G_KINDS,  # int64[KIND_WORDS] bytes that do the same in every state
    G_LOOP_EXACT,  # uint8[n_states] 1 where no code point above U+007F but those of the loop class may come next
    G_LOOP_SIZE,  # int32[n_loops] tokens made of the class
    G_SPREAD_GROUP,  # int32[n_states] place of a SPREAD state in the next
    G_SPREAD_BYTES,  # int64[groups][SPREAD_WORDS] what may come next after any string of such a state's class
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
    G_LAZY_UNUSED,  # int32[capacity] numbers below G_LAZY_COUNT that sets no longer have
    G_LAZY_UNUSED_COUNT,
    G_LAZY_HASH,  # int64[capacity] hashes of the sets
    G_STAMP,  # number of the position closed last, so that the next table need not be cleared
    G_FRAME_STAMPS,  # int64[frames] stamp << 16 | number of the fresh node of this frame
    G_CONTEXTS,  # int64[MAX_CONTEXTS][CONTEXT_WORDS]
    G_CONTEXT_COUNT,
    G_CONTEXT_TABLE,  # int32[CONTEXT_BUCKETS] by key: number + 1 of the newest context of the bucket; 0: none
    G_CONTEXT_EPOCH,  # how often all contexts have been forgotten
    G_LISTS,  # int64[MAX_LISTS][LIST_WORDS] lists of trie nodes
    G_LIST_COUNT,
    G_LIST_TABLE,  # int32[LIST_BUCKETS] by content: number + 1 of the newest list of the bucket; 0: none
    G_ITEMS,  # int64[MAX_ITEMS][ITEM_WORDS] the calls made within contexts
    G_ITEM_COUNT,
    G_LIST_NODES,  # int32[MAX_LIST_NODES] the nodes of all lists
    G_LIST_NODES_USED,
    G_CALL_STAMPS,  # int64[1 + call edges + operations] stamp << 16 | number of its list in the walk of this stamp
    G_LIBRARY,  # int64[frames][2] address of what `masks.library` knows of a frame, or 0; the frame's first state
    G_FIELDS,
) = range(44)

# ------------------------------------------------------------------------------- contexts
# What one state does to the vocabulary, or below the trie nodes of a list, within its own frame. Past any of these
# limits all contexts of the grammar are forgotten, and built again as they are needed.
MAX_CONTEXTS = 1 << 13  # of one grammar in one batch
MAX_LISTS = 1 << 14
MAX_ITEMS = 1 << 15
MAX_LIST_NODES = 1 << 20  # 4 MB
# Heads of chains, so that what a grammar of few contexts touches are few pages: the first touch of each takes 2-3 us.
CONTEXT_BUCKETS = 1 << 11
LIST_BUCKETS = 1 << 12
(
    CONTEXT_STATE,  # key: state | list walked << 32 (WHOLE: the vocabulary)
    CONTEXT_BELOW,  # key: how far a counter's minimum is away, or which register it is
    CONTEXT_ABOVE,  # key: how far its maximum is away; which vocabulary
    CONTEXT_MASK,  # mask slot of the tokens alive inside the frame
    CONTEXT_RETURN,  # list of the trie nodes at which the frame may return, -1: there are none
    CONTEXT_ITEM,  # its first call in G_ITEMS
    CONTEXT_ITEMS,  # how many there are
    CONTEXT_ADDED,  # items that its tokens add to a counter at most, so that a lower bound farther away is the same
    CONTEXT_ROOM,  # the same of an upper bound
    CONTEXT_NEXT,  # number + 1 of the next context of its bucket
    CONTEXT_WORDS,
) = range(11)
WHOLE = 0x7FFFFFFF
INCLUSIVE = 1 << 29  # with the number of a list: the tokens that end at its nodes as well
LIST_BEGIN, LIST_LENGTH, LIST_LOW, LIST_HIGH, LIST_NEXT, LIST_WORDS = range(6)
ITEM_CALL, ITEM_ADDED, ITEM_LIST, ITEM_WORDS = range(4)  # CALL: calls, then operations; ADDED: items counted before

# What is visited for one mask; past these limits the stack is walked directly (masks.stack_walk).
MAX_PAIRS = 1024  # (stack node, context)
MAX_CALLED = 256  # calls within tokens, one for each frame and list
MAX_RETURNS = 1024  # (stack node, list)
MAX_CONTINUATIONS = 1024  # of all those calls
PAIR_NODE, PAIR_CONTEXT, PAIR_REGISTER, PAIR_WORDS = range(4)  # REGISTER: where the context makes calls
CALLED_FRAME, CALLED_LIST, CALLED_WORDS = range(3)
RETURN_NODE, RETURN_LIST, RETURN_WORDS = range(3)
CONTINUATION_OF, CONTINUATION_NODE, CONTINUATION_STATE, CONTINUATION_REGISTER, CONTINUATION_WORDS = range(5)
CALLED_BASE = 1 << 45  # number of the first of these calls, as a stack node

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
    B_DEDUP,  # int64[dedup size][2] hash of a mask's content, mask id | epoch << 32
    B_DEDUP_SIZE,
    B_TABLE,  # int64[table size][4] key low, key high, mask slot, B_TABLE_AGE where it is in use
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
    B_JOB_CHILDREN,  # int64[max bytes + 2] TRIE: next child on each level | end of the children << 32; RANKS: its node
    B_JOB_LIST,  # int32[MAX_UNDECIDED + 64] the undecided tokens
    B_JOB_TOTAL,  # int64[words] the mask so far
    B_JOB_SELECTION,  # int64[SELECTION_WORDS] what bitmaps.select_tokens reads
    B_RUN_JOB,  # address of the kernel walk.run_job
    B_COUNTERS,  # int64[COUNTERS]
    B_ARENAS,  # int64[slots] address of each slot's arena of stack blocks, 0: none
    B_SMALL_ARENAS,  # int64[slots][LEAST_COMPACTED] where that is at first
    B_LARGE_ARENAS,  # int64[slots] where it is once that does not suffice, int64[B_ARENA_WORDS] each
    B_ARENA_WORDS,  # words that each may have
    B_ARENA_USED,  # int64[slots] words in use
    B_GRAPH,  # address of the S_ block for accepting
    B_JOB_GRAPH,  # address of the S_ block of the mask being computed
    B_RUN_CONTEXT,  # address of the kernel context_walk.run_context
    B_RUN_STACK,  # address of the kernel stack_walk.run_stack_walk
    B_PAIRS,  # int64[MAX_PAIRS][PAIR_WORDS] what masks.contexts visits
    B_CALLED,  # int64[MAX_CALLED][CALLED_WORDS]
    B_RETURNS,  # int64[MAX_RETURNS][RETURN_WORDS]
    B_CONTINUATIONS,  # int64[MAX_CONTINUATIONS][CONTINUATION_WORDS]
    B_VISIT,  # int64[VISIT_WORDS] how many of each there are
    B_JOB_EVENTS,  # int64[MAX_EVENTS] list << 32 | trie node: what the walk has found
    B_JOB_KEYS,  # int64[MAX_KEYS][KEY_WORDS] the lists it is making
    B_STEP_EPOCH,  # pool epoch when the step began
    B_GRAPH_CALL,  # address of the kernel graph_call.graph_call
    B_REQUEST,  # int64[REQUEST_WORDS] what it is to do
    B_DIRECT,  # 1: masks of recursive grammars by walking the whole stack, without contexts
    B_MOVES,  # int64[slots] how often blocks of the slot's arena have moved, or others have taken their place
    B_PLANS,  # how many steps have been planned
    B_WAITING,  # int64[slots] number of the plan since which the slot has been waiting for its mask, 0: it is not
    B_WORK_BEGIN,  # COUNT_WORK when the fuel of the current phase was given
    B_WORK_LIMIT,  # COUNT_WORK at which it is spent
    B_LANES,  # int64[LANES][LANE_FIELDS] the addresses that LANE_OF names, of each lane
    B_LOOKING,  # 1: nothing is begun, only what is there is looked for
    B_OTHER_JOB,  # address of the other lane's job
    B_SHARE,  # float64[slots] the slot's share of the fuel, relative to others
    B_EFFORT,  # int64[slots] work that is known not to suffice for the slot's mask
    B_ROW_MASK,  # int64[slots] mask slot found for a recursive slot at its position, -1: none
    B_ROW_FLAGS,  # int64[slots] PLACE_FLAGS of it, where these came with its last token, -1: they did not
    B_ROW_OF,  # int64[slots] number of the last plan with the slot << ROW_BITS | its row there
    B_BLOCKED,  # int64[slots] the value of B_FINISHED at which the slot's mask was found to be the other lane's
    B_FINISHED,  # how many masks the lanes have finished, and plans begun
    B_TABLE_AGE,  # which entries of B_TABLE are in use
    B_ADVANCE_TOKEN,  # int32[slots] token that the slot is in the middle of, -1: none
    B_ADVANCE_BYTES,  # int64[slots] bytes of it that are done
    B_ADVANCE_FUEL,  # fuel of the next `advance_rows` in mode ROWS
    B_ADVANCE_FROM,  # row with which the next one begins
    B_SETTLE_FROM,  # row with which the next `settle_rows` begins
    B_BYTES_DONE,  # bytes that an unfinished accepting has done
    B_BEHIND,  # slots that are in the middle of a token
    B_ADVANCE_ROWS,  # address of the kernel advance.advance_rows
    B_JOB_SORTED,  # int32[MAX_EVENTS] the nodes of B_JOB_EVENTS, list after list
    B_LOOK_EXTRA,  # fuel of `settle` that looking up masks may use besides `plan`'s
    B_MEMO,  # int64[buckets][STEPS_A_BUCKET][STEP_WORDS] what masks.memo remembers
    B_MEMO_BUCKETS,
    B_MEMO_STEPS,  # number of the newest step
    B_MEMO_NODES,  # int64[MAX_STEPS] the stack nodes on a path
    B_ARENA_NEXT,  # int64[slots] words of its arena that a slot may use before these are compacted
    B_TELLS_ENDS,  # whether `advance_rows` says ENDED
    B_PLACES,  # int64[slots][2][PLACE_WORDS] what masks.transitions knows of each slot at even and at odd positions
    B_TRANSITIONS,  # int64[buckets][TRANSITIONS_A_BUCKET][TRANSITION_WORDS] what masks.transitions remembers
    B_TRANSITION_BUCKETS,  # a power of two
    B_TRANSITION_OF,  # int64[slots] address of a transition that each slot has taken, 0: it has taken none
    B_PLAN_ROWS,  # address of the kernel step.plan_rows
    B_END_BITS,  # int64[slots] a bit for each end token, by its lowest six bits
    B_REST,  # int32[REST_FIELDS][slots] rows that masks.known_rows hands on
    B_FOUND,  # int64[16] transitions of the next rows that masks.known_rows serves, or 0
    B_FIELDS,
) = range(105)
#: Ways to a mask in one plan: the row that has waited longest, those that need least, and looking for what is there.
LANE_OLDEST, LANE_CHEAPEST, LANE_LOOK, LANES = range(4)
#: What each lane has for itself; the last five, also the looks.
LANE_OF = (
    B_JOB, B_JOB_UNDECIDED, B_JOB_RANKS, B_JOB_STATE, B_JOB_REGISTER, B_JOB_CONFIGS, B_JOB_SETS, B_JOB_CHILDREN,
    B_JOB_LIST, B_JOB_TOTAL, B_JOB_SELECTION, B_JOB_GRAPH, B_JOB_EVENTS, B_JOB_KEYS, B_JOB_SORTED,
    B_PAIRS, B_CALLED, B_RETURNS, B_CONTINUATIONS, B_VISIT,
)  # fmt: skip
LANE_FIELDS = len(LANE_OF)
#: A place in a plan: number of the plan << ROW_BITS | row.
ROW_BITS = 20
(
    VISIT_PAIRS,
    VISIT_CALLED,
    VISIT_RETURNS,
    VISIT_CONTINUATIONS,
    VISIT_FULL,  # returns that have been followed along all continuations there were
    VISIT_LOW,  # key of what is visited
    VISIT_HIGH,
    VISIT_STAGE,  # NOT_VISITED, COLLECTING, UNITING or VISIT_BY_STACK
    VISIT_HEAD,  # heads done
    VISIT_DONE,  # pairs done
    VISIT_ITEM,  # items of the next pair that are done
    VISIT_RETURN,  # returns along which its next item has been followed
    VISIT_NEXT,  # continuations along which the next return has been followed
    VISIT_PART,  # pairs whose masks are in the union
    VISIT_TIMES,  # how often all of this began again, as contexts were forgotten
    VISIT_WORDS,
) = range(16)
NOT_VISITED, COLLECTING, UNITING, VISIT_BY_STACK = range(4)
MAX_EVENTS = 1 << 17
MAX_KEYS = 256
KEY_CALL, KEY_REGISTER, KEY_COUNT, KEY_PLACE, KEY_WORDS = range(5)

# A request to graph_call: what, about which grammar, slot and configuration; the rest depends on what.
R_KIND, R_GRAMMAR, R_SLOT, R_CONFIG, R_TARGET, R_DATA, R_BEGIN, R_END, R_KEEP, REQUEST_WORDS = range(10)

MAX_ENDS = 32  # end tokens of one slot

# ------------------------------------------------------------------------------- stack graphs
# The configuration of a recursive grammar is a block of heads in its slot's arena: CONFIG_HEADS is 1 (0: none), and the
# words from CONFIG_FIRST_HEAD on are the block's number and the number of heads in it.
CONFIG_BLOCK, CONFIG_BLOCK_HEADS = CONFIG_FIRST_HEAD, CONFIG_FIRST_HEAD + 1

# A block is a stack node or the heads of a configuration: a header, triples (node, state, register), the `done` list.
BLOCK_COUNT, BLOCK_DONE, BLOCK_MARK, BLOCK_TRIPLES = range(4)
EXIT = -1  # node of the triple that stands for leaving the root frame
SCRATCH_BASE = 1 << 40  # numbers of blocks in scratch; below it: words from the beginning of the slot's arena
FRESH_BASE = 1 << 50  # nodes of the position that is being closed, before they have blocks
MAX_DONE = 12  # nodes known to return whenever one does; with fewer of them less is pruned, nothing is wrong

MAX_GRAPH_HEADS = 1024  # heads of one configuration; past it the sequence is ended (`StackLimitError`)
MAX_FRESH = 512  # frames called at one position
MAX_EDGES = 8192  # calls made at one position
SCRATCH_BLOCK_WORDS = 1 << 16  # words for the blocks of one token's bytes

(
    S_ARENA,  # address of the slot's arena
    S_SCRATCH,  # int64[SCRATCH_BLOCK_WORDS]
    S_USED,  # words of it in use
    S_FLAGS,  # flags of the configuration closed last
    S_COUNT,  # its heads
    S_FAILED,  # 1 where a limit was passed
    S_WORK,  # units of work done
    S_REACHED,  # int64[MAX_GRAPH_HEADS][3]
    S_HEADS,  # int64[MAX_GRAPH_HEADS][3]
    S_TRIPLES,  # int64[MAX_EDGES][3]
    S_EDGES,  # int64[MAX_EDGES][EDGE_WORDS]
    S_FRESH,  # int64[MAX_FRESH][FRESH_WORDS]
    S_STACK,  # int64[...] numbers, for walks through the graph
    S_FIELDS,
) = range(14)
EDGE_NODE, EDGE_STATE, EDGE_REGISTER, EDGE_KIND, EDGE_NEXT, EDGE_WORDS = range(6)
LEADS_ON, THROUGH = 1, 2  # kinds of edge: the caller goes on after the return; it may itself return then
FRESH_FIRST, FRESH_NUMBER, FRESH_THROUGH, FRESH_DONE_COUNT, FRESH_DONE = range(5)
FRESH_WORDS = FRESH_DONE + MAX_DONE

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
    COUNT_READY,  # constrained rows whose mask was there when they were settled
    COUNT_VERIFIED,  # rows that took a token before their mask was there
    COUNT_DEFERRED,  # rows that took none
    COUNT_CHECKS,  # candidates looked up
    COUNT_SETTLED,  # the part of the work that settling rows took
    COUNT_OVERRUNS,  # rows whose masks were finished over the budget
    COUNT_OVER,  # the part of the work that this took
    COUNT_PARTIAL,  # rows of which a part of their mask was given
    COUNT_VISITED,  # the part of the work that putting masks of recursive rows together took
    COUNT_LOOKED,  # units of looking up rows whose masks are there, which are no part of the work
    COUNT_ADVANCED,  # the part of the work that taking tokens took
    COUNT_UNFINISHED,  # tokens that were not taken within one step's fuel
    COUNT_LIBRARY,  # contexts taken from the library of frames
    COUNT_RECALLED,  # masks of recursive rows that were remembered
    COUNT_LOOKED_UP,  # tokens of recursive rows that were taken as they had been before
    COUNT_LEARNED,  # units of work for remembering what tokens do
    COUNTERS,
) = range(27)

# ------------------------------------------------------------------------------- a frame in the library
# Words of its block; arrays by local state, the frame's first being 0.
(
    E_KNOWN,  # uint8[states] 1 where the state's context is known
    E_ROW,  # int32[states] its mask in E_ROWS, or -1: a list of tokens
    E_ROWS,  # int64[rows][words]
    E_TOKEN_START,  # int32[states + 1]
    E_TOKENS,  # int32[...]
    E_RETURN_START,  # int32[states + 1] the trie nodes at which the frame may return, whatever follows
    E_RETURNS,  # int32[...]
    E_RETURN_BYTES,  # int64[...][4] the bytes of each node's children
    E_ITEM_START,  # int32[states + 1] the calls made within the context
    E_ITEMS,  # int64[...][4] call edge, the frame's first being 0; items counted before; its nodes from .. to
    E_ITEM_NODES,  # int32[...]
    E_ADDED,  # int64[states] as CONTEXT_ADDED
    E_ROOM,  # int64[states] as CONTEXT_ROOM
    E_FIELDS,
) = range(14)

# ------------------------------------------------------------------------------- mask ids
UNCONSTRAINED = -1
KIND_SHIFT = 28
KIND_DENSE, KIND_LIST, KIND_SINGLE, KIND_EMPTY = range(4)
MASK_INDEX = (1 << KIND_SHIFT) - 1
MAX_LIST = 256  # masks of at most so many tokens are lists (1 KB) rather than rows (16 KB at 128k)
#: Tokens of a context that are listed as they are found: sorting more (0.3 us for these) takes longer than searching
#: a bitmap of 128k tokens for them (1.2 us).
MAX_FEW = 32

# A row's status. LIMIT: its mask cannot be had within the limits of stack graphs; the sequence must be ended.
READY, PENDING, LIMIT = 0, 1, 2
# What becomes of a PENDING row when it is settled: the token that its mask would have given, or none yet.
VERIFIED, DEFERRED = 3, 4

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
    J_PATH_BEGUN,  # contexts: RANKS: bytes of it from which on the path is known
    J_PATH_NOTED,  # contexts: RANKS: bytes of it up to which trie nodes at which something leaves are known
    J_SOURCE,  # address of the configuration
    J_FOLLOW,  # address of 4 words: bytes that may follow once the head's top frame has returned
    J_LOOP,  # address of the words that masks.wide uses
    J_UNFINISHED,  # 1 where the walk stopped for want of fuel
    J_LIST,  # contexts: address of the residual list walked, 0: the whole vocabulary; DIRECT: a sequence's own stack
    J_LIST_LENGTH,
    J_LIST_AT,
    J_EVENT_COUNT,
    J_KEY_COUNT,
    J_STAMP,
    J_DEPTH,  # contexts: bytes before the list's, in the path that RANKS follows: 1 after one space
    J_SKIP,  # contexts: LISTS: node to skip, or -1
    J_FAILED,  # contexts: there is no context for this state
    J_REGISTER,  # contexts: the register at their start
    J_ADDED,  # contexts: items that have been counted since then, at most
    J_ROOM,  # contexts: the same, and those of tokens that are not walked
    J_SLOT,  # the slot that the lane works for, and its position
    J_POSITION,
    J_TAKEN,  # work done for it
    J_MOST,  # work after which it must go, 0: none
    J_ROWS,  # SELECT: rows of tables that are read
    J_ACCEPTED,  # SELECT: tokens accepted
    J_LEFT,  # SELECT: tokens undecided
    J_SORTING,  # SELECT: 1 where the undecided are being sorted
    J_MEMO,  # FIND: address of int64[MEMO_WORDS] what masks.wide has found so far
    J_LEAVING,  # contexts: address of int64[LEAVING_STATES, LEAVING_WORDS] what masks.leaving knows of some states
    J_INCLUSIVE,  # NOTE: 1 where the tokens that end at the nodes of the list are walked as well
    J_FEW,  # contexts: tokens of B_JOB_TOTAL, all listed in B_JOB_LIST; -1: they have to be searched for
    J_DIRTY,  # 1 where B_JOB_TOTAL may hold bits of an earlier job
    J_SORTED,  # STORE: events that are in B_JOB_SORTED
    J_KEY_AT,  # STORE: lists that are stored
    J_NODE_AT,  # STORE: nodes of the next list that are hashed, or copied
    J_HASH_LOW,  # STORE: their hash
    J_HASH_HIGH,
    J_LIST_NEW,  # STORE: where its nodes are copied to, -1: it is being hashed
    J_RUN,  # contexts: RANKS: the state after any string of the loop but the empty one, or -1
    J_SUFFIX,  # TRIES: tokens that end at the node where the path is which have been looked at
    J_TRIES,  # the last: TRIE_WORDS words for each kind of trie (`masks.suffixes`)
) = range(49)
SUBTREES, SUFFIXES, NEAR, FAR, TRIE_KINDS = range(5)
(
    TRIE_BYTES,  # 2 words: bytes for which there is one to be walked
    TRIE_BYTES_HIGH,
    TRIE_STATE,  # the state after the bytes before a suffix, and its register
    TRIE_REGISTER,
    TRIE_LEAST,  # how many those bytes are at least, and at most
    TRIE_MOST,
    TRIE_WORDS,
) = range(7)
JOB_WORDS = J_TRIES + TRIE_WORDS * TRIE_KINDS
#: States of which a job remembers what leaves them, a power of two: each in the place of its lowest bits.
LEAVING_STATES = 16
# The state, or -1; 4 words: bytes; groups of bytes on which it stays, or -1: not known.
LEAVING_STATE, LEAVING_BYTES, LEAVING_STAYS, LEAVING_WORDS = 0, 1, 5, 6
DIRECT = -1
IDLE, NEXT_HEAD, TRIE, RANKS, LISTS, SELECT, FIND, NOTE, STORE, TRIES = range(10)

# What masks.wide finds out about a head (words at J_LOOP).
L_STAY = 0  # 2 words: ASCII bytes on which it stays alive whatever the string
L_TEXT = 2  # 1 where the same holds for all code points above U+007F
L_CLASS = 3  # loop class of which any string is alive, or -1
L_LIMIT = 4  # ... for strings of at most so many code points
L_EXACT = 5  # 1 where longer strings of these are certainly dead
L_LEAVE = 6  # 4 words: the other bytes that may come next
L_STATES = 10  # the states among which it stays
#: At most; bytes that lead to yet another one are not in the set. Free text that ends at one of a model's triggers has
#: a state for each of their bytes: with 24 the masks of DeepSeek's took 2.4 ms, of GLM's and Gemma's 0.5 ms, with 64
#: they take 0.15 ms, and no other mask of theirs or of `bench/masks.py` takes longer.
MAX_LOOP_STATES = 64
L_AFTER = L_STATES + MAX_LOOP_STATES + 1  # 1 where the words after these describe the state after one of the L_FIRST
L_SELF = L_AFTER + 1  # 1 where it stays in its own state on all of L_STAY (and L_TEXT)
L_FIRST = L_SELF + 1  # 2 words: ASCII bytes that all lead to that state
L_FIRST_TEXT = L_FIRST + 2  # 1 where all code points above U+007F lead to its set as well
L_REACHED = L_FIRST_TEXT + 1  # the register in that state
L_ASKED = L_REACHED + 1  # bits: it depends on whether members without a bit are allowed; on which members were there
L_AGAIN = L_ASKED + 1  # 1 where a string of the set may come back to the first state, or bytes were read before it
L_WORK = L_AGAIN + 1  # byte edges looked at to find all this
LOOP_WORDS = L_WORK + 1
NO_LIMIT = 1 << 40
# Words at J_MEMO. Finding is taken up again from the beginning, with the sets that have been found by then.
(
    MEMO_CALL,  # sets asked for this time
    MEMO_DONE,  # sets found
    MEMO_LEFT,  # byte edges that may be looked at before it is interrupted
    MEMO_UNFINISHED,  # 1 where it was
    MEMO_TURN,  # 1 + turn in which the next set is being found, 0: it has not begun
    MEMO_STATE,  # state that comes next in that turn
    MEMO_KIND,  # kind of byte that comes next in that state, -1: it has not begun
    MEMO_LOW,  # what is left of the set in that state, 2 words
    MEMO_HIGH,
    MEMO_AWAY,  # `wide._find_leaving`s asked for this time
    MEMO_SPENT,  # byte edges that have been looked at
    MEMO_LED,  # 2 words: bytes that led to new states in the first turn
    MEMO_LED_HIGH,
    MEMO_LED_TEXT,  # 1 where code points above U+007F did
    MEMO_CUTS,  # for each of L_STATES, in the first turn: the kind of byte without which it is not reached, or -1
) = range(15)
MEMO_HEAD = MEMO_CUTS + MAX_LOOP_STATES
MAX_SETS = 40  # that are asked for
MEMO_ENTRY = MAX_LOOP_STATES + 6  # words of each: L_STAY, L_TEXT, L_ASKED, L_AGAIN, number of L_STATES, L_STATES
MEMO_LEAVES = MEMO_HEAD + MAX_SETS * MEMO_ENTRY
MAX_LEAVES = 8  # that are asked for
(
    LEAVE_STATE,  # state that comes next
    LEAVE_AWAY,  # 1 where a byte of the set may lead away as well
    LEAVE_BYTES,  # 4 words: L_LEAVE as far as it is known
) = range(3)
LEAVE_WORDS = LEAVE_BYTES + 4
MEMO_WORDS = MEMO_LEAVES + MAX_LEAVES * LEAVE_WORDS
#: With more undecided tokens than this, all tokens are walked: sorting the undecided out is done in one go.
MAX_UNDECIDED = 32768

# Words at G_KINDS. Bytes of one kind lead to the same state from every state.
KIND_COUNT = 0
KIND_OF = 1  # 256 words: the kind of each byte
KIND_FIRST = KIND_OF + 256  # the lowest byte of each kind
KIND_BYTES = KIND_FIRST + 256  # 4 words a kind: its bytes
KIND_NEXT = KIND_BYTES + 4 * 256  # 256 words: the next byte of another kind, after each byte
KIND_WORDS = KIND_NEXT + 256
