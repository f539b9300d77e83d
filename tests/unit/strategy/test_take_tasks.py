"""The chief that gets the tasks: decided by their replies, and by how another chief replies."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

from tests.messages import check_message, raises
from tfps.cluster import ClusterSpec
from tfps.cluster.introduction import this_chief
from tfps.cluster.served_chief import ChiefIdentity, Introduction, Question, ServedChief
from tfps.cluster.task_call import UnknownFunction
from tfps.cluster.waiting import Task
from tfps.errors import ConfigError, TasksInUse
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.recovery.probing.probe import Observation
from tfps.strategy import take_tasks as module
from tfps.strategy.take_tasks import confirm_tasks, take_tasks

SPEC = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1", "w:2"), "ps": ("p:1",)})
TASKS = [*SPEC.tasks("ps"), *SPEC.tasks("worker")]
POLICY = ProbePolicy(misses=3)
VERSIONS = {"tfps": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.0", "python": "3.12.1"}
OTHER = ChiefIdentity("other", "d:1", "night", is_ready=True)


class FakeTasks:
    """Tasks that answer, and what becomes of a probe of another chief."""

    def __init__(self) -> None:
        self.versions = {task: dict(VERSIONS) for task in TASKS}
        self.tasks = {
            task: ServedChief(functools.partial(self.versions.__getitem__, task))
            for task in self.versions
        }
        self.silent = set[Task]()  # those that do not know the question
        self.older = True  # such a task is one of tfps
        self.chief = "replies"
        self.probes = 0

    def ask(
        self, tasks: Iterable[Task], question: Question, *, timeout_s: float
    ) -> dict[Task, Introduction | None]:
        return {
            task: None if task in self.silent else self.tasks[task].reply_to(question)
            for task in tasks
        }

    def observe(
        self, addresses: dict[tuple[str, int], str], *, deadline_s: float
    ) -> dict[tuple[str, int], Observation]:
        self.probes += 1
        replied, silent = self.chief == "replies", self.chief == "hangs"
        return dict.fromkeys(addresses, Observation(replied, silent, sent_s=0, judged_s=1))

    def call(self, task: Task, *_arguments: object, **_options: object) -> bytes:
        if not self.older:
            raise UnknownFunction(str(task))
        return b""

    def take(self) -> None:
        take_tasks(SPEC, job="", policy=POLICY, timeout_s=1)

    @property
    def served(self) -> list[str]:
        """The processes that the tasks serve."""
        question = Question(ChiefIdentity("a new chief"))
        served = [task.reply_to(question).serves for task in self.tasks.values()]
        return [chief.process if chief else "" for chief in served]


@pytest.fixture
def fake_tasks(monkeypatch: pytest.MonkeyPatch) -> FakeTasks:
    fake_tasks = FakeTasks()
    monkeypatch.setattr(module, "ask", fake_tasks.ask)
    monkeypatch.setattr(module, "observe_once", fake_tasks.observe)
    monkeypatch.setattr(module, "task_versions", lambda: VERSIONS)
    monkeypatch.setattr(module, "call_task", fake_tasks.call)
    monkeypatch.setattr(module, "accepts_connections", lambda _: fake_tasks.chief != "is gone")
    return fake_tasks


def test_tasks_of_nobody_are_taken_and_taken_again(fake_tasks: FakeTasks) -> None:
    own = this_chief().process
    fake_tasks.take()
    confirm_tasks(SPEC, job="", timeout_s=1)
    fake_tasks.take()  # the next strategy of this process
    assert (fake_tasks.served, fake_tasks.probes) == ([own] * 3, 0)


def test_all_other_versions_are_named_and_the_tasks_are_left(fake_tasks: FakeTasks) -> None:
    _, first, second = fake_tasks.tasks
    fake_tasks.versions[first] |= {"tfps": "0.1.0", "keras": "3.15.9"}
    fake_tasks.silent.add(second)
    with pytest.raises(ConfigError) as raised:
        fake_tasks.take()
    problems = raised.value.problems
    check_message(problems[0], "worker 0 at w:1", received="tfps 0.1.0 (here 0.2.0)")
    check_message(problems[1], "worker 1 at w:2", received="an older tfps", remedy="the same tfps")
    assert fake_tasks.served == [""] * 3


def test_a_plain_server_of_tensorflow_is_not_asked_for_versions(fake_tasks: FakeTasks) -> None:
    fake_tasks.silent.update(fake_tasks.tasks)
    fake_tasks.older = False
    fake_tasks.take()
    confirm_tasks(SPEC, job="", timeout_s=1)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_one_task_of_a_chief_that_lives_is_enough(fake_tasks: FakeTasks, index: int) -> None:
    task = list(fake_tasks.tasks)[index]
    fake_tasks.tasks[task].reply_to(Question(OTHER, takes=True))
    with raises(TasksInUse, "d:1", received="job night", remedy="TF_CONFIG"):
        fake_tasks.take()
    assert fake_tasks.served == ["other" if each == task else "" for each in fake_tasks.tasks]


@pytest.mark.parametrize(("what", "probes"), [("is gone", 1), ("hangs", POLICY.misses)])
def test_a_chief_that_is_gone_is_replaced(fake_tasks: FakeTasks, what: str, probes: int) -> None:
    fake_tasks.chief = what
    for task in fake_tasks.tasks.values():
        task.reply_to(Question(OTHER, takes=True))
    fake_tasks.take()
    assert set(fake_tasks.served) == {this_chief().process}
    assert fake_tasks.probes == 2 * probes  # for the first server, then for all others


def test_a_chief_that_starts_is_waited_for(
    fake_tasks: FakeTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next(iter(fake_tasks.tasks.values()))
    starting = ChiefIdentity("other", "d:1", "night")
    fake_tasks.chief = "is gone"  # its server does not listen yet
    first.reply_to(Question(starting, takes=True))
    waits = list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            fake_tasks.chief = "replies"
            first.reply_to(Question(OTHER, takes=True))

    monkeypatch.setattr("tfps.strategy.take_tasks.time.sleep", sleep)
    with pytest.raises(TasksInUse):
        fake_tasks.take()
    assert len(waits) == 3


def test_who_was_taken_for_gone_finds_it_out(fake_tasks: FakeTasks) -> None:
    fake_tasks.take()
    for task in fake_tasks.tasks.values():
        task.reply_to(Question(OTHER, takes=True, replaces=this_chief().process))
    with pytest.raises(TasksInUse):
        confirm_tasks(SPEC, job="", timeout_s=1)
    assert fake_tasks.served == ["other"] * 3
