"""Raw memory for kernels: loads and stores by address, bit counting, and blocks of named fields.

One kernel serves rows of many grammars, each compiled into a buffer of its own, so kernels take
addresses (int64) rather than arrays. Every load widens to int64; bitmaps are int64 words (LSB first),
whose bit operations are those of uint64.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def _make_load(bits: int, signed: bool) -> Any:
    @intrinsic
    def load(typing_context, address, index):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(builder.gep(pointer, [arguments[1]]))
            if bits == 64:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(types.int64, types.int64), generate

    return load


def _make_store(bits: int) -> Any:
    @intrinsic
    def store(typing_context, address, index, value):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            builder.store(value, builder.gep(pointer, [arguments[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return store


#: ``load_x(address, index) -> int64``: element `index` of the array at `address`.
load_u8 = _make_load(8, False)
load_i16 = _make_load(16, True)
load_i32 = _make_load(32, True)
load_i64 = _make_load(64, True)


@intrinsic
def load_f64(typing_context, address, index):  # type: ignore[no-untyped-def]
    """Element `index` of the float64 array at `address`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return types.float64(types.int64, types.int64), generate


@intrinsic
def store_f64(typing_context, address, index, value):  # type: ignore[no-untyped-def]
    """Set element `index` of the float64 array at `address`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        builder.store(arguments[2], builder.gep(pointer, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


#: ``store_x(address, index, value)``.
store_u8 = _make_store(8)
store_i32 = _make_store(32)
store_i64 = _make_store(64)


def emit_prefetch(builder: Any, address: Any) -> None:
    """Emit a prefetch of the line at `address`, for reading soon."""
    pointer_type, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer_type, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    # To read, into all levels of the data caches.
    options = [ir.Constant(word, value) for value in (0, 3, 1)]
    builder.call(function, [builder.inttoptr(address, pointer_type), *options])


@intrinsic
def prefetch(typing_context, address):  # type: ignore[no-untyped-def]
    """Ask for the cache line at an address, which may be any, without waiting for it."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        emit_prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def count_trailing_zeros(typing_context, word):  # type: ignore[no-untyped-def]
    """Index of the lowest set bit of an int64 that is not 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def count_bits(typing_context, word):  # type: ignore[no-untyped-def]
    """Number of set bits of an int64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def shift_right(typing_context, word, count):  # type: ignore[no-untyped-def]
    """Logical (unsigned) right shift of an int64 by 0..63."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.lshr(arguments[0], arguments[1])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def section(typing_context, base, word):  # type: ignore[no-untyped-def]
    """`base` plus the byte offset in its int64 word `word`: where a section of an automaton's buffer begins."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.add(arguments[0], builder.load(builder.gep(pointer, [arguments[1]])))

    return types.int64(types.int64, types.int64), generate


def _generate_call(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    byte_pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.IntType(32), [_I64.as_pointer(), byte_pointer, *[_I64] * (len(values) - 1)])
    result = builder.alloca(_I64)
    kernel = builder.inttoptr(values[0], kind.as_pointer())
    builder.call(kernel, [result, ir.Constant(byte_pointer, None), *values[1:]])
    return builder.load(result)


@intrinsic
def call_kernel(typing_context, address, first, second):  # type: ignore[no-untyped-def]
    """Call the kernel of signature ``int64(int64, int64)`` at `address` (`_numba.entry_address`).

    A large kernel that others need is compiled once and called so; called by name it would be compiled into each of
    them. By Numba's calling convention the result goes through a pointer; kernels raise nothing.
    """
    return types.int64(*[types.int64] * 3), _generate_call


@intrinsic
def call_kernel_4(typing_context, address, a, b, c, d):  # type: ignore[no-untyped-def]
    """The same with four arguments."""
    return types.int64(*[types.int64] * 5), _generate_call


@intrinsic
def call_kernel_5(typing_context, address, a, b, c, d, e):  # type: ignore[no-untyped-def]
    """The same with five arguments."""
    return types.int64(*[types.int64] * 6), _generate_call


