"""The schema of a job file: every section, every key, its default and its allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# The classes of keras.optimizers by the names that `compile` takes; a test compares them with
# Keras, which this package does not import.
OPTIMIZERS = (
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "ftrl",
    "lamb",
    "lion",
    "muon",
    "nadam",
    "rmsprop",
    "schedulefreeadamw",
    "sgd",
)
# Those of tfps.optimizers that wrap no other one: name -> class.
OWN_OPTIMIZERS = {"asyncadam": "AsyncAdam", "dana": "DANA"}
if TYPE_CHECKING:  # mypy knows no computed literal
    OptimizerName = str
else:
    OptimizerName = Literal[OPTIMIZERS + tuple(OWN_OPTIMIZERS)]

DEFAULT_EXAMPLE = "fashion_mnist"  # of job files that name none

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
# Strict for its items, but a TOML array is a list.
Counts = Annotated[tuple[Count, ...], Field(strict=False, min_length=1)]


class Section(BaseModel):
    """A table of the job file: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelSection(Section):
    """The section ``[model]``; each example defines its keys."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: Text = "model"


class DataSection(Section):
    """The section ``[data]``: the keys that all examples have; each example adds its own."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    source: Text = "auto"
    path: Text | None = None
    batch_size: Count = 64


class ClusterSection(Section):
    """``[cluster]``: the size of a local cluster (`TF_CONFIG` decides when it is set)."""

    workers: Count = 2
    ps: Count = 1
    max_workers: Count | None = None  # for how many servers have room; as many as there are
    connect_timeout_s: Annotated[float, Field(gt=0)] = 300.0


class OptimizerSection(Section):
    """``[training.optimizer]``: an optimizer of Keras or tfps by name, and its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    name: OptimizerName = "adam"

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the optimizer without its learning rate."""
        return dict(self.model_extra or {})


class StalenessSection(Section):
    """``[training.staleness]``: what becomes of stale gradients (`tfps.optimizers`)."""

    discount: Literal["none", "exponential"] = "none"
    drop_above: Annotated[int, Field(ge=0)] | None = None


class TrainingSection(Section):
    """``[training]``: its length, the optimizer and the folder for the results."""

    epochs: Count = 6
    learning_rate: Annotated[float, Field(gt=0)] = 0.002
    learning_rate_schedule: Literal["constant", "cosine"] = "cosine"
    steps_per_execution: Count = 50
    sparse_updates: bool = False  # of embedding tables only the rows of a batch are updated
    batch_callbacks: Literal["auto", "sampled", "lock_step"] = "auto"
    # Keras hands the seed to numpy, which takes 32 bits.
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    output: Text = "runs/job"
    # As one file through the chief, or by the servers, side by side, with the optimizer's state.
    saved: Literal["keras", "checkpoint"] = "keras"
    optimizer: OptimizerSection = OptimizerSection()
    staleness: StalenessSection = StalenessSection()


class ConsistencySection(Section):
    """``[consistency]``: how far a worker may run ahead of the others."""

    mode: Literal["asynchronous", "synchronous", "bounded_staleness", "local_steps"] = (
        "asynchronous"
    )
    backup_workers: Annotated[int, Field(ge=0)] = 0  # of synchronous
    bound_steps: Annotated[int, Field(ge=0)] = 4  # of bounded_staleness
    period_steps: Count = 16  # of local_steps, as are the next two
    synchronous_periods: bool = False
    elasticity: Annotated[float, Field(gt=0, lt=1)] | None = None
    warm_up_steps: Annotated[int, Field(ge=0)] = 0  # of any mode


# Of tfps.partitioners; a test compares them with what makes them.
PARTITIONERS = (
    "whole",
    "balanced",
    "fixed_shards",
    "min_size",
    "max_size",
    "row_modulo",
    "row_shuffle",
)


class PartitionerSection(Section):
    """``[partitioner]``: how variables are divided into shards (`tfps.partitioners`)."""

    name: Literal[PARTITIONERS] = "whole"  # type: ignore[valid-type]
    shards: Count | None = None  # of all but whole and balanced; as many as there are servers
    min_shard_bytes: Count = 256 << 10  # of balanced and min_size
    max_shard_bytes: Count = 64 << 20  # of max_size
    # A pattern that is found in a variable's path, and the name of its partitioner.
    rules: dict[Text, Literal[PARTITIONERS]] = {}  # type: ignore[valid-type]


PLACEMENTS = ("least_loaded", "round_robin", "all_reduce")


class PlacementSection(Section):
    """``[placement]``: which parameter server takes a variable."""

    policy: Literal[PLACEMENTS] = "least_loaded"  # type: ignore[valid-type]
    # A pattern that is found in a variable's path, and the server or policy that takes it.
    rules: dict[Text, Annotated[int, Field(ge=0)] | Literal[PLACEMENTS]] = {}  # type: ignore[valid-type]


CODECS = ("identity", "cast", "quantize", "top_k")  # of tfps.compression


class CompressionSection(Section):
    """``[compression]``: codecs for gradients and parameters (`tfps.compression`)."""

    codec: Literal[CODECS] = "identity"  # type: ignore[valid-type]
    dtype: Literal["bfloat16", "float16"] = "bfloat16"  # of cast
    bits: Literal[8, 4, 2, 1] = 8  # of quantize
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01  # of top_k
    # For parameters, or for what has changed of them.
    pull: Literal[CODECS] = "identity"  # type: ignore[valid-type]
    deltas: bool = False
    minimum_bytes: Annotated[int, Field(ge=0)] = 0  # smaller variables go as they are
    # A pattern that is found in a variable's path, and the name of its codec.
    rules: dict[Text, Literal[CODECS]] = {}  # type: ignore[valid-type]


class TransportSection(Section):
    """``[transport]``: how requests reach the parameter servers."""

    name: Literal["auto", "direct", "grpc"] = "auto"
    # Of every task that accepts workers; 0: each chooses a free one.
    data_port: Annotated[int, Field(ge=0, le=65_535)] = 0


class JobSection(Section):
    """``[job]``: the name under which servers keep the job, for the next chief and for readers."""

    name: Text | None = None  # none: of this chief alone
    fresh: bool = False


class RestartsSection(Section):
    """``[restarts]``: how often tasks that died are started again (`tfps.FaultTolerance`)."""

    budget: Annotated[int, Field(ge=0)] = 3
    min_workers: Count = 1
    no_worker_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    hang_timeout_s: Annotated[float, Field(gt=0)] = 60.0


class RecoverySection(Section):
    """``[recovery]``: how often `fit` saves, and what happens when a task is lost."""

    # None: 30 s, and less often if that costs much; 0: never, and a lost server ends the job.
    every_s: Annotated[float, Field(ge=0)] | None = None
    every_steps: Count | None = None  # instead of every_s
    start: Literal["auto", "resume", "overwrite"] = "auto"
    checkpoints: Text | None = None  # below training.output
    on_lost_server: Literal["wait", "stop"] = "wait"


class JobConfig(Section):
    """One job: what to train, on which data, how and on how many machines.

    An example has a class of its own, with its fields of ``[model]`` and ``[data]``, and with its
    defaults.

    Example:

    >>> JobConfig().cluster.workers
    2
    """

    example: Text = DEFAULT_EXAMPLE
    job: JobSection = JobSection()
    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    cluster: ClusterSection = ClusterSection()
    training: TrainingSection = TrainingSection()
    consistency: ConsistencySection = ConsistencySection()
    partitioner: PartitionerSection = PartitionerSection()
    placement: PlacementSection = PlacementSection()
    compression: CompressionSection = CompressionSection()
    transport: TransportSection = TransportSection()
    restarts: RestartsSection = RestartsSection()
    recovery: RecoverySection = RecoverySection()

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:  # noqa: ARG003 - of examples
        """Return one sentence for each pair of settings that contradict each other.

        Args:
            values: the job file as parsed; it may have other mistakes.
        """
        return []
