"""The escalation steps: what is tried, one step after another, on bins whose chains do not converge.

A bin whose posterior is well covered by its importance sample (see `importance_weights`) has a step of its own. There
the independence proposals do most of the work: trees are short, transitions are many, and starting again would gain
nothing. All other bins begin at `FIRST`. At each further step the preconditioner, the starting points and the
independence proposals are computed again from the draws so far, none of which are kept.

The index of a step is hashed into the random keys of its chains.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_TREE_DEPTH, SHORT_TREE_DEPTH, SHORTEST_TREE_DEPTH = 6, 4, 2


class Step(NamedTuple):
    """One step: the largest depth of trees; the least mean acceptance rate that the step size adapts to, so that later
    steps move more carefully; the transitions per chain after which the step ends; and whether it is the last one."""

    name: str
    tree_depth: int
    least_acceptance: float
    transitions: int
    last: bool = False


STEPS = (
    Step("first attempt", MAX_TREE_DEPTH, 0.0, 400),
    Step("proposals fitted to draws", SHORT_TREE_DEPTH, 0.9, 800),
    Step("fitted again", SHORT_TREE_DEPTH, 0.9, 800),
    Step("smaller steps", SHORT_TREE_DEPTH, 0.95, 1_600),
    Step("smaller steps, fitted again", SHORT_TREE_DEPTH, 0.95, 1_600),
    Step("smallest steps, long chains", SHORT_TREE_DEPTH, 0.98, 8_000, last=True),
    Step("proposals fitted to the importance sample", SHORTEST_TREE_DEPTH, 0.98, 32_000, last=True),
)
FIRST, IMPORTANCE_SAMPLED = 0, 6

# Where the potential is an approximation, chains stay long at points that it underrates, whatever the step. Their draws
# are soon left to walkers, which need no approximation (`theory_draws`).
SOON_LEFT = (STEPS[FIRST], *(step._replace(transitions=500, last=True) for step in STEPS[1:]))
