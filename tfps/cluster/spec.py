"""The cluster as one value: its tasks, their addresses, and which task this process is."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfps.cluster.ports import lease_ports
from tfps.cluster.validation import JOB_ORDER, TASK_TYPES, problems_of_jobs, problems_of_task
from tfps.errors import ConfigError, refuse

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["JOB_ORDER", "TASK_TYPES", "ClusterSpec"]

TF_CONFIG = "TF_CONFIG"


@dataclass(frozen=True)
class ClusterSpec:
    """The address of every task, and which task this process is.

    Jobs are always in the order chief, worker, ps, in whatever order they were given: TensorFlow
    derives the leader of collectives from it, and all tasks must agree.

    Args:
        jobs: task type -> addresses; ``chief`` (one), ``worker`` and ``ps``.
        task_type: ``chief``, ``worker``, ``ps`` or ``evaluator``; None if it does not matter.
        task_index: the position in its job.

    Raises:
        ConfigError: lists every problem, each with its key.

    Example:

    >>> spec = ClusterSpec.from_tf_config(
    ...     '{"cluster": {"ps": ["b:2222"], "chief": ["a:2222"], "worker": ["c:2222"]},'
    ...     ' "task": {"type": "worker", "index": 0}}')
    >>> print(spec)
    task       address
    chief 0    a:2222
    worker 0   c:2222   (this task)
    ps 0       b:2222
    """

    jobs: Mapping[str, tuple[str, ...]]
    task_type: str | None = None
    task_index: int | None = None
    source: str = field(default="cluster", compare=False, repr=False)

    def __post_init__(self) -> None:
        task = None
        if self.task_type is not None or self.task_index is not None:
            task = {"type": self.task_type, "index": self.task_index}
        problems = problems_of_jobs(self.jobs)
        if task is not None:
            problems += problems_of_task(task, self.jobs)
        refuse(problems, source=self.source)
        ordered = {name: tuple(self.jobs[name]) for name in JOB_ORDER}
        object.__setattr__(self, "jobs", ordered)
        if self.task_index is not None:
            object.__setattr__(self, "task_index", int(self.task_index))

    def __hash__(self) -> int:
        return hash((tuple(self.jobs.items()), self.task_type, self.task_index))

    @classmethod
    def from_tf_config(
        cls, text_or_mapping: str | Mapping[str, Any], *, source: str = TF_CONFIG
    ) -> ClusterSpec:
        """Read the value of `TF_CONFIG`, as JSON or as a mapping.

        Keys besides ``cluster`` and ``task`` (Kubeflow writes ``environment``) are ignored.

        Args:
            text_or_mapping: the JSON text, or a mapping.
            source: the name of the value in error messages.

        Raises:
            ConfigError: lists every problem, each with its key.
        """
        value = _parse_tf_config(text_or_mapping, source)
        jobs, task = value.get("cluster"), value.get("task")
        problems = problems_of_jobs(jobs)
        if task is not None:
            problems += problems_of_task(task, jobs)
        refuse(problems, source=source)
        assert isinstance(jobs, Mapping)
        return cls(
            jobs={name: tuple(addresses) for name, addresses in jobs.items()},
            task_type=task["type"] if task else None,
            task_index=int(task["index"]) if task else None,
            source=source,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ClusterSpec:
        """Read `TF_CONFIG` from the environment; it must have the key ``task``.

        Args:
            environment: used instead of ``os.environ``.

        Raises:
            ConfigError: `TF_CONFIG` is not set, or wrong.
        """
        variables = os.environ if environment is None else environment
        text = variables.get(TF_CONFIG, "")
        if not text.strip():
            raise ConfigError(
                "not set; set it to the cluster and the task of this process, or TFPS_SCHEDULER "
                "(--scheduler) to the address of a scheduler, start the program with `tfps run`, "
                "or pass a cluster resolver",
                source=TF_CONFIG,
            )
        spec = cls.from_tf_config(text)
        if spec.task_type is None:
            raise ConfigError(
                "task: missing; add the task of this process, for example "
                '"task": {"type": "chief", "index": 0}',
                source=TF_CONFIG,
            )
        return spec

    @classmethod
    def from_resolver(cls, resolver: tf.distribute.cluster_resolver.ClusterResolver) -> ClusterSpec:
        """Read any TensorFlow cluster resolver.

        As in TensorFlow, a resolver whose task type is None or empty belongs to the chief. It need
        not list the chief if all tasks are on the chief's machine.

        Args:
            resolver: `TFConfigClusterResolver`, `SimpleClusterResolver`, a Kubernetes or a GCE
                resolver, or one of your own.

        Raises:
            ConfigError: lists every problem of the cluster, each with its key.
        """
        jobs = dict(resolver.cluster_spec().as_dict())
        task_type = getattr(resolver, "task_type", None)
        task_index = getattr(resolver, "task_id", None)
        if not task_type and "chief" not in jobs:
            # TensorFlow then listens on a free port, and sends it to the tasks.
            with lease_ports(1) as lease:
                jobs["chief"] = [f"localhost:{lease.ports[0]}"]
        return cls.from_tf_config(
            {
                "cluster": jobs,
                "task": {
                    "type": task_type or "chief",
                    "index": 0 if task_index is None else task_index,
                },
            },
            source=type(resolver).__name__,
        )

    def count(self, task_type: str) -> int:
        """Return the number of tasks of a type; 0 for an unknown type."""
        return len(self.jobs.get(task_type, ()))

    def tasks(self, *task_types: str) -> Iterator[tuple[str, int, str]]:
        """Yield (task type, index, address) of every task, or only of the given types."""
        for task_type, addresses in self.jobs.items():
            if not task_types or task_type in task_types:
                for index, address in enumerate(addresses):
                    yield task_type, index, address

    def address(self, task_type: str, task_index: int) -> str:
        """Return one task's address.

        Raises:
            ConfigError: the cluster has no such task.
        """
        problems = problems_of_task({"type": task_type, "index": task_index}, self.jobs)
        if problems or task_type not in self.jobs:
            raise ConfigError(
                problems or f"task.type: received {task_type!r}, expected a task of the cluster"
            )
        return self.jobs[task_type][task_index]

    def with_address(self, task_type: str, task_index: int, address: str) -> ClusterSpec:
        """Return the same cluster with another address of a task.

        Raises:
            ConfigError: the cluster has no such task, or the address is invalid or in use.
        """
        self.address(task_type, task_index)
        addresses = list(self.jobs[task_type])
        addresses[task_index] = address
        return ClusterSpec(
            jobs={**self.jobs, task_type: tuple(addresses)},
            task_type=self.task_type,
            task_index=self.task_index,
            source=self.source,
        )

    def for_task(self, task_type: str, task_index: int) -> ClusterSpec:
        """Return the same cluster as another of its tasks sees it."""
        return ClusterSpec(jobs=self.jobs, task_type=task_type, task_index=task_index)

    def tf_config(self, task_type: str, task_index: int) -> dict[str, Any]:
        """Return the value of `TF_CONFIG` for one task, ready for `json.dumps`."""
        spec = self.for_task(task_type, task_index)
        return {
            "cluster": {name: list(addresses) for name, addresses in spec.jobs.items()},
            "task": {"type": spec.task_type, "index": spec.task_index},
        }

    def tf_resolver(self) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
        """Return a TensorFlow cluster resolver of this cluster; imports TensorFlow."""
        import tensorflow as tf

        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({name: list(value) for name, value in self.jobs.items()}),
            task_type=self.task_type or "chief",
            task_id=self.task_index or 0,
            rpc_layer="grpc",
        )

    def __str__(self) -> str:
        names = [f"{task_type} {index}" for task_type, index, _ in self.tasks()]
        addresses = [address for _, _, address in self.tasks()]
        name_width, address_width = max(map(len, names)) + 3, max(map(len, addresses)) + 3
        lines = [f"{'task':<{name_width}}address"]
        for name, address in zip(names, addresses, strict=True):
            note = "(this task)" if name == f"{self.task_type} {self.task_index}" else ""
            lines.append(f"{name:<{name_width}}{address:<{address_width}}{note}".rstrip())
        if self.task_type == "evaluator":
            lines.append(
                f"{f'evaluator {self.task_index}':<{name_width}}{'-':<{address_width}}(this task)"
            )
        return "\n".join(lines)


def _parse_tf_config(text_or_mapping: str | Mapping[str, Any], source: str) -> Mapping[str, Any]:
    value: Any = text_or_mapping
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"received invalid JSON ({error}), expected "
                '{"cluster": {...}, "task": {...}}' + _file_name_hint(value, source),
                source=source,
            ) from error
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"received a {type(value).__name__}, expected an object with the keys cluster and task",
            source=source,
        )
    return value


def _file_name_hint(text: str, source: str) -> str:
    """Return a hint for an error's text if the value is the name of a file, otherwise nothing."""
    path = text.strip()
    if not os.path.isfile(path) and not path.endswith(".json"):
        return ""
    return f'; to pass the content of a file, write {source}="$(cat {shlex.quote(path)})"'
