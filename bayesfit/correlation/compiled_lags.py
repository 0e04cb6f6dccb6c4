"""Products of frames with earlier ones, compiled to vector instructions: numbers stay in registers for many products.

A loop over pixels loads two numbers for each product, because a compiler cannot know that what is written is not what
is read. Here one step multiplies eight late frames with the frames at several delays before, of 16 pixels at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesfit.correlation.compiled import njit

try:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
except ImportError:

    def intrinsic(function: Any) -> Any:  # type: ignore[no-redef]
        """Leaves a function as it is."""
        return function


LATE, WIDE = 8, 16  # frames and pixels that are multiplied at a time
FUSED = ("contract",)  # product and sum are one instruction, where there is one


def _step(delays: int) -> Any:
    """A compiled function (frames, found, (late, first, pixel)): adds to `found` (delay, pixel) the products of `LATE`
    frames from `late` on with those `first` to `first + delays - 1` frames before, of `WIDE` pixels from `pixel` on."""

    def step(typing: Any, frames: Any, found: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            number = signature.args[0].dtype
            vector, size = ir.VectorType(context.get_data_type(number), WIDE), number.bitwidth // 8
            late, first, pixel = (builder.extract_value(given[2], each) for each in range(3))

            def address(which: int, base: Any, more: int) -> Any:
                array = context.make_array(signature.args[which])(context, builder, given[which])
                row = builder.add(base, ir.Constant(base.type, more))
                at = builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), pixel)
                return builder.bitcast(builder.gep(array.data, [at]), vector.as_pointer())

            before = builder.sub(late, first)
            of_late = [builder.load(address(0, late, each), align=size) for each in range(LATE)]
            early = [builder.load(address(0, before, each), align=size) for each in range(1 - delays, LATE)]
            for delay in range(delays):
                into = address(1, ir.Constant(late.type, 0), delay)
                total = builder.load(into, align=size)
                for each, own in enumerate(of_late):
                    product = builder.fmul(own, early[each + delays - 1 - delay], flags=FUSED)
                    total = builder.fadd(total, product, flags=FUSED)
                builder.store(total, into, align=size)
            return context.get_dummy_value()

        return types.void(frames, found, types.UniTuple(types.intp, 3)), generate

    return intrinsic(step)


EIGHT, FOUR, ONE = _step(8), _step(4), _step(1)


@njit(nogil=True, cache=True)
def lag_products(frames: np.ndarray, first: int, window: int, found: np.ndarray) -> None:
    """Add to `found` (delay, pixel) what `lag_products.of_pixels` gives."""
    done, wide = window + (frames.shape[0] - window) // LATE * LATE, frames.shape[1] // WIDE * WIDE
    for late in range(window, done, LATE):
        delay = first
        while delay + 8 <= window + 1:
            for pixel in range(0, wide, WIDE):
                EIGHT(frames, found[delay - first :], (late, delay, pixel))
            delay += 8
        while delay + 4 <= window + 1:
            for pixel in range(0, wide, WIDE):
                FOUR(frames, found[delay - first :], (late, delay, pixel))
            delay += 4
        while delay <= window:
            for pixel in range(0, wide, WIDE):
                ONE(frames, found[delay - first :], (late, delay, pixel))
            delay += 1
    for late in range(window, frames.shape[0]):
        for delay in range(first, window + 1):
            early, into = frames[late - delay], found[delay - first]
            for pixel in range(wide if late < done else 0, frames.shape[1]):
                into[pixel] += frames[late, pixel] * early[pixel]
