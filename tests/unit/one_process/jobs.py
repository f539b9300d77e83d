"""Jobs that have trained one program, which tests look at and then go on with by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, ClassVar, Generic, TypeVar

import tfps
from tests.unit.one_process.requests import Requests, ServerReply
from tests.unit.one_process.unit_steps import BATCH, Counters, counters, fit, schedule
from tfps.consistency.applied_window import key_of_function
from tfps.consistency.ledger import Status
from tfps.testing import InProcessCluster
from tfps.transport.message import Kind

STEPS = 8
WAITS_S, DEADLINE_S = 0.1, 30.0


class Job:
    """A model that has trained for some steps, and the requests of the program that did it.

    Args:
        strategy: of one process.
        calls: how many optimizer calls its step has.
        drop_above: of its optimizers; None: they are plain ones.

    Attributes:
        counts: the weights after training.
        examples: how many it has trained with.
        dropped: gradients that were.
    """

    asks: ClassVar[Kind]  # what servers of such a program are asked for, and of no other

    def __init__(
        self,
        strategy: tfps.ParameterServerStrategy,
        *,
        calls: int = 1,
        drop_above: int | None = None,
    ) -> None:
        self.strategy = strategy
        self.model: Counters = counters(strategy, calls=calls, drop_above=drop_above)
        before = strategy.stats()
        self.train()
        after = strategy.stats()
        self.counts = self.model.counts()
        self.examples = after.examples_seen - before.examples_seen
        self.dropped = after.gradients_dropped - before.gradients_dropped
        self.requests = Requests(strategy, has=self.asks)
        self.ask = self.requests.ask
        self.incarnations = [0, 0]

    def train(self) -> None:
        """Take the steps."""
        raise NotImplementedError

    def next_ticket(self) -> int:
        """The ticket of a push that names none."""
        return 0

    def weight(self, server: int) -> float:
        """The model's weight on a server."""
        return self.model.counts()[server]

    def begin_anew(self, worker: int) -> int:
        """The worker's next incarnation."""
        self.incarnations[worker] = self.requests.incarnation(worker)
        return self.incarnations[worker]

    def push(self, worker: int, **options: Any) -> ServerReply:
        options = {"gradient": 1.0, "step_examples": BATCH, **options}
        options.setdefault("ticket", self.next_ticket())
        incarnation = options.pop("incarnation", self.incarnations[worker])
        return self.ask(Kind.PUSH, worker=worker, incarnation=incarnation, **options)

    def end(self) -> None:
        for worker, incarnation in enumerate(self.incarnations):
            self.requests.evict(worker, incarnation)


class FitJob(Job):
    """A job of `fit`, whose workers join, push by ticket, and leave."""

    asks = Kind.JOIN

    def train(self) -> None:
        fit(self.model, steps=STEPS)

    def join(self, worker: int, *, servers: tuple[int, ...] = (0, 1)) -> ServerReply:
        """Enter anew on servers; return the reply of the first of them."""
        incarnation = self.begin_anew(worker)
        replies = [
            self.ask(Kind.JOIN, server=server, worker=worker, incarnation=incarnation)
            for server in servers
        ]
        assert all(reply.status is Status.OK for reply in replies)
        return replies[0]


class FunctionJob(Job):
    """A job of a scheduled function, whose workers take part with their first pull."""

    asks = Kind.PUSH

    def train(self) -> None:
        schedule(self.strategy, self.model, steps=STEPS)
        # The function's members have nothing more to run, and are evicted before others come.
        self.strategy.runtime.membership.evict_all()

    def next_ticket(self) -> int:
        """The number of the first push of another function."""
        return key_of_function(self.strategy.runtime.closure_numbers.get_number(None), 0)

    @functools.cached_property
    def _first_kind(self) -> Kind:
        kinds = self.requests.kinds(0)
        return Kind.ENTER_ROUND if Kind.ENTER_ROUND in kinds else Kind.PULL

    def begin(self, worker: int, **options: Any) -> ServerReply:
        """Pull as a new incarnation, which enters with the pull if the mode has members."""
        self.begin_anew(worker)
        return self.pull(worker, **options)

    def pull(self, worker: int, **options: Any) -> ServerReply:
        incarnation = options.pop("incarnation", self.incarnations[worker])
        return self.ask(self._first_kind, worker=worker, incarnation=incarnation, **options)


AnyJob = TypeVar("AnyJob", bound=Job)


class Jobs(Generic[AnyJob]):
    """The jobs that tests share: one of each mode and model.

    To trace a program takes seconds, and its requests are answered within milliseconds.

    Args:
        kind: of the jobs.
        cluster: that they run on.
    """

    def __init__(self, kind: Callable[..., AnyJob], cluster: InProcessCluster) -> None:
        self._kind, self._cluster = kind, cluster
        self._jobs: dict[tuple[Any, ...], AnyJob] = {}

    def __call__(self, mode: Any, **options: Any) -> AnyJob:
        """The job of a mode, with a strategy of its own; its options are those of `Job`."""
        key = (mode, *sorted(options.items()))
        if key not in self._jobs:
            strategy = tfps.ParameterServerStrategy(
                self._cluster.cluster_resolver, consistency=mode
            )
            self._jobs[key] = self._kind(strategy, **options)
        return self._jobs[key]

    def close(self) -> None:
        for job in self._jobs.values():
            job.strategy.close()


def waits(future: Future[Any]) -> bool:
    """Return whether a request has no reply yet."""
    done, _ = wait_for([future], timeout=WAITS_S)
    return not done
