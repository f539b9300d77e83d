"""Places of tasks: assignment, return, registration anew, and the first 10 s of a scheduler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import check_message
from tfps.scheduler.places import GRACE_S, Places
from tfps.scheduler.registration import SERVING_ROLES, Registration
from tfps.scheduler.task_place import PlaceState

LATER_S = GRACE_S + 1


def _places(*, workers: int = 2, servers: int = 1) -> Places:
    return Places.of_cluster(workers=workers, servers=servers, started_s=0.0)


def _task(
    number: int,
    role: str | None = None,
    index: int | None = None,
    *,
    host: str = "10.0.0.1",
    is_return: bool = False,
) -> Registration:
    address = "" if role == "evaluator" else f"{host}:{1000 + number}"
    return Registration(
        role=role, index=index, address=address, is_return=is_return, host=host, number=number
    )


def _come(places: Places, *tasks: Registration, now_s: float = 1.0) -> Places:
    for task in tasks:
        places = places.register(task, now_s=now_s)
        assert not places.refusals
    return places


def _refused(places: Places, task: Registration, *, now_s: float = 1.0) -> str:
    changed = places.register(task, now_s=now_s)
    (refusal,) = changed.refusals
    assert refusal.number == task.number
    assert replace(changed, refusals=()) == replace(places, refusals=()), "the job goes on"
    return refusal.reason


def _holders(places: Places) -> dict[str, int]:
    return {
        place.name: place.holder.number for place in places.places if place.is_held and place.holder
    }


def _full() -> Places:
    """Two workers, on hosts of their own."""
    tasks = [_task(0, "chief"), _task(1, "ps"), _task(2, "worker"), _task(3, "worker", host="b")]
    places = _come(_places(), *tasks)
    assert places.is_complete
    return places


def test_without_a_role_servers_come_first() -> None:
    places = _come(_places(), _task(3), _task(2), _task(1))
    assert _holders(places) == {}
    assert places.describe_missing() == (
        "chief 0, worker 0, worker 1, ps 0 (tasks that have come and wait for a place: 3)"
    )
    places = _come(places, _task(0, "chief"))
    assert _holders(places) == {"chief 0": 0, "ps 0": 3, "worker 0": 2, "worker 1": 1}
    assert places.is_complete


def test_tasks_without_a_role_make_room_for_one_that_has_it() -> None:
    places = _come(_places(), _task(1), _task(2), _task(3, "ps"), now_s=LATER_S)
    places = _come(places, _task(0, "chief"), now_s=LATER_S)
    assert _holders(places) == {"chief 0": 0, "ps 0": 3, "worker 0": 1, "worker 1": 2}


def test_a_task_that_names_its_index_gets_it_at_once() -> None:
    assert _holders(_come(_places(), _task(1, "worker", 1))) == {"worker 1": 1}


def test_a_task_returns_to_the_place_last_held_from_its_host() -> None:
    places = _full().end(2, now_s=2.0).end(3, now_s=3.0)
    assert places.describe_missing() == "worker 0, worker 1"
    assert _holders(_come(places, _task(4, "worker", host="b"), now_s=LATER_S))["worker 1"] == 4
    assert _holders(_come(places, _task(4, host="b"), now_s=LATER_S))["worker 1"] == 4
    assert _holders(_come(places, _task(4, host="c"), now_s=LATER_S))["worker 0"] == 4
    assert _holders(_come(places, _task(4, "worker", 0, host="b"), now_s=4.0))["worker 0"] == 4


ALIVE = [("worker", 0), ("worker", 1), ("ps", 0)]


@pytest.mark.parametrize("index", [None, 1])
def test_a_place_whose_task_the_chief_holds_alive_is_not_free(index: int | None) -> None:
    """A connection that ends says little: the chief may still reach the task."""
    cut = _full().record_alive_tasks(0, ALIVE, now_s=20.0).end(3, now_s=21.0)
    places = _come(cut, _task(4, "worker", index, host="c"), now_s=22.0)
    assert _holders(places) == _holders(cut), "it waits"
    assert places.describe_missing() == "worker 1 (tasks that have come and wait for a place: 1)"
    again = _task(3, "worker", 1, host="b", is_return=True)
    back = places.register(replace(again, number=5), now_s=23.0)
    assert _holders(back)["worker 1"] == 5
    assert [refusal.number for refusal in back.refusals] == [4]
    assert _holders(places.record_alive_tasks(0, ALIVE[:1], now_s=23.0))["worker 1"] == 4, (
        "the chief lost it"
    )
    assert _holders(places.end(0, now_s=23.0))["worker 1"] == 4, "no chief, no word"
    assert _holders(places.record_alive_tasks(1, ALIVE[:1], now_s=23.0)) == _holders(places), (
        "no chief"
    )
    _refused(places.record_alive_tasks(0, (), now_s=23.0), again, now_s=24.0)


@pytest.mark.parametrize("index", [None, 0])
def test_a_silent_task_keeps_its_place_until_the_chief_has_lost_it(index: int | None) -> None:
    """The connection of a task that hangs, or of a machine that is off, stays open for long."""
    newcomer = _task(4, "worker", index)
    full = _full().record_alive_tasks(0, ALIVE, now_s=20.0)
    assert "worker 0" in _refused(full, newcomer, now_s=20.0), "it lives"
    silent = full.record_silence([2], now_s=40.0)
    waiting = _come(silent, newcomer, now_s=40.0)
    assert _holders(waiting) == _holders(full), "it waits"
    assert waiting.describe_missing() == (
        "worker 0 at 10.0.0.1:1002 (silent) (tasks that have come and wait for a place: 1)"
    )
    spoken = waiting.record_silence([], now_s=41.0)
    assert [refusal.number for refusal in spoken.refusals] == [4]
    lost = waiting.record_alive_tasks(0, ALIVE[1:], now_s=41.0)
    assert _holders(lost) == _holders(full), "a task that speaks keeps its place whatever happens"
    assert _holders(lost.record_silence([2], now_s=41.0)) == _holders(full) | {"worker 0": 4}
    assert _holders(lost.record_silence([3], now_s=41.0)) == _holders(full)


def test_silence_alone_frees_no_place_before_the_chief_has_judged() -> None:
    """Tasks that import TensorFlow are silent for a while."""
    full = _full()
    assert _holders(full.record_silence([1, 2], now_s=40.0)) == _holders(full)
    assert _holders(full.record_silence([0], now_s=40.0)) == _holders(full), "the judge itself"
    without = full.end(0, now_s=40.0).record_silence([2], now_s=40.0)
    assert without.describe_missing() == "chief 0, worker 0"
    early = _come(_places(), _task(0, "worker", 0), _task(1, "worker", 1))
    assert _holders(early.record_silence([0], now_s=40.0)) == {"worker 1": 1}


def test_the_next_task_at_an_address_is_the_same() -> None:
    """No two tasks can listen at one address, so the chief's word is of the one that ended."""
    places = _full().record_alive_tasks(0, ALIVE, now_s=20.0).end(2, now_s=21.0).end(3, now_s=21.0)
    assert places.places[2].holder is not None
    again = _task(4, "worker", host="b")
    same = replace(again, address=places.places[2].holder.address)
    assert _holders(_come(places, same, now_s=22.0))["worker 1"] == 4
    server = replace(same, role="ps")
    reason = places.end(1, now_s=22.0).register(server, now_s=22.0).refusals[0].reason
    check_message(reason, "address", received=same.address, remedy="worker 1")


