"""The escalation steps: what is tried, one step after another, on bins whose chains do not converge.

A bin whose posterior is well covered by its importance sample (see `importance_weights`) has a step of its own. There
the independence proposals do most of the work: trees are short, transitions are many, and starting again would gain
nothing. All other bins begin at `FIRST`. At each further step the preconditioner, the starting points and the
independence proposals are computed again from the draws so far, none of which are kept. The proposals are good then,
and trees are short again; only the last step tries longer ones.

The index of a step is hashed into the random keys of its chains.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    Step("proposals fitted to draws", SHORTEST_TREE_DEPTH, 0.9, 1_600),
    Step("fitted again", SHORTEST_TREE_DEPTH, 0.9, 1_600),
    Step("smaller steps", SHORTEST_TREE_DEPTH, 0.95, 3_200),
    Step("smaller steps, fitted again", SHORTEST_TREE_DEPTH, 0.95, 3_200),
    Step("smallest steps, long chains", SHORT_TREE_DEPTH, 0.98, 8_000, last=True),
    Step("proposals fitted to the importance sample", SHORTEST_TREE_DEPTH, 0.98, 32_000, last=True),
)
FIRST, IMPORTANCE_SAMPLED = 0, 6

# Where the potential is an approximation, chains stay long at points that it underrates, whatever the step, and each
# transition costs a correction. Their trees are longer, and their draws are soon left to walkers, which need no
# approximation (`theory_draws`).
SOON: dict[str, Any] = {"transitions": 500, "last": True}
SOON_LEFT = (
    STEPS[FIRST],
    *(step._replace(tree_depth=SHORT_TREE_DEPTH, **SOON) for step in STEPS[FIRST + 1 : IMPORTANCE_SAMPLED]),
    STEPS[IMPORTANCE_SAMPLED]._replace(**SOON),
)
