"""Slots: which are taken first, how many groups of chains are advanced, and what moving chains leaves as it is."""

import numpy as np
import pytest

import bayesfit
from bayesfit.compute import hardware
from bayesfit.compute.devices import gather, place
from bayesfit.sample import scheduler, slots

CHAINS, DRAWS = 4, 60


@pytest.fixture
def places(monkeypatch):
    """The slots of two devices of 32 places, in groups of 8, without programs."""
    monkeypatch.setattr(hardware, "CPU_LANES", 32)
    without_programs(monkeypatch)
    return slots.Slots(None, np.arange(64.0), 2, CHAINS)


def without_programs(monkeypatch):
    """Chains that have one number as their input and as their state."""
    monkeypatch.setattr(slots, "advancing", lambda target, layouts: Nothing())
    monkeypatch.setattr(slots, "layouts_for", lambda target, chains: slots.Layouts(chains, chains))


class Nothing:
    """A program that is never called."""

    def start(self, *arguments):
        return self

    def shapes(self, *arguments):
        return None, type("Left", (), {"values": {}})


def test_the_first_groups_of_both_devices_are_taken_first(places):
    assert places.order == [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


@pytest.mark.parametrize(
    ("busy", "groups"), [([], [0, 0]), ([0, 1], [1, 0]), ([1, 2], [2, 0]), ([7], [4, 0]), ([0, 9, 13], [1, 3])]
)
def test_groups_up_to_the_last_busy_slot_are_advanced(places, busy, groups):
    assert places.groups(busy).tolist() == groups


def test_chains_that_cross_from_one_group_to_the_next_take_both(monkeypatch):
    without_programs(monkeypatch)
    found = slots.Slots(None, np.arange(64.0), 1, 3)
    assert [found.groups([slot]).tolist() for slot in range(5)] == [[1], [1], [2], [2], [2]]


def test_moved_chains_take_all_that_they_have_along(places):
    places.fresh[places.of[13]] = True
    places.states = place({"float64": 100.0 + np.arange(64.0)[:, None]}, 2)
    places.move([13], [2])
    (inputs,), (states,) = places.host.values(), gather(places.states).values()
    assert inputs[places.of[2]].tolist() == inputs[places.of[13]].tolist() == [[52], [53], [54], [55]]
    assert states[places.of[2]].tolist() == states[places.of[13]].tolist() == [[152], [153], [154], [155]]
    assert places.fresh[places.of[2]].all()


def test_bits_do_not_depend_on_moves(monkeypatch):
    """Of nine bins with different numbers of draws to make, those that are left move up, and each has the draws that it
    has alone."""
    data, _ = bayesfit.simulate(bins=9, delays=24, seed=4, dead_bin=8)
    how = {"noise": "scaled", "chains": CHAINS, "draws": DRAWS, "target_ess": 100.0}
    moves, move = [], slots.Slots.move
    monkeypatch.setattr(slots.Slots, "move", lambda self, *where: (moves.append(where), move(self, *where)))
    monkeypatch.setattr(scheduler, "STEPS", (scheduler.STEPS[0]._replace(transitions=4000), *scheduler.STEPS[1:]))
    whole = bayesfit.fit(data, "single_exponential", **how)
    assert moves
    thin = whole["diagnostics"].thin.values
    assert len(set(thin.tolist())) > 1
    for bin in (0, int(np.nanargmax(thin[:8]))):
        alone = bayesfit.fit(data.isel(q_bin=[bin]), "single_exponential", **how)
        assert alone.posterior["rate"].values.tobytes() == whole.posterior["rate"].values[..., [bin]].tobytes()