def test_a_new_scheduler_takes_over_the_cluster_from_a_task_that_returns() -> None:
    jobs = _full().jobs()
    empty = _come(_places(), _task(9, "worker"), now_s=0.5)
    places = _come(empty, _task(1, "ps", 0, is_return=True))
    assert places.restore_cluster({**jobs, "ps": []}, now_s=1.0) == places, "of another job"
    adopted = places.restore_cluster(jobs, now_s=1.0)
    assert adopted.is_complete
    assert adopted.jobs() == {**jobs, "ps": ["10.0.0.1:1001"]}
    assert _holders(adopted) == {"ps 0": 1}
    adopted = _come(adopted, _task(0, "chief", 0, is_return=True), now_s=1.5)
    adopted = adopted.record_alive_tasks(0, [("worker", 0), ("ps", 0)], now_s=1.5)
    changed = adopted.give_places(now_s=LATER_S)
    assert _holders(changed)["worker 1"] == 9, "the chief holds the other one alive"
    assert _holders(_come(changed, _task(2, "worker", 0, is_return=True)))["worker 0"] == 2
    assert changed.restore_cluster(jobs, now_s=LATER_S) == changed


def test_a_newcomer_takes_no_place_of_a_task_that_returns() -> None:
    """A scheduler that has just been started knows nothing of the tasks that live."""
    places = _come(_places(), _task(1, "worker", 0, is_return=True), _task(9, "worker"))
    places = _come(places, _task(0, "chief", 0, is_return=True), _task(2, "ps", 0, is_return=True))
    assert places.describe_missing() == "worker 1 (tasks that have come and wait for a place: 1)"
    assert _holders(places.give_places(now_s=GRACE_S))["worker 1"] == 9
    returned = places.register(_task(3, "worker", 1, is_return=True), now_s=2.0)
    assert _holders(returned)["worker 1"] == 3
    assert [refusal.number for refusal in returned.refusals] == [9]
    assert returned.is_complete


