"""When room is to be made in the memory map of a process."""

import pytest

from bayesfit.compute import memory_maps

LIMIT = 1000


@pytest.fixture
def take(tmp_path, monkeypatch):
    """Say how many pieces of memory are taken."""
    monkeypatch.setattr(memory_maps, "TAKEN", tmp_path / "maps")
    monkeypatch.setattr(memory_maps, "LIMIT", tmp_path / "limit")
    (tmp_path / "limit").write_text(f"{LIMIT}\n")
    monkeypatch.setattr(memory_maps, "PROGRAMS", set())
    return lambda count: (tmp_path / "maps").write_text("a piece\n" * count)


def test_pieces_are_scarce_beyond_half_of_the_limit(take):
    room = memory_maps.Room()
    take(500)
    assert not room.is_scarce()
    take(501)
    assert room.is_scarce()


def test_what_could_not_be_given_back_is_not_asked_for_at_once(take):
    """A process in which others hold most pieces would else throw away each program that it has just loaded."""
    room = memory_maps.Room()
    take(600)
    assert room.is_scarce()
    room.make(wanted=None)
    take(649)
    assert not room.is_scarce()
    take(650)
    assert room.is_scarce()


def test_what_others_give_back_counts(take):
    room = memory_maps.Room()
    take(900)
    room.make(wanted=None)
    take(480)
    assert not room.is_scarce()
    take(531)
    assert room.is_scarce()


def test_a_system_that_states_no_limit_has_room(take, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_maps, "LIMIT", tmp_path / "none")
    take(900)
    assert memory_maps.share() == 0.0
    assert not memory_maps.Room().is_scarce()


class Loaded:
    """Programs that were last called at a time."""

    def __init__(self, used):
        self.used, self.programs = used, {"of": "some"}

    def give_back(self):
        self.programs = {}


def test_the_half_that_was_not_used_for_longest_is_given_back(take, monkeypatch):
    four = [Loaded(used) for used in (3.0, 1.0, 4.0, 2.0)]
    monkeypatch.setattr(memory_maps, "PROGRAMS", {*four, wanted := Loaded(0.0)})
    take(600)
    memory_maps.Room().make(wanted)
    assert [bool(one.programs) for one in four] == [True, False, True, False]
    assert wanted.programs
