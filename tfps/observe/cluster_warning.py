"""Warnings about a job that name the cause and the remedy, from its record's last minute. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfps.observe.slow_worker import describe_slow_worker, find_slow_worker
from tfps.units import format_bytes, format_seconds

WINDOW_S = 60.0
LEAST_SPAN_S = 10.0  # of rates; a shorter time says little
LASTING_S = 30.0  # a state that lasts as long is no moment
WAIT_SHARE, LEAST_WAIT_S = 0.2, 0.005
BUSY_SHARE = 0.7  # of a server's time, in updates
PUSH_SHARE, LEAST_PUSH_S, SLOW_BYTES_PER_S = 0.5, 0.02, 1e8
MOST_UNEVEN = 1.3  # own steps of workers that hardly wait for each other
HOT_RATIO, LEAST_HOT_BYTES_PER_S = 1.5, 1e7
STALL_S = 10.0
LOSS_GROWTH, LEAST_LOSSES = 10.0, 6
MOST_TRACES = 5
MEMORY_SHARE = 0.9

Line = Mapping[str, Any]


class ClusterWarning(NamedTuple):
    """A warning about a job."""

    kind: str  # each is said once
    task: str  # such as "worker 1"; "" for the whole job
    sentence: str  # the cause and the remedy


def find_warnings(lines: Sequence[Line]) -> list[ClusterWarning]:
    """Return the warnings that the newest lines of a record give.

    Args:
        lines: the lines as `record.parse_line` returns them, the oldest first; those of earlier
            strategies and of more than a minute ago do not count.

    Example:

    >>> usage = {"ps 0": {"memory_bytes": 95, "memory_limit_bytes": 100}}
    >>> found = find_warnings([{"time_s": 1.0, "began_s": 0.0, "usage": usage, "stats": {}}])
    >>> [(each.kind, each.task) for each in found]
    [('memory', 'ps 0')]
    """
    if not lines:
        return []
    last = lines[-1]
    found = list(_memory(last))
    if "worker_steps" not in last["stats"]:
        return found
    whole = [
        line
        for line in lines
        if line["began_s"] == last["began_s"]
        and line["time_s"] > last["time_s"] - WINDOW_S
        and "worker_steps" in line["stats"]
    ]
    for rule in (_grpc, _loss, _retracing, _stall):
        found += rule(whole)
    lasting = [line for line in whole if line["time_s"] >= last["time_s"] - LASTING_S]
    if all(map(_run, lasting)) and _span_s(lasting) > 0.8 * LASTING_S:
        found += [*_idle(lasting), *_straggler(lasting)]
    training = _newest(whole, lambda line: _run(line).get("kind") == "train")
    if training and _span_s(training) >= LEAST_SPAN_S and _steps_done(training) > 0:
        found += _rates(training)
    return found


def _memory(last: Line) -> Iterator[ClusterWarning]:
    for task, used in last["usage"].items():
        share, limit = used["memory_bytes"] / used["memory_limit_bytes"], used["memory_limit_bytes"]
        if share > MEMORY_SHARE:
            text = f"{task} uses {share:.0%} of the {format_bytes(limit)} that it can have"
            remedy = "add servers, or divide tables" if "ps" in task else "use smaller batches"
            yield ClusterWarning("memory", task, f"{text}: {remedy}, or raise the limit")


def _grpc(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    names = lines[-1]["stats"]["transports"]
    if "direct" in names and "grpc" in names:
        task = f"ps {names.index('grpc')}"
        text = f"{task} is reached over grpc, at about half the speed of direct"
        yield ClusterWarning("grpc", task, f"{text}: start it with `tfps run` or `tfps serve`")


def _loss(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    last = lines[-1]
    losses = [float(line["loss"]) for line in lines if line.get("loss") is not None]
    if last.get("loss") is None:
        return
    text = f"the loss is {losses[-1]}"
    if math.isfinite(losses[-1]):
        before = statistics.median(losses[: len(losses) // 2] or losses)
        if len(losses) < LEAST_LOSSES or not min(losses[-2:]) > LOSS_GROWTH * before > 0:
            return
        text = f"the loss has grown from {before:.3g} to {losses[-1]:.3g}"
    if last.get("not_finite"):
        text += f", and {last['not_finite']} is not finite"
    if (staleness := mean_staleness(last["stats"])) is not None:
        text += f"; staleness {staleness:.1f}"
    if last.get("learning_rate") is not None:
        text += f", learning rate {last['learning_rate']:.3g}"
    remedy = "use a lower learning rate or clipnorm, tfps.Synchronous() or tfps.optimizers.DANA"
    yield ClusterWarning("loss", "", f"{text}: {remedy}")


def _retracing(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    for name, count in lines[-1].get("traces", {}).items():
        if count > MOST_TRACES:
            text = f"{name} was traced {count} times: an argument changes its shape, or is a number"
            remedy = "of Python; pass tensors of one shape and dtype"
            yield ClusterWarning("retracing", "", f"{text} {remedy}")


def _stall(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    last, counts = lines[-1], _counts(lines[-1])
    still = _newest(lines, lambda line: bool(_run(line)) and _counts(line) == counts)
    paces = [3 * seconds for seconds in last["stats"]["worker_step_seconds"] if seconds]
    if not still or not _run(last)["steps"] or _span_s(still) < max([STALL_S, *paces]):
        return
    waiting, awaited = (
        [f"worker {worker}" for worker in _run(last)[name]] for name in ("waiting", "computing")
    )
    who = ", ".join(awaited) or ("a server" if waiting else "no worker takes part")
    if waiting:
        who = f"{', '.join(waiting)} wait{'' if waiting[1:] else 's'} for {who}"
    text = f"no step has ended for {format_seconds(_span_s(still))}: {who}"
    task = awaited[0] if awaited else ""
    yield ClusterWarning("stall", task, f"{text}; look whether it hangs, or was stopped")


def _idle(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    """Find workers that do nothing while others work."""
    stats, run = lines[-1]["stats"], _run(lines[-1])
    before, after = _counts(lines[0]), _counts(lines[-1])
    for worker, steps in enumerate(after):
        is_slow = (stats["worker_step_seconds"][worker] or 0.0) > LASTING_S / 3
        if steps != before[worker] or after == before or is_slow or worker in run["waiting"]:
            continue
        why = "it has no data left; give each worker as many batches"
        if (state := stats["tasks"].get(f"worker {worker}", "alive")) != "alive":
            why = f"it is {state}; see events.jsonl for its end"
        elif worker in run["computing"]:
            why = "it holds a ticket; look whether it hangs or waits for data"
        text = f"worker {worker} has done nothing for {LASTING_S:.0f} s while others work: {why}"
        yield ClusterWarning("idle", f"worker {worker}", text)


def _straggler(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    paces = [line["stats"]["worker_step_seconds"] for line in lines]
    slow = {found and found[0] for found in map(find_slow_worker, paces)}
    if len(slow) == 1 and (text := describe_slow_worker(paces[-1], mode=lines[-1]["mode"])):
        yield ClusterWarning("straggler", f"worker {slow.pop()}", text)


def _rates(lines: Sequence[Line]) -> Iterator[ClusterWarning]:
    """Compare servers with each other, and waits and exchanges with the step."""
    names = ("wait_seconds", "push_seconds")
    ends = [line["stats"] for line in (lines[0], lines[-1])]
    wait_s, push_s = (mean_growth(*(each[name] for each in ends)) for name in names)
    step_s = _step_s(lines)
    if wait_s > max(WAIT_SHARE * step_s, LEAST_WAIT_S):
        text = f"workers wait {format_seconds(wait_s)} for a batch, {wait_s / step_s:.0%} of a step"
        remedy = "prefetch, cache or divide the input, or read it with more threads"
        yield ClusterWarning("input-bound", "", f"{text}: {remedy}")
    busy, moved = [], []
    for before, after in zip(*(each["servers"] for each in ends), strict=True):
        spent = [total_seconds(each["update_seconds"]) for each in (before, after)]
        busy.append((spent[1] - spent[0]) / _span_s(lines))
        moved.append(sum(after[way] - before[way] for way in ("bytes_pulled", "bytes_pushed")))
    server = busy.index(max(busy))
    if busy[server] > BUSY_SHARE:
        text = f"ps {server} spends {busy[server]:.0%} of its time in updates"
        remedy = "add parameter servers, or send fewer gradients, with tfps.LocalSteps"
        yield ClusterWarning("server-bound", f"ps {server}", f"{text}: {remedy}")
    paces = [seconds for seconds in ends[1]["worker_step_seconds"] if seconds]
    waits = lines[-1]["mode"][:5] != "Async" and paces and max(paces) > MOST_UNEVEN * min(paces)
    if waits or push_s < max(PUSH_SHARE * step_s, LEAST_PUSH_S):
        return
    size = sum(moved) / max(1, _steps_done(lines))
    if max(busy) < PUSH_SHARE and size < SLOW_BYTES_PER_S * push_s:
        text = f"exchanges take {push_s / step_s:.0%} of a step, with {format_bytes(round(size))}"
        remedy = "use tfps.compression, tfps.LocalSteps, larger batches or a faster link"
        yield ClusterWarning("link-bound", "", f"{text} in {format_seconds(push_s)}: {remedy}")
    hot, mean = moved.index(max(moved)), sum(moved) / len(moved)
    if moved[hot] > max(HOT_RATIO * mean, LEAST_HOT_BYTES_PER_S * _span_s(lines)):
        text = f"ps {hot} moves {moved[hot] / mean:.1f} times the mean of all servers"
        remedy = f"divide its largest variable, {lines[-1]['largest'][hot]!r}, by a partitioner"
        yield ClusterWarning(
            "hot-server", f"ps {hot}", f"{text}: {remedy}, or add a placement rule"
        )


def _newest(lines: Sequence[Line], condition: Callable[[Line], bool]) -> list[Line]:
    """Return the last lines that all fulfil a condition."""
    return list(itertools.takewhile(condition, reversed(lines)))[::-1]


def _run(line: Line) -> Mapping[str, Any]:
    """Return what the line says of the run that goes on; empty without one."""
    return line.get("run") or {}


def _counts(line: Line) -> list[int]:
    """Return the steps of each worker, in training and evaluation."""
    pairs = zip(
        *(line["stats"][f"worker_{kind}steps"] for kind in ("", "evaluation_")), strict=True
    )
    return [sum(pair) for pair in pairs]


def _steps_done(lines: Sequence[Line]) -> int:
    first, last = (sum(line["stats"]["worker_steps"]) for line in (lines[0], lines[-1]))
    return int(last - first)


def _step_s(lines: Sequence[Line]) -> float:
    """Return the time of a worker's step, with the exchange."""
    states = [state for task, state in lines[-1]["stats"]["tasks"].items() if "worker" in task]
    return _span_s(lines) * max(1, states.count("alive")) / _steps_done(lines)


def _span_s(lines: Sequence[Line]) -> float:
    return float(lines[-1]["time_s"] - lines[0]["time_s"])


def total_seconds(durations: Mapping[str, Any]) -> float:
    """Return the sum of all measured durations."""
    return float((durations["mean"] or 0.0) * durations["count"])


def mean_growth(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Return the mean of the durations that were measured between two lines; 0 without any."""
    count = after["count"] - before["count"]
    return (total_seconds(after) - total_seconds(before)) / count if count else 0.0


def mean_staleness(stats: Mapping[str, Any]) -> float | None:
    """Return the mean staleness of gradients, of the whole job; None without any."""
    counts = stats["gradient_staleness_updates"]
    gradients = sum(counts.values())
    return sum(int(n) * count for n, count in counts.items()) / gradients if gradients else None
