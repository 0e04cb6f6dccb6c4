"""Noise "photons": the programs that are compiled beforehand are those that walkers then call."""

import jax
import numpy as np
import pytest
from calibration import Setting

from bayesfit.sample import theory_programs, theory_tables
from bayesfit.sample.theory_clouds import Weighted
from bayesfit.sample.theory_walks import Walk

CHAINS = 4
FIXED = {
    "single_exponential": {"rate": 10.0},
    "double_exponential": {"contrast": 0.2},
    "cumulant": {},
}


@pytest.mark.parametrize("model", FIXED)
def test_programs_begun_are_those_called(monkeypatch, model):
    """Functions, with names, shapes and types of their arguments. Nothing is compiled: what programs return is random,
    of the right shapes."""
    begun, called, rng = set(), set(), np.random.default_rng(0)

    def signature(function, arguments):
        leaves, _ = jax.tree_util.tree_flatten_with_path(arguments)
        found = ((jax.tree_util.keystr(path), np.shape(leaf), np.asarray(leaf).dtype) for path, leaf in leaves)
        return function.__qualname__, tuple(found)

    def on_one_device(function, *arguments, identity):
        called.add(signature(function, arguments))
        shapes = jax.eval_shape(function, *arguments)
        return jax.tree.map(lambda shape: rng.uniform(0.1, 1.0, shape.shape).astype(shape.dtype), shapes)

    monkeypatch.setattr(theory_tables, "on_one_device", on_one_device)
    monkeypatch.setattr(
        theory_tables, "start_on_one_device", lambda function, *given, identity: begun.add(signature(function, given))
    )
    with jax.enable_x64(True):
        problem = Setting(model, "photons", fixed=FIXED[model]).problem()
        jumps = Weighted.equally(rng.standard_normal((400, len(problem.posterior.names)))).aimed()
        theory_programs.start_compiling(problem, jumps, CHAINS)
        walk = Walk(problem, jumps, rng)
        walk.start(CHAINS)
        walk.check_table(walk.on(1))
    assert {name for name, _ in begun} == {"of_mixture", "gains", "after_steps", "by_table"}
    assert begun <= called
