"""Bitmap algebra over all tokens in one pass, as vector code of our own.

The passes of `masks.wide` are bound by memory: each row of a vocabulary's table is 16 KB at 128k tokens. LLVM cannot
fuse loops over addresses that may overlap, so the one loop that matters is written out in its language: every row is
read once, all that is computed from it stays in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .memory import emit_prefetch

# Words of a selection: what `select_tokens` reads.
(
    S_FIRST,  # the first word to read
    S_WORDS,  # the word after the last
    S_MASK,  # address of a bitmap: the accepted tokens are added to it
    S_UNDECIDED,  # address of a bitmap: written
    S_KNOWN,  # the others are read: tokens of which nothing more has to be known
    S_VALID,
    S_MEMBERS,
    S_LENGTH,
    S_LONGER,
    S_KEPT,
    S_UNSETTLED,
    S_AFTER_MEMBERS,
    S_AFTER_LENGTH,
    S_AFTER_LONGER,
    S_AFTER_KEPT,
    S_COUNTS,  # words: rows in each of the lists, in the order of their names below
) = range(16)
LEAVING, DEAD, OUTSIDE, COMMON, AFTER_LEAVING, AFTER_OUTSIDE, FIRST, EXCLUDED, LISTS = range(9)
S_ROWS = S_COUNTS + LISTS  # the addresses of the rows, one list after the other
#: Words a turn of the loop: two vector registers of the widest kind, four of the next.
BLOCK_WORDS = 16
#: A bitmap without any token, and one of all: BLOCK_WORDS words stand for as many as are read.
S_NOTHING = S_ROWS + LISTS * 256
S_EVERYTHING = S_NOTHING + BLOCK_WORDS
S_SETS = S_EVERYTHING + BLOCK_WORDS  # two sets of bytes, 4 words each, for whoever makes the lists
SELECTION_WORDS = S_SETS + 8

_I64 = ir.IntType(64)
_AHEAD = 64  # words ahead that are asked for


@intrinsic
def select_tokens(typing_context, selection):  # type: ignore[no-untyped-def]
    """Accept and sort out tokens by the selection at this address; returns accepted | undecided << 32, both counted.

    With L, D, O, C, L', O', B, X the unions of its lists of rows (L' and O' of a table that leaves each first byte out,
    B and X of one of first bytes alone), F = B & VALID,
    made = VALID - L - D - C - O + MEMBERS, after = F - L' - D - C - O' + AFTER_MEMBERS:
    accepted = made & LENGTH | after & AFTER_LENGTH; undecided = what is not in D, X or KNOWN, nor accepted, of
    (L & KEPT - made | made - LONGER) - F | L' & F & AFTER_KEPT - after | after - AFTER_LONGER | UNSETTLED - VALID.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        plan = builder.inttoptr(arguments[0], _I64.as_pointer())

        def word(index: Any) -> Any:
            return builder.load(builder.gep(plan, [index]))

        def constant(value: int) -> Any:
            return ir.Constant(_I64, value)

        start, words = word(constant(S_FIRST)), word(constant(S_WORDS))
        fields = {name: word(constant(name)) for name in range(S_MASK, S_COUNTS)}
        # Where S_NOTHING or S_EVERYTHING stands for a bitmap, its BLOCK_WORDS words are read again and again.
        size = constant(8 * SELECTION_WORDS)
        strides = {
            name: builder.sext(builder.icmp_unsigned(">=", builder.sub(field, arguments[0]), size), _I64)
            for name, field in fields.items()
        }
        counts = [word(constant(S_COUNTS + i)) for i in range(LISTS)]
        firsts = [constant(S_ROWS)]
        for count in counts[:-1]:
            firsts.append(builder.add(firsts[-1], count))
        totals = cgutils.alloca_once_value(builder, constant(0)), cgutils.alloca_once_value(builder, constant(0))

        def vector_function(name: str, result: Any, kind: Any) -> Any:
            declared = ir.FunctionType(result, [kind])
            return cgutils.get_or_insert_function(builder.module, declared, f"{name}.v{kind.count}i64")

        def block(at: Any, width: int) -> None:
            """One turn: `width` words from word `at` on."""
            kind = ir.VectorType(_I64, width)

            offset = builder.shl(at, constant(3))

            def pointer(name: int) -> Any:
                place = builder.add(fields[name], builder.and_(offset, strides[name]))
                return builder.inttoptr(place, kind.as_pointer())

            def read(name: int) -> Any:
                return builder.load(pointer(name), align=8)

            def read_row(address: Any) -> Any:
                place = builder.add(address, offset)
                if width == BLOCK_WORDS:
                    # As many streams as rows: more than the processor follows by itself.
                    ahead = builder.add(place, constant(8 * _AHEAD))
                    for line in range(0, 8 * width, 64):
                        emit_prefetch(builder, builder.add(ahead, constant(line)))
                return builder.load(builder.inttoptr(place, kind.as_pointer()), align=8)

            def union(which: int) -> Any:
                found = cgutils.alloca_once(builder, kind)
                builder.store(ir.Constant(kind, [0] * width), found, align=8)
                with cgutils.for_range(builder, counts[which]) as loop:
                    row = read_row(word(builder.add(firsts[which], loop.index)))
                    builder.store(builder.or_(builder.load(found, align=8), row), found, align=8)
                return builder.load(found, align=8)

            rows = [union(i) for i in range(LISTS)]
            valid = read_row(fields[S_VALID])

            def without(one: Any, *others: Any) -> Any:
                for other in others:
                    one = builder.and_(one, builder.not_(other))
                return one

            first = builder.and_(rows[FIRST], valid)
            nowhere = rows[DEAD], rows[COMMON]
            made = builder.or_(without(valid, rows[LEAVING], rows[OUTSIDE], *nowhere), read(S_MEMBERS))
            after = builder.or_(
                without(first, rows[AFTER_LEAVING], rows[AFTER_OUTSIDE], *nowhere), read(S_AFTER_MEMBERS)
            )
            accepted = builder.or_(builder.and_(made, read(S_LENGTH)), builder.and_(after, read(S_AFTER_LENGTH)))
            leaving = without(builder.and_(rows[LEAVING], read(S_KEPT)), made)
            undecided = without(builder.or_(leaving, without(made, read(S_LONGER))), first)
            leaving = builder.and_(builder.and_(rows[AFTER_LEAVING], first), read(S_AFTER_KEPT))
            for more in (
                without(leaving, after),
                without(after, read(S_AFTER_LONGER)),
                without(read(S_UNSETTLED), valid),
            ):
                undecided = builder.or_(undecided, more)
            undecided = without(undecided, rows[DEAD], rows[EXCLUDED], read(S_KNOWN), accepted)
            mask = pointer(S_MASK)
            builder.store(builder.or_(builder.load(mask, align=8), accepted), mask, align=8)
            builder.store(undecided, pointer(S_UNDECIDED), align=8)
            for total, bits in zip(totals, (accepted, undecided), strict=True):
                ones = builder.call(vector_function("llvm.ctpop", kind, kind), [bits])
                more = builder.call(vector_function("llvm.vector.reduce.add", _I64, kind), [ones])
                builder.store(builder.add(builder.load(total), more), total)

        whole = builder.add(start, builder.and_(builder.sub(words, start), constant(-BLOCK_WORDS)))
        with cgutils.for_range_slice(builder, start, whole, constant(BLOCK_WORDS), _I64) as (at, _):
            block(at, BLOCK_WORDS)
        with cgutils.for_range_slice(builder, whole, words, constant(1), _I64) as (at, _):
            block(at, 1)
        accepted, undecided = (builder.load(total) for total in totals)
        return builder.or_(accepted, builder.shl(undecided, constant(32)))

    return types.int64(types.int64), generate
