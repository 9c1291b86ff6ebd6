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

# Words of a selection: what `select_tokens` reads.
(
    S_FIRST,  # the first word to read
    S_WORDS,  # the word after the last
    S_MASK,  # address of a bitmap: the accepted tokens are added to it
    S_UNDECIDED,  # address of a bitmap: written
    S_VALID,
    S_SHORT,
    S_MEMBERS,
    S_LENGTH,
    S_LONGER,
    S_UNSETTLED,
    S_AFTER_MEMBERS,
    S_AFTER_LENGTH,
    S_AFTER_LONGER,
    S_COUNTS,  # words: rows in each of the lists LEAVING, DEAD, OUTSIDE, AFTER_LEAVING, AFTER_OUTSIDE, FIRST, ALIVE
) = range(14)
LISTS = 7
S_ROWS = S_COUNTS + LISTS  # the addresses of the rows, one list after the other
SELECTION_WORDS = S_ROWS + LISTS * 256 + 8

_I64 = ir.IntType(64)
#: Words a turn of the loop: two vector registers of the widest kind, four of the next.
_BLOCK = 16
_AHEAD = 64  # words ahead that are asked for


def fetch(builder: Any, address: Any) -> None:
    """Emit a prefetch of the line at `address`, for reading soon."""
    i32, place = ir.IntType(32), ir.IntType(8).as_pointer()
    declared = ir.FunctionType(ir.VoidType(), [place, i32, i32, i32])
    function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
    builder.call(function, [builder.inttoptr(address, place), *(ir.Constant(i32, i) for i in (0, 3, 1))])


@intrinsic
def select_tokens(typing_context, selection):  # type: ignore[no-untyped-def]
    """Accept and sort out tokens by the selection at this address; returns accepted | undecided << 32, both counted.

    With L, D, O, L', O', B, A the unions of its lists of rows (L' and O' of a table that leaves each first byte out,
    B and A of one of first bytes alone), F = B & VALID - SHORT,
    made = VALID - L - D - O + MEMBERS, after = F - L' - D - O' + AFTER_MEMBERS:
    accepted = made & LENGTH | after & AFTER_LENGTH; undecided = what is in A and neither accepted nor in D, of
    (L - made | made - LONGER) - F | L' & F - after | after - AFTER_LONGER | UNSETTLED - VALID.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        plan = builder.inttoptr(arguments[0], _I64.as_pointer())

        def word(index: Any) -> Any:
            return builder.load(builder.gep(plan, [index]))

        def constant(value: int) -> Any:
            return ir.Constant(_I64, value)

        start, words = word(constant(S_FIRST)), word(constant(S_WORDS))
        fields = {name: word(constant(name)) for name in range(S_MASK, S_COUNTS)}
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

            def pointer(address: Any) -> Any:
                place = builder.inttoptr(builder.add(address, builder.shl(at, constant(3))), kind.as_pointer())
                return place

            def read(address: Any) -> Any:
                if width == _BLOCK:
                    # As many streams as rows: more than the processor follows by itself.
                    ahead = builder.add(address, builder.shl(builder.add(at, constant(_AHEAD)), constant(3)))
                    for line in range(0, 8 * width, 64):
                        fetch(builder, builder.add(ahead, constant(line)))
                return builder.load(pointer(address), align=8)

            def union(which: int) -> Any:
                found = cgutils.alloca_once(builder, kind)
                builder.store(ir.Constant(kind, [0] * width), found, align=8)
                with cgutils.for_range(builder, counts[which]) as loop:
                    row = read(word(builder.add(firsts[which], loop.index)))
                    builder.store(builder.or_(builder.load(found, align=8), row), found, align=8)
                return builder.load(found, align=8)

            leaving, dead, outside, after_leaving, after_outside, first, alive = (union(i) for i in range(LISTS))
            valid = read(fields[S_VALID])

            def without(one: Any, other: Any) -> Any:
                return builder.and_(one, builder.not_(other))

            def tokens(of: Any, members: int, *rows: Any) -> Any:
                for row in rows:
                    of = without(of, row)
                return builder.or_(of, read(fields[members]))

            first = without(builder.and_(first, valid), read(fields[S_SHORT]))
            made = tokens(valid, S_MEMBERS, leaving, dead, outside)
            after = tokens(first, S_AFTER_MEMBERS, after_leaving, dead, after_outside)
            accepted = builder.or_(
                builder.and_(made, read(fields[S_LENGTH])), builder.and_(after, read(fields[S_AFTER_LENGTH]))
            )
            undecided = builder.or_(without(leaving, made), without(made, read(fields[S_LONGER])))
            undecided = without(undecided, first)
            for more in (
                builder.and_(after_leaving, without(first, after)),
                without(after, read(fields[S_AFTER_LONGER])),
                without(read(fields[S_UNSETTLED]), valid),
            ):
                undecided = builder.or_(undecided, more)
            undecided = builder.and_(without(without(undecided, dead), accepted), alive)
            mask = pointer(fields[S_MASK])
            builder.store(builder.or_(builder.load(mask, align=8), accepted), mask, align=8)
            builder.store(undecided, pointer(fields[S_UNDECIDED]), align=8)
            for total, bits in zip(totals, (accepted, undecided), strict=True):
                ones = builder.call(vector_function("llvm.ctpop", kind, kind), [bits])
                more = builder.call(vector_function("llvm.vector.reduce.add", _I64, kind), [ones])
                builder.store(builder.add(builder.load(total), more), total)

        whole = builder.add(start, builder.and_(builder.sub(words, start), constant(-_BLOCK)))
        with cgutils.for_range_slice(builder, start, whole, constant(_BLOCK), _I64) as (at, _):
            block(at, _BLOCK)
        with cgutils.for_range_slice(builder, whole, words, constant(1), _I64) as (at, _):
            block(at, 1)
        accepted, undecided = (builder.load(total) for total in totals)
        return builder.or_(accepted, builder.shl(undecided, constant(32)))

    return types.int64(types.int64), generate


@intrinsic
def prefetch(typing_context, address):  # type: ignore[no-untyped-def]
    """Ask for the cache line at `address`, without waiting."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        fetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate
