"""The manifest of a checkpoint: its content and its origin, stored as JSON. Pure."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfps.checkpoint.checksum import FileChecksum, text_checksum
from tfps.checkpoint.layout import RowBlock
from tfps.checkpoint.retention import SavedCheckpoint
from tfps.errors import CheckpointDamaged, CheckpointError
from tfps.json_text import parse_json
from tfps.partitioners.row_rule import RULES, RowRule, rule_name

FORMAT = 3
WITHOUT_STATE = 2  # still written where there is none, so that older versions read it
WITHOUT_CHECKSUMS = 1
CHIEF = -1  # instead of a server's index


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """The description of a stored variable, without its values.

    Args:
        shape: the shape of the whole variable.
        dtype: the name of its type.
        path: Keras's path of the variable when it was saved.
        rule: maps rows to shards.
        servers: the server of each shard; `CHIEF` is the chief.
    """

    shape: tuple[int, ...]
    dtype: str
    path: str
    rule: RowRule
    servers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Counters:
    """The counters of the servers.

    Args:
        versions: updates of each server.
        staleness: of each server, staleness -> number of gradients.
        gradients_dropped: dropped gradients of each server.
        examples_seen: training examples.
        worker_steps: completed steps of each worker: their clocks once they are drained.
        next_ticket: the first ticket that was never issued.
    """

    versions: tuple[int, ...]
    staleness: tuple[dict[int, int], ...]
    gradients_dropped: tuple[int, ...]
    examples_seen: int
    worker_steps: tuple[int, ...]
    next_ticket: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A checkpoint without its values.

    Args:
        number: the number of the checkpoint.
        saved_at_s: the time of the snapshot, in seconds since the Unix epoch.
        epoch: completed epochs, or None if not given.
        step: completed steps, or None if not given.
        metrics: metrics of the model, as given.
        consistency: the strategy's mode as text; None without a strategy.
        counters: the counters of the servers; None without a strategy.
        package_versions: versions of the packages that wrote it; None for an unknown one.
        tensors: the variables by logical names, which are the same in every process.
        files: the blocks in each file of the folder, by the file's name, which is a prefix.
        checksums: the checksum of each file of the folder, by its name; empty in an older format.
        state: what `fit` with `tfps.callbacks.Resume` goes on from, as JSON; empty without it.

    Example:

    >>> manifest = Manifest(number=3, saved_at_s=0.0, epoch=2, metrics={"loss": 0.5})
    >>> Manifest.from_json(manifest.to_json()) == manifest
    True
    >>> print(manifest)
    checkpoint 3 of 1970-01-01 00:00:00 UTC, epoch 2, loss 0.5
    0 tensors, in 0 files
    """

    number: int
    saved_at_s: float
    epoch: int | None = None
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    consistency: str | None = None
    counters: Counters | None = None
    package_versions: Mapping[str, str | None] = field(default_factory=dict)
    tensors: Mapping[str, SavedTensor] = field(default_factory=dict)
    files: Mapping[str, tuple[RowBlock, ...]] = field(default_factory=dict)
    checksums: Mapping[str, FileChecksum] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def saved(self) -> SavedCheckpoint:
        """The number, time and metrics of the checkpoint, as retention policies take them."""
        return SavedCheckpoint(number=self.number, saved_at_s=self.saved_at_s, metrics=self.metrics)

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        values = dataclasses.asdict(self) | {"format": FORMAT if self.state else WITHOUT_STATE}
        if not self.state:
            del values["state"]
        for name, tensor in self.tensors.items():
            rule = tensor.rule
            values["tensors"][name]["rule"] = [rule_name(rule), rule.rows, rule.shards]
        values["files"] = {
            name: [list(dataclasses.astuple(block)) for block in blocks]
            for name, blocks in self.files.items()
        }
        values["checksums"] = {
            name: [one.size_bytes, one.crc32] for name, one in self.checksums.items()
        }
        return _text_for_checksum(values | {"checksum": text_checksum(_text_for_checksum(values))})

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return a manifest from its JSON.

        Raises:
            CheckpointDamaged: the text has changed since it was written.
            CheckpointError: it is of another format.
        """
        try:
            values = json.loads(text)
            found_format = values["format"]
            if found_format in (WITHOUT_STATE, FORMAT):
                _remove_checked_checksum(values)
            if found_format in (WITHOUT_CHECKSUMS, WITHOUT_STATE, FORMAT):
                del values["format"]
                return cls(**_decode(values))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointDamaged(f"the manifest is damaged: {error}") from error
        raise CheckpointError(
            f"received a checkpoint of format {found_format!r}, expected {FORMAT}; use the version "
            "of tfps that wrote it"
        )

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.saved_at_s))
        about = [f"checkpoint {self.number} of {when}"]
        about += [f"epoch {self.epoch}"] * (self.epoch is not None)
        about += [f"step {self.step}"] * (self.step is not None)
        about += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        lines = [", ".join(about)]
        if self.counters is not None:
            lines.append(f"{self.consistency}; updates {min(self.counters.versions)}")
        lines.append(f"{len(self.tensors)} tensors, in {len(self.files)} files")
        width = max((len(name) for name in self.tensors), default=0)
        for name, tensor in self.tensors.items():
            homes = ", ".join("chief" if at == CHIEF else f"ps {at}" for at in tensor.servers)
            rule = f" {tensor.rule}" if tensor.rule.shards > 1 else ""
            lines.append(f"  {name:{width}}  {tensor.dtype} {tensor.shape}{rule} on {homes}")
        return "\n".join(lines)


def _text_for_checksum(values: Mapping[str, Any]) -> str:
    """Return the text whose checksum is stored; a round trip of the values does not change it."""
    return json.dumps(values, indent=1)


def _remove_checked_checksum(values: dict[str, Any]) -> None:
    """Remove the checksum from the values that were read, and compare it.

    Raises:
        KeyError: there is none.
        ValueError: it differs.
    """
    expected, computed = values.pop("checksum"), text_checksum(_text_for_checksum(values))
    if computed != expected:
        raise ValueError(f"received the checksum {computed}, expected {expected}")


def _decode(values: dict[str, Any]) -> dict[str, Any]:
    tensors = {}
    for name, tensor in values["tensors"].items():
        kind, rows, shards = tensor["rule"]
        tensors[name] = SavedTensor(
            shape=tuple(tensor["shape"]),
            dtype=tensor["dtype"],
            path=tensor["path"],
            rule=RULES[kind](rows, shards),
            servers=tuple(tensor["servers"]),
        )
    files = {
        name: tuple(RowBlock(*block) for block in blocks)
        for name, blocks in values["files"].items()
    }
    checksums = {name: FileChecksum(*one) for name, one in values.get("checksums", {}).items()}
    counters = parse_json(Counters | None, json.dumps(values["counters"]))
    return values | {
        "tensors": tensors,
        "files": files,
        "checksums": checksums,
        "counters": counters,
    }
