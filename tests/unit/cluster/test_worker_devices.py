"""The devices that workers compute on."""

from __future__ import annotations

import pytest

from tests.messages import raises
from tfps.cluster import devices_of_workers, logical_cpus
from tfps.errors import ConfigError


def names(task: int, *devices: str, job: str = "worker") -> list[str]:
    return [f"/job:{job}/replica:0/task:{task}/device:{device}" for device in devices]


def test_gpus_go_before_the_cpu() -> None:
    both = names(0, "CPU:0", "GPU:1", "GPU:0") + names(1, "CPU:0", "GPU:0", "GPU:1")
    assert devices_of_workers(both) == ("/device:GPU:0", "/device:GPU:1")


def test_logical_devices_of_the_cpu_count() -> None:
    assert devices_of_workers(names(0, "CPU:0", "CPU:1")) == ("/device:CPU:0", "/device:CPU:1")


def test_other_tasks_and_kinds_do_not_count() -> None:
    others = names(0, "CPU:0", "CPU:1", "GPU:0", job="chief") + names(0, "GPU:0", job="ps")
    assert devices_of_workers([*others, *names(0, "CPU:0", "XLA_GPU:0")]) == ("/device:CPU:0",)
    assert devices_of_workers([]) == ("/device:CPU:0",)


def test_workers_that_differ_are_refused() -> None:
    counts = "worker 0 has 1, worker 1 has 2"
    differing = names(0, "CPU:0", "GPU:0") + names(1, "CPU:0", "GPU:0", "GPU:1")
    with raises(ConfigError, "devices", received=counts, remedy="CUDA_VISIBLE_DEVICES"):
        devices_of_workers(differing)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_bad_number_of_logical_devices(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPS_LOGICAL_CPUS", text)
    with raises(ConfigError, "TFPS_LOGICAL_CPUS", received=repr(text), remedy="a whole number"):
        logical_cpus()


def test_number_of_logical_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPS_LOGICAL_CPUS", " 4 ")
    assert logical_cpus() == 4
    monkeypatch.setenv("TFPS_LOGICAL_CPUS", "")
    assert logical_cpus() == 1
