"""Decides which task takes which place of the cluster. Pure.

A task that names its index gets that place at once. The others wait until the scheduler has run
for `GRACE_S`: it may have replaced one that died, and the tasks that this one had given places to
name theirs within a second. They wait less long if the tasks that have come fill the whole cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfps.cluster.address import split_address
from tfps.cluster.validation import JOB_ORDER
from tfps.scheduler.registration import SERVING_ROLES, Registration
from tfps.scheduler.task_place import PlaceState, TaskPlace

GRACE_S = 10.0
SHOWN_NAMES = 8


@dataclass(frozen=True)
class Refusal:
    """A task that gets no place, and the reason.

    Args:
        number: the number of its connection.
        reason: what was received, what was expected, and the remedy.
    """

    number: int
    reason: str


@dataclass(frozen=True)
class Places:
    """The places of a cluster, and the tasks that wait for one.

    Each method returns the places that follow, with the tasks refused on the way.

    Args:
        places: of the chief, the workers and the servers, and of the evaluators that have come.
        started_s: when the scheduler was started.
        alive: the tasks (role, index) that the chief holds alive, according to its probes; None
            before its first word.
        silent: the numbers of the tasks that have said nothing for long.
        waiting: the tasks without a place, in the order in which they came.
        is_complete: whether all places were held at one time, so that the tasks know the cluster.
        has_returns: whether a task has come back that had its place from an earlier scheduler.
        refusals: the tasks that the last call refused.

    Example:

    >>> places = Places.of_cluster(workers=1, servers=1, started_s=0.0)
    >>> for number, role in enumerate(["chief", None, None]):
    ...     task = Registration(role=role, index=None, address=f"a:{number + 1}", number=number)
    ...     places = places.register(task, now_s=1.0)
    >>> [str(place) for place in places.places if place.is_held]
    ['chief 0 at a:1', 'worker 0 at a:3', 'ps 0 at a:2']
    """

    places: tuple[TaskPlace, ...]
    started_s: float
    alive: frozenset[tuple[str, int]] | None = None
    silent: frozenset[int] = frozenset()
    waiting: tuple[Registration, ...] = ()
    is_complete: bool = False
    has_returns: bool = False
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def of_cluster(cls, *, workers: int, servers: int, started_s: float) -> Places:
        """Return the places of a cluster that no task has come to yet."""
        counts = {"chief": 1, "worker": workers, "ps": servers}
        places = [TaskPlace(role, index) for role in JOB_ORDER for index in range(counts[role])]
        return cls(tuple(places), started_s)

    def register(self, task: Registration, *, now_s: float) -> Places:
        """Give a task a place, let it wait, or refuse it.

        Args:
            task: the task; its number is new.
            now_s: the present time.
        """
        before = replace(self, refusals=())
        for place in self.places if task.is_return else ():
            is_own = (place.role, place.index) == (task.role, task.index)
            if is_own and place.is_held and place.holder and place.holder.address == task.address:
                # It has lost its connection before the scheduler has noticed.
                before = before._free_place_of(place.holder.number, now_s=now_s)
        problem = before._address_problem(task)
        if problem:
            return before._refuse({task.number: problem})
        if task.role == "evaluator":
            return before._add_evaluator(task, now_s=now_s)
        if problem := before._index_problem(task):
            return before._refuse({task.number: problem})
        has_returns = self.has_returns or task.is_return
        changed = replace(before, has_returns=has_returns, waiting=(*before.waiting, task))
        return changed.give_places(now_s=now_s)

    def end(self, number: int, *, now_s: float) -> Places:
        """Free the place of a task whose connection has ended."""
        return self._free_place_of(number, now_s=now_s).give_places(now_s=now_s)

    def record_alive_tasks(
        self, number: int, alive: Sequence[tuple[str, int]], *, now_s: float
    ) -> Places:
        """Take over the chief's word about which tasks live, whose places are not free.

        Args:
            number: the number of the connection that the word came from.
            alive: the tasks (role, index) that it holds alive.
            now_s: the present time.
        """
        changed = replace(self, alive=frozenset(alive)) if self.is_chief(number) else self
        return changed.give_places(now_s=now_s)

    def record_silence(self, numbers: Iterable[int], *, now_s: float) -> Places:
        """Take over which tasks are silent; the places of those that the chief has lost are free.

        A connection of a machine that is off, or of a task that hangs, may stay open for long.

        Args:
            numbers: the numbers of the tasks.
            now_s: the present time.
        """
        changed = replace(self, silent=frozenset(numbers))
        for place in self.places:
            if place.holder and changed._is_silent(place) and changed._is_lost(place):
                changed = changed._free_place_of(place.holder.number, now_s=now_s)
        return changed.give_places(now_s=now_s)

    def restore_cluster(self, jobs: Mapping[str, Sequence[str]], *, now_s: float) -> Places:
        """Take over the cluster of an earlier scheduler, which a task knows that has come back.

        Tasks that do not come back count as lost, so that another may take their place.

        Args:
            jobs: role -> addresses; ignored if this scheduler is for another number of tasks.
            now_s: the present time.
        """
        counts = Counter(place.role for place in self.places if place.role in JOB_ORDER)
        if self.is_complete or {role: len(jobs.get(role, ())) for role in counts} != counts:
            return replace(self, refusals=())

        def restore(place: TaskPlace) -> TaskPlace:
            if place.holder is not None:
                return place
            address = jobs[place.role][place.index]
            task = Registration(
                role=place.role, index=place.index, address=address, host=split_address(address)[0]
            )
            return replace(place, state=PlaceState.LOST, holder=task, since_s=now_s)

        places = tuple(restore(place) for place in self.places)
        return replace(self, places=places, is_complete=True).give_places(now_s=now_s)

    def give_places(self, *, now_s: float) -> Places:
        """Give places to waiting tasks for which the time has come; refuse those too many.

        Args:
            now_s: the present time.
        """
        changed = replace(self, refusals=())
        for task in self.waiting:
            if task.index is not None:
                changed = changed._give(task, now_s=now_s)
        changed = changed._refuse(changed._find_surplus_tasks())
        fits = len(changed.waiting) == len(changed._list_open()) and not changed.has_returns
        if fits or now_s >= self.started_s + GRACE_S:
            for task in changed.waiting:
                if task.role is not None:
                    changed = changed._give(task, now_s=now_s)
            # Until then one with a role may still come, for which these would have to make room.
            if changed.is_complete or len(changed.waiting) == len(
                changed._list_open(SERVING_ROLES)
            ):
                for task in changed.waiting:
                    changed = changed._give(task, now_s=now_s)
        return replace(changed, is_complete=changed.is_complete or changed.is_full)

    @property
    def is_full(self) -> bool:
        """Whether all places of the cluster are held now."""
        return not self._list_open()

    def is_chief(self, number: int) -> bool:
        """Return whether a connection is that of the chief."""
        chief = self.places[0]
        return chief.is_held and chief.holder is not None and chief.holder.number == number

    def knows_end(self, number: int) -> bool:
        """Return whether a task's word about the job's end counts: any, once the chief is gone."""
        holders = [place for place in self.places if place.is_held and place.role in JOB_ORDER]
        return self.is_chief(number) or (
            not self.places[0].is_held
            and any(place.holder and place.holder.number == number for place in holders)
        )

    def describe_missing(self) -> str:
        """Return the places without a task as text, and how many tasks wait to get one."""
        names = [
            f"{place} (silent)" if place.is_held else place.name
            for place in self._list_open(or_silent=True)
        ]
        count = f" (tasks that have come and wait for a place: {len(self.waiting)})"
        if len(names) > SHOWN_NAMES:
            names[SHOWN_NAMES:] = [f"{len(names) - SHOWN_NAMES} more"]
        return ", ".join(names) + (count if self.waiting else "")

    def jobs(self) -> dict[str, list[str]]:
        """Return the value of ``cluster`` in `TF_CONFIG`; all places must have had a task."""
        return {
            role: [
                place.holder.address for place in self.places if place.role == role and place.holder
            ]
            for role in JOB_ORDER
        }

    def _free_place_of(self, number: int, *, now_s: float) -> Places:
        places = [
            replace(place, state=PlaceState.LOST, since_s=now_s)
            if place.is_held and place.holder is not None and place.holder.number == number
            else place
            for place in self.places
        ]
        waiting = tuple(task for task in self.waiting if task.number != number)
        alive = None if self.is_chief(number) else self.alive
        return replace(self, places=tuple(places), waiting=waiting, alive=alive)

    def _address_problem(self, task: Registration) -> str | None:
        if task.role == "evaluator":
            return None

        def is_other(place: TaskPlace) -> bool:
            if place.is_held and not self._is_silent(place):
                return True
            # A lost task's address is still that of its place, which this one may not get.
            may_be_own = task.role in (None, place.role) and task.index in (None, place.index)
            return self.is_complete and not may_be_own

        others = [
            (place.name, place.holder)
            for place in self.places
            if place.role != "evaluator" and place.holder is not None and is_other(place)
        ]
        for name, other in (*others, *((each.role or "a task", each) for each in self.waiting)):
            if task.address.lower() == other.address.lower():
                return (
                    f"address: received {task.address}, the address of {name}; give each task its "
                    "own (--address)"
                )
            if task.is_local != other.is_local:
                return _local_text(task, name, other)
        return None

    def _index_problem(self, task: Registration) -> str | None:
        if task.index is None:
            return None
        places = [place for place in self.places if place.role == task.role]
        if task.index >= len(places):
            expected = f"at most {len(places) - 1}, the last {task.role} of this cluster"
            return _index_text(task.index, expected)
        place = places[task.index]
        if place.is_held and not self._is_silent(place):
            return _index_text(task.index, f"the index of a free place; {place} is alive")
        return None

    def _find_surplus_tasks(self) -> dict[int, str]:
        """Return the waiting tasks for which no place is left, the latest ones, with the reason."""
        left = Counter(place.role for place in self._list_open(or_silent=True))
        serving = sum(left[role] for role in SERVING_ROLES)
        surplus = {}
        for task in self.waiting:
            is_serving = task.role != "chief"
            if problem := self._index_problem(task):
                surplus[task.number] = problem
            elif (task.role is None or left[task.role] > 0) and (serving > 0 or not is_serving):
                left[task.role or ""] -= 1
                serving -= is_serving
            else:
                surplus[task.number] = self._surplus_text(task)
        return surplus

    def _surplus_text(self, task: Registration) -> str:
        roles = (task.role,) if task.role else SERVING_ROLES
        places = [place for place in self.places if place.role in roles]
        taken = ", ".join(str(place) for place in places[:4]) + (", ..." if len(places) > 4 else "")
        kinds = " and ".join(
            f"{[each.role for each in places].count(role)} {role}" for role in roles
        )
        return (
            f"role: received one more {' or '.join(roles)} at {task.address}, expected {kinds} "
            f"({taken}); stop this task, or start the scheduler for more tasks"
        )

    def _add_evaluator(self, task: Registration, *, now_s: float) -> Places:
        others = {
            place.index for place in self.places if place.role == "evaluator" and place.is_held
        }
        if task.index in others:
            expected = f"another index; evaluator {task.index} is alive"
            return self._refuse({task.number: _index_text(task.index, expected)})
        free = next(index for index in range(len(others) + 1) if index not in others)
        task = replace(task, index=free if task.index is None else task.index)
        assert task.index is not None
        place = TaskPlace("evaluator", task.index)
        kept = [each for each in self.places if each.name != place.name]
        return replace(self, places=(*kept, place))._give(task, now_s=now_s)

    def _is_silent(self, place: TaskPlace) -> bool:
        return place.is_held and place.holder is not None and place.holder.number in self.silent

    def _is_lost(self, place: TaskPlace) -> bool:
        """Return whether the chief does not hold a silent task alive, or there is no chief."""
        if not self.is_complete:
            return True
        is_judged = self.alive is not None or not self.places[0].is_held
        return place.role != "chief" and is_judged and not self._is_alive(place)

    def _is_alive(self, place: TaskPlace) -> bool:
        return (place.role, place.index) in (self.alive or ())

    def _list_open(
        self, roles: Sequence[str] = JOB_ORDER, *, or_silent: bool = False
    ) -> list[TaskPlace]:
        """Return the places without a task, also of tasks that the chief holds alive."""
        return [
            place
            for place in self.places
            if place.role in roles
            if not place.is_held or (or_silent and self._is_silent(place))
        ]

    def _choose(self, task: Registration) -> TaskPlace | None:
        """Return the free place last held from the task's host, else one never held, else any."""
        roles = (task.role,) if task.role else SERVING_ROLES

        def rank(place: TaskPlace) -> tuple[bool, bool, int, bool, int]:
            is_same = place.holder is not None and place.holder.address == task.address
            is_other = not place.was_lost_on(task.host)
            role = roles.index(place.role)
            return not is_same, is_other, role, place.holder is not None, place.index

        free = [
            place
            for place in self._list_open(roles)
            if task.index in (None, place.index)
            if place.is_free_for(task, is_alive=self._is_alive(place))
        ]
        return min(free, key=rank, default=None)

    def _give(self, task: Registration, *, now_s: float) -> Places:
        """Give a task the place that suits it; it goes on waiting if there is none."""
        place = self._choose(task)
        if place is None:
            return self
        given = replace(place, state=PlaceState.HELD, holder=task, since_s=now_s)
        waiting = tuple(each for each in self.waiting if each.number != task.number)
        return replace(
            self,
            places=tuple(given if each == place else each for each in self.places),
            waiting=waiting,
        )

    def _refuse(self, reasons: dict[int, str]) -> Places:
        """Take tasks out, and add the reasons to the refusals."""

        def is_refused(place: TaskPlace) -> bool:
            return place.is_held and place.holder is not None and place.holder.number in reasons

        return replace(
            self,
            places=tuple(
                TaskPlace(place.role, place.index) if is_refused(place) else place
                for place in self.places
            ),
            waiting=tuple(task for task in self.waiting if task.number not in reasons),
            refusals=(*self.refusals, *(Refusal(*each) for each in reasons.items())),
        )


def _index_text(index: int | None, expected: str) -> str:
    return (
        f"index: received {index}, expected {expected}. Correct --index (TFPS_INDEX), or leave it "
        "out for any free place"
    )


def _local_text(task: Registration, name: str, other: Registration) -> str:
    tasks = "this task" if task.is_local else "all tasks, those on the scheduler's machine too,"
    return (
        f"address: received {task.address}, while {name} is at {other.address}: a loopback address "
        f"is not reached from other machines; start {tasks} with the network address of the "
        "scheduler (--scheduler), or with --address"
    )