def test_a_task_registers_anew_before_the_end_of_its_old_connection_is_known() -> None:
    full = _full()
    again = replace(_task(2, "worker", 0, is_return=True), number=9)
    places = _come(full, again, now_s=20.0)
    assert _holders(places) == _holders(full) | {"worker 0": 9}
    assert _holders(places.end(2, now_s=30.0)) == _holders(places)


def test_more_tasks_than_places_and_wrong_indices() -> None:
    places = _full()
    check_message(
        _refused(places, _task(4, "chief")), "role", received="chief", remedy="10.0.0.1:1000"
    )
    _refused(places, _task(4))
    check_message(
        _refused(places, _task(4, "worker", 2)), "index", received="2", remedy="at most 1"
    )
    check_message(_refused(places, _task(4, "ps", 0)), "index", received="0", remedy="is alive")
    check_message(
        _refused(places, replace(_task(4), address="10.0.0.1:1002")),
        "address",
        received="10.0.0.1:1002",
        remedy="worker 0",
    )


def test_a_newcomer_is_refused_if_its_address_is_of_another_network() -> None:
    """One wrong newcomer ends no others."""
    local = [_task(0, "chief", host="127.0.0.1"), _task(1, "ps", host="localhost")]
    reason = _refused(_come(_places(), *local), _task(2, "worker"))
    check_message(reason, "address", received="10.0.0.1:1002", remedy="start all tasks")
    assert "chief is at 127.0.0.1:1000" in reason
    reason = _refused(_come(_places(), _task(2, "worker")), local[0])
    check_message(reason, "address", received="127.0.0.1:1000", remedy="start this task")
    assert "127.0.0.1:1004" in _refused(_full().end(2, now_s=2.0), _task(4, host="127.0.0.1"))


def test_the_address_of_a_silent_task_may_be_that_of_its_replacement() -> None:
    """A machine that was switched off comes back with its fixed port."""
    full = _full().record_alive_tasks(0, ALIVE, now_s=20.0)
    again = replace(_task(4, "worker"), address="10.0.0.1:1002")
    assert "the address of worker 0" in _refused(full, again)
    assert not full.record_silence([2], now_s=40.0).register(again, now_s=40.0).refusals
    _refused(full.record_silence([2], now_s=40.0), replace(again, role="ps"))


def test_evaluators_are_as_many_as_come_and_not_waited_for() -> None:
    places = _come(_places(), _task(8, "evaluator"), _task(9, "evaluator"))
    assert _holders(places) == {"evaluator 0": 8, "evaluator 1": 9}
    places = places.end(8, now_s=2.0)
    assert "evaluator" not in places.describe_missing()
    assert _holders(_come(places, _task(10, "evaluator")))["evaluator 0"] == 10
    assert "index" in _refused(places, _task(10, "evaluator", 1))