@intrinsic
def call_kernel_6(typing_context, address, a, b, c, d, e, f):  # type: ignore[no-untyped-def]
    """The same with six arguments."""
    return types.int64(*[types.int64] * 7), _generate_call


@intrinsic
def call_kernel_7(typing_context, address, a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
    """The same with seven arguments."""
    return types.int64(*[types.int64] * 8), _generate_call


#: Bytes of a large page; an allocation of fewer gets none.
LARGE_PAGE = 2 << 20


def room(size: int) -> npt.NDArray[np.uint8]:
    """uint8[size] that begins at a cache line, in large pages if there are any.

    NumPy asks for them for some of its arrays, but of memory that it may have used before, in small pages.
    """
    if size < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.empty(size + 64, np.uint8)
        return memory[-memory.ctypes.data % 64 :][:size]
    pages = mmap.mmap(-1, size + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return memory[-memory.ctypes.data % LARGE_PAGE :][:size]


def untouched(rows: int, words: int) -> npt.NDArray[np.int64]:
    """int64[rows][words] of zeros, of which no page is there before it is touched. Raises MemoryError."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros((rows, words), np.int64)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if sys.platform == "linux":
        flags |= 0x4000  # MAP_NORESERVE: `mmap` has the name from Python 3.13 on
    try:
        pages = mmap.mmap(-1, 8 * rows * words, flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no address space for {rows} times {8 * words} bytes: {error}") from None
    return np.frombuffer(pages, np.int64).reshape(rows, words)


class Block:
    """A header of int64 words, each a number or the address of an array that the block keeps alive.

    Kernels get `address` and read word `i` with ``load_i64(address, i)``.
    """

    def __init__(self, words: int) -> None:
        self.header = np.zeros(words, np.int64)
        self.arrays: dict[int, npt.NDArray[Any]] = {}

    @classmethod
    def packed(cls, words: int, arrays: Iterable[tuple[int, npt.NDArray[Any]]]) -> Block:
        """A block with these arrays, by field, in one allocation of which every page is touched: not in a step then."""
        block = cls(words)
        for index, array in arrays:
            block.set_array(index, array)
        block.pack()
        return block

    def set_array(self, index: int, array: npt.NDArray[Any]) -> None:
        """Let word `index` be the address of `array`, which must be contiguous."""
        assert array.flags.c_contiguous
        self.arrays[index] = array
        self.header[index] = array.ctypes.data

    def add_zeros(self, *parts: tuple[int, int, type[np.generic]]) -> list[npt.NDArray[Any]]:
        """Arrays of zeros, each a field, how many elements and their type, in one allocation and beside each other."""
        sizes = [-(-count * np.dtype(dtype).itemsize // 8) for _, count, dtype in parts]
        memory = np.zeros(sum(sizes), np.int64)
        address, begin, added = memory.ctypes.data, 0, []
        for (index, count, dtype), size in zip(parts, sizes, strict=True):
            array = memory[begin : begin + size].view(dtype)[:count]
            self.arrays[index] = array
            self.header[index] = address + 8 * begin
            begin += size
            added.append(array)
        return added

    def share(self, other: Block) -> None:
        """Have the arrays of another block too."""
        self.arrays.update(other.arrays)
        for index in other.arrays:
            self.header[index] = other.header[index]

    def set_number(self, index: int, value: int) -> None:
        self.header[index] = value

    def pack(self) -> None:
        """Move the arrays into one allocation, which large pages can hold.

        A mask touches a few places in each of many arrays; one page table entry for all of them is soon found.
        """
        arrays = list(self.arrays.items())
        ends = np.cumsum([-(-array.nbytes // 64) * 64 for _, array in arrays])
        memory = room(int(ends[-1]))
        for (index, array), end in zip(arrays, ends, strict=True):
            start = int(end) - -(-array.nbytes // 64) * 64
            view = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            view[...] = array
            self.set_array(index, view)

    @property
    def address(self) -> int:
        return int(self.header.ctypes.data)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())
