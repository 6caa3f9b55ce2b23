"""The referee of families finds what is undone too early, or not at all."""

from __future__ import annotations

import pytest

from benchmarks.soak.referees import History, RefereeError, structured


def work(history, name, **facts):
    with history.trying(name, **facts):
        pass


@pytest.fixture
def history():
    """An owner that has named a release, and has a child."""
    history = History()
    work(history, "owner")
    history.named("release", parent="owner")
    work(history, "child", parent="owner")
    return history


def undo(history):
    work(history, "release", parent="owner", undoes=True)


def test_a_release_runs_before_the_end_of_its_owner(history):
    undo(history)
    work(history, "inner", parent="release")
    work(history, "release", parent="owner", undoes=True)
    for name in ("release", "child", "inner", "owner"):
        history.ended(name, "done")
    assert structured(history).ended == 4


@pytest.mark.parametrize("name", ["owner", "child"])
def test_nothing_works_with_what_is_being_undone(history, name):
    undo(history)
    work(history, name, parent=None if name == "owner" else "owner")
    with pytest.raises(RefereeError, match=f"{name} is worked on after a release of owner has begun"):
        structured(history, whole=False)


def test_a_release_that_has_not_begun_is_found(history):
    history.ended("owner", "cancelled")
    with pytest.raises(RefereeError, match="release has not begun before the end of its owner"):
        structured(history, whole=False)


def test_what_is_kept_has_not_to_begin(history):
    history.ended("release", "kept")
    history.ended("owner", "cancelled")
    structured(history, whole=False)