ROLES = st.lists(st.sampled_from([None, "worker", "ps", "chief"]), max_size=8)


@given(ROLES, st.integers(1, 3), st.integers(1, 2), st.sampled_from([1.0, LATER_S]))
def test_tasks_that_fit_complete_the_cluster_in_any_order(
    roles: list[str | None], workers: int, servers: int, now_s: float
) -> None:
    """A task is refused exactly if no place is left, and a full cluster is complete."""
    places = _places(workers=workers, servers=servers)
    room = {"chief": 1, "worker": workers, "ps": servers}
    taken: Counter[str | None] = Counter()
    for number, role in enumerate(roles):
        places = places.register(_task(number, role), now_s=now_s)
        serving = sum(count for kind, count in taken.items() if kind != "chief")
        fits = taken["chief"] < 1 if role == "chief" else serving < workers + servers
        fits = fits and (role is None or taken[role] < room[role])
        assert [refusal.number for refusal in places.refusals] == ([] if fits else [number])
        taken[role] += fits
    assert places.is_complete == (sum(taken.values()) == 1 + workers + servers)
    if places.is_complete:
        held = {(place.role, place.index): place.holder for place in places.places}
        assert all(task and task.role in (None, role) for (role, _), task in held.items())
        assert not places.waiting


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "end", "wait", "silence", "word"]),
        st.sampled_from([None, *SERVING_ROLES, "chief"]),
        st.sampled_from([None, 0, 1]),
        st.booleans(),
        st.integers(0, 9),
    ),
    max_size=30,
)


@given(EVENTS, st.booleans())
def test_a_task_keeps_its_place_until_it_is_lost(
    events: list[tuple[str, str | None, int | None, bool, int]], is_full: bool
) -> None:
    places, now_s = _full() if is_full else _places(), 0.0
    came = set(_holders(places).values())
    gone: set[int] = set()
    for number, (event, role, index, is_return, chosen) in enumerate(events, len(came)):
        before = _holders(places)
        now_s += 1.0
        if event == "come":
            named = index if role else None
            task = _task(number, role, named, host=f"h{chosen % 2}", is_return=is_return)
            places = places.register(task, now_s=now_s)
            came.add(number)
        elif event == "end":
            places = places.end(chosen, now_s=now_s)
            gone |= {chosen} & came
        elif event == "silence":
            named_alive = places.alive
            places = places.record_silence(range(chosen), now_s=now_s)
            freed = {name: n for name, n in before.items() if n not in _holders(places).values()}
            assert all(n < chosen for n in freed.values()), "only a silent task loses its place"
            if places.is_complete:
                assert "chief 0" not in freed
                assert not {f"{role} {index}" for role, index in named_alive or ()} & freed.keys()
                assert not freed or named_alive is not None or "chief 0" not in before
            gone |= set(freed.values())
        elif event == "word":
            judge = before.get("chief 0", -1)
            places = places.record_alive_tasks(judge, ALIVE[: chosen % 4], now_s=now_s)
        else:
            places = places.give_places(now_s=now_s)
        gone |= {refusal.number for refusal in places.refusals}
        after = _holders(places)
        waiting = [task.number for task in places.waiting]
        assert all(
            after.get(name) == holder for name, holder in before.items() if holder not in gone
        )
        assert sorted([*after.values(), *waiting]) == sorted(came - gone), "each is in one place"
        if places.has_returns and now_s < GRACE_S:
            held = [place for place in places.places if place.is_held and place.name not in before]
            assert all(place.holder and place.holder.index is not None for place in held)


@given(EVENTS, st.sampled_from(["h0", "h1"]))
def test_a_task_that_names_its_lost_place_gets_it(
    events: list[tuple[str, str | None, int | None, bool, int]], host: str
) -> None:
    places = _full()
    for number, (_, _, _, _, chosen) in enumerate(events):
        places = places.end(chosen % 4, now_s=20.0 + number)
    for place in places.places:
        if place.state is PlaceState.LOST:
            task = _task(50, place.role, place.index, host=host, is_return=True)
            assert _holders(places.register(task, now_s=60.0))[place.name] == 50
