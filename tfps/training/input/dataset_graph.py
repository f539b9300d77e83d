"""Convert a dataset to a graph that every worker can iterate, if that is possible."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from random import Random, SystemRandom
from typing import Any

import tensorflow as tf

from tfps.bridge.functions.traced_graph import iter_operations
from tfps.training.input.early_dataset import calls_python, iterate_nodes, to_graph

AttrValue = tf.compat.v1.AttrValue

# A graph goes to every worker as one constant, and takes many times its size to parse; a dataset
# that holds more data than this is cheaper sent batch by batch.
MAX_GRAPH_BYTES = 16 << 20
# Resources that other tasks cannot open, and pipelines that write files or are served elsewhere.
TASK_BOUND_OPERATIONS = (
    "MutableHashTable",
    "MutableDenseHashTable",
    "DataService",
    "Snapshot",
    "Save",
)
FILE_READING_OPERATIONS = (
    "TFRecord",
    "TextLine",
    "FixedLengthRecord",
    "CSV",
    "ReadFile",
    "MatchingFiles",
)
# Operations with a seed, and which of their inputs hold it.
SEED_INPUTS = {
    "ShuffleDatasetV3": (2, 3),
    "ShuffleAndRepeatDatasetV2": (2, 3),
    "RandomDataset": (0, 1),
    "RandomDatasetV2": (0, 1),
}
OPERATIONS_WITHOUT_SEED = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleAndRepeatDataset")


class NotPortableError(Exception):
    """Raised if a dataset must be iterated in its own process; the message says why."""


def portable_graph(dataset: tf.data.Dataset) -> tf.compat.v1.GraphDef:
    """Return a dataset's graph, which any task can iterate.

    Raises:
        NotPortableError: its batches depend on this process, or it holds too many data.
    """
    if calls_python(dataset):
        raise NotPortableError("it calls Python")
    _check_size(_estimate_graph_bytes(dataset))
    policy = tf.data.experimental.ExternalStatePolicy.FAIL
    try:
        graph = to_graph(dataset, external_state=policy)
    except tf.errors.FailedPreconditionError as error:
        raise NotPortableError(_short_message(error)) from None
    _check_size(graph.ByteSize())
    for node in iterate_nodes(graph):
        if node.op.startswith(TASK_BOUND_OPERATIONS) or node.op in OPERATIONS_WITHOUT_SEED:
            raise NotPortableError(f"its {node.op} works in one task only")
    try:
        tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    except tf.errors.OpError as error:
        raise NotPortableError(f"TensorFlow cannot read its graph: {error.message}") from None
    return graph


def make_deterministic(graph: tf.compat.v1.GraphDef, *, chance: Random | None = None) -> None:
    """Change a graph so that all tasks make the same batches in the same order.

    What the user left to chance is settled: a shuffle without a seed gets one, and parallel
    operations that may change the order keep it.

    Args:
        graph: that is changed.
        chance: draws the seeds; None: the system does.

    Raises:
        NotPortableError: something cannot be settled.
    """
    for node in iterate_nodes(graph):
        if "deterministic" in node.attr:
            node.attr["deterministic"].s = b"true"
        if "sloppy" in node.attr:
            node.attr["sloppy"].b = False
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        _make_nodes_deterministic(nodes, chance or SystemRandom())


def reads_files(graph: tf.compat.v1.GraphDef) -> bool:
    """Return whether a graph reads files, which another machine may not have."""
    return any(node.op.startswith(FILE_READING_OPERATIONS) for node in iterate_nodes(graph))


def _check_size(held_bytes: int) -> None:
    if held_bytes > MAX_GRAPH_BYTES:
        raise NotPortableError(
            f"it holds {held_bytes / 2**20:.0f} MB of data, more than {MAX_GRAPH_BYTES >> 20} MB"
        )


def _estimate_graph_bytes(dataset: tf.data.Dataset) -> int:
    """Estimate how many bytes of tensors a dataset's graph would hold."""
    tensors = list(getattr(dataset, "_tensors", ()))
    for function in dataset._functions():
        tensors += [t for t in function.function.captured_inputs if hasattr(t, "numpy")]
    own = sum(_size_bytes(tensor) for tensor in tensors)
    return own + sum(_estimate_graph_bytes(before) for before in dataset._inputs())


def _size_bytes(tensor: Any) -> int:
    if tensor.dtype in (tf.resource, tf.variant):
        return 0
    return int(tf.size(tensor)) * max(1, tensor.dtype.size)


