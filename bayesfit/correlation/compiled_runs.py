"""Frames of pixels as pixels of frames, and their sums over neighbours, compiled to vector instructions: numbers are
shuffled between registers, and stay in one until they are summed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import njit

try:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic
except ImportError:

    def intrinsic(function: Any) -> Any:  # type: ignore[no-redef]
        """Leaves a function as it is."""
        return function


SIDE = 16  # frames, and pixels, of a square that is turned at a time


def _address(context: Any, builder: Any, array: Any, row: Any, column: Any) -> Any:
    """Where the `SIDE` numbers from this place of an array on are."""
    at = builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), column)
    return builder.bitcast(builder.gep(array.data, [at]), _vector(array).as_pointer())


def _vector(array: Any) -> Any:
    return ir.VectorType(array.data.type.pointee, SIDE)


def turn(typing: Any, frames: Any, turned: Any, frame: Any, pixel: Any) -> Any:
    """A compiled function (frames, turned, frame, pixel): puts the square of `frames` (frame, pixel) that begins at
    this place into the first columns of `turned` (pixel, frame), from row `pixel` on.

    Two rows at a time exchange halves, then quarters, and so on (Eklundh, IEEE Trans. Comput. C-21, 801 (1972)).
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        size, (*_, frame, pixel) = frames.dtype.bitwidth // 8, given
        source, target = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, given[:2], strict=False)
        )

        def after(base: Any, more: int) -> Any:
            return builder.add(base, ir.Constant(base.type, more))

        rows = [
            builder.load(_address(context, builder, source, after(frame, each), pixel), align=size)
            for each in range(SIDE)
        ]
        half = SIDE // 2
        while half:
            low, high = _halves(half)
            for each in range(SIDE):
                if not each & half:
                    one, two = rows[each], rows[each + half]
                    rows[each] = builder.shuffle_vector(one, two, low)
                    rows[each + half] = builder.shuffle_vector(one, two, high)
            half //= 2
        for each, row in enumerate(rows):
            into = _address(context, builder, target, after(pixel, each), ir.Constant(pixel.type, 0))
            builder.store(row, into, align=size)
        return context.get_dummy_value()

    return types.void(frames, turned, types.intp, types.intp), generate


def _halves(half: int) -> tuple[Any, Any]:
    """The numbers of which places of two vectors, one after the other, are in the new first and the new second one."""
    low = [place if not place & half else SIDE + place - half for place in range(SIDE)]
    high = [place + half if not place & half else SIDE + place for place in range(SIDE)]
    kind = ir.VectorType(ir.IntType(32), SIDE)
    return ir.Constant(kind, low), ir.Constant(kind, high)


def add_rows(typing: Any, turned: Any, sums: Any, rows: Any, place: Any) -> Any:
    """A compiled function (turned, sums, (first, last), (row, column)): adds the sum of these rows of `turned` (pixel,
    frame) to the `SIDE` numbers that begin at this place of `sums`."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        size = turned.dtype.bitwidth // 8
        source, target = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, given[:2], strict=False)
        )
        first, last = (builder.extract_value(given[2], each) for each in range(2))
        into = _address(context, builder, target, *(builder.extract_value(given[3], each) for each in range(2)))
        total = cgutils.alloca_once_value(builder, builder.load(into, align=size))
        with cgutils.for_range_slice(builder, first, last, ir.Constant(first.type, 1)) as (row, _):
            own = builder.load(_address(context, builder, source, row, ir.Constant(row.type, 0)), align=size)
            builder.store(builder.fadd(builder.load(total), own), total)
        builder.store(builder.load(total), into, align=size)
        return context.get_dummy_value()

    pair = types.UniTuple(types.intp, 2)
    return types.void(turned, sums, pair, pair), generate


TURN: Any = intrinsic(turn)
ADD_ROWS: Any = intrinsic(add_rows)


@njit(nogil=True, cache=True)
def sum_runs(frames: np.ndarray, edges: np.ndarray, block: np.ndarray, sums: np.ndarray) -> int:
    """Add to `sums` (block, frame) what is in `frames` (frame, pixel), from one of the `edges` to the next one to the
    `block` of these pixels. Returns how many frames that was done for: a multiple of `SIDE`, as the pixels are."""
    done = frames.shape[0] // SIDE * SIDE
    turned = np.empty((frames.shape[1], SIDE), frames.dtype)
    for frame in range(0, done, SIDE):
        for pixel in range(0, frames.shape[1], SIDE):
            TURN(frames, turned, frame, pixel)
        for number in range(block.size):
            ADD_ROWS(turned, sums, (edges[number], edges[number + 1]), (block[number], frame))
    return done
