"""Processes in which JAX cannot run: those that were forked after it had started."""

from __future__ import annotations

import os

from jax._src import xla_bridge

from bayesfit.compute.errors import BayesfitError


class ProcessError(BayesfitError, RuntimeError):
    """This process cannot compute."""


_forked_too_late = False


def refuse_late_fork() -> None:
    """Refuse to compute in a process that was forked from one in which JAX had started: JAX's threads are not in it, so
    that it would wait for them for ever, or crash.

    Raises:
        ProcessError: says how to start processes instead.
    """
    if _forked_too_late:
        remedy = 'Start processes anew: multiprocessing.get_context("spawn"); or fork before the first fit'
        raise ProcessError("this process was forked after JAX had started, and JAX cannot run in it", remedy=remedy)


def _look() -> None:
    global _forked_too_late
    _forked_too_late = bool(xla_bridge.backends_are_initialized())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_look)