def _make_nodes_deterministic(nodes: Iterable[Any], chance: Random) -> None:
    """Give seeds to all random nodes without one."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        positions = SEED_INPUTS.get(node.op)
        if positions is not None:
            if node.op.startswith("Shuffle"):
                _rename_generator(by_name.get(node.input[-1].split(":")[0]))
            constants = [by_name.get(node.input[at].split(":")[0]) for at in positions]
            _set_seed(node, constants, chance)
        elif node.op.startswith("CacheDataset") and node.op != "CacheDataset":
            _check_cache(node, by_name)


def _set_seed(node: Any, constants: list[Any], chance: Random) -> None:
    if any(constant is None or constant.op != "Const" for constant in constants):
        raise NotPortableError(f"it computes the seed of its {node.op}")
    seeds = [int(tf.make_ndarray(constant.attr["value"].tensor)) for constant in constants]
    if any(seeds):
        return
    for constant in constants:
        seed = tf.make_tensor_proto(1 + chance.getrandbits(31), tf.int64)
        constant.attr["value"].tensor.CopyFrom(seed)


def _rename_generator(constant: Any) -> None:
    """Rename the resource of a random generator, so that each copy of the graph makes its own."""
    for handle in constant.attr["value"].tensor.resource_handle_val if constant else ():
        handle.name, handle.device = f"tfps_{secrets.token_hex(8)}", ""


def _check_cache(node: Any, by_name: dict[str, Any]) -> None:
    constant = by_name.get(node.input[1].split(":")[0])
    if (
        constant is None
        or constant.op != "Const"
        or tf.make_ndarray(constant.attr["value"].tensor).item()
    ):
        raise NotPortableError("it is cached in a file, which one task can write")


def _short_message(error: tf.errors.OpError) -> str:
    """Return TensorFlow's message without the names of its own operations around it."""
    text = error.message.split("graph: ")[-1].split(" [Op:")[0].strip().rstrip(".")
    return f"TensorFlow cannot serialize it: {text}"


@contextlib.contextmanager
def without_global_seed(graph: Any) -> Iterator[None]:
    """Within the block, let a traced shuffle have a seed only if the user sets one.

    With the program's global seed TensorFlow gives another one to each operation, so that shards
    of a list of files, say, which is shuffled for each of them, would overlap.

    Args:
        graph: that is being traced.
    """
    seed, graph.seed = graph.seed, None
    try:
        yield
    finally:
        graph.seed = seed


def make_operations_deterministic(graph: Any, number: tf.Tensor) -> set[str]:
    """Make a traced function's datasets deterministic, with another order for each number.

    As `make_deterministic` does for graphs, but a shuffle has the same order whenever its dataset
    is iterated: workers iterate it as often as they must. One that the user does not want to differ
    between iterations does not differ between numbers. All that have no seed get the same one,
    which follows from the program's global seed if there is one.

    Args:
        graph: that makes the datasets.
        number: of the pass, int64.

    Returns:
        What cannot be settled, since it lies in a function of a dataset: names of operations.
    """
    bits = secrets.randbits(31) if graph.seed is None else Random(graph.seed).getrandbits(31)
    chance = tf.constant(1 + bits, tf.int64)
    own = list(graph.get_operations())
    for operation in own:
        names = [attribute.name for attribute in operation.op_def.attr]
        if "deterministic" in names:
            operation._set_attr("deterministic", AttrValue(s=b"true"))
        if "sloppy" in names:
            operation._set_attr("sloppy", AttrValue(b=False))
        positions = SEED_INPUTS.get(operation.type)
        if positions is not None:
            differs = "reshuffle_each_iteration" not in names or operation.get_attr(
                "reshuffle_each_iteration"
            )
            seed = chance if _is_unseeded(operation) else operation.inputs[positions[0]]
            operation._update_input(positions[0], seed + number if differs else seed)
            if "reshuffle_each_iteration" in names:
                operation._set_attr("reshuffle_each_iteration", AttrValue(b=False))
    mine = set(map(id, own))
    return {
        operation.type
        for operation in iter_operations(graph)
        if id(operation) not in mine and _is_nondeterministic(operation)
    }


def _is_unseeded(operation: Any) -> bool:
    positions = SEED_INPUTS[operation.type]
    return all(tf.get_static_value(operation.inputs[at]) == 0 for at in positions)


def _is_nondeterministic(operation: Any) -> bool:
    """Return whether an operation may make other elements, or another order, the next time."""
    if operation.type in SEED_INPUTS:
        return _is_unseeded(operation)
    names = [attribute.name for attribute in operation.op_def.attr]
    return (
        operation.type in OPERATIONS_WITHOUT_SEED
        or ("deterministic" in names and operation.get_attr("deterministic") == b"false")
        or ("sloppy" in names and operation.get_attr("sloppy"))
    )
