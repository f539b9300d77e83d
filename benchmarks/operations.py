"""Operations of a worker's step of `fit`, by the module that makes them, as they are traced.

Constants are not counted, nor what runs on servers. One process suffices, since the graph is that
of a cluster with as many servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

import tfps
from benchmarks.categories import FEATURES, TableModel
from benchmarks.examples import Examples
from benchmarks.workload import MODELS

BATCH, CLASSES = 64, 10
NOT_COUNTED = ("Const", "NoOp", "Placeholder")
OF_MODEL, OF_SERVER = "the model", "bridge/functions/server_function.py"
TENSORFLOW = "/tensorflow/python/"
PACKAGE = Path(tfps.__file__).parent


def _images() -> Examples:
    random = np.random.default_rng(0)
    images = random.uniform(size=(BATCH, 28, 28)).astype("float32")
    return Examples(images, random.integers(0, CLASSES, BATCH), BATCH)


def _tables() -> tuple[Any, Examples]:
    model = TableModel(FEATURES, rows=50_000)
    return model, model.examples("uniform", batch_size=BATCH)


PROGRAMS: dict[str, Callable[[], tuple[Any, Examples]]] = {
    "mlp": lambda: (MODELS["mlp"], _images()),
    "layers": lambda: (MODELS["layers"], _images()),
    "tables": _tables,
}


@click.command()
@click.argument("program", type=click.Choice(sorted(PROGRAMS)))
@click.option("--ps", default=2, show_default=True, type=click.IntRange(1), help="Servers.")
def operations(program: str, ps: int) -> None:
    """Count the operations of a worker's step, by module."""
    model, examples = PROGRAMS[program]()
    counted = count_operations(trace_step(model, examples, ps=ps))
    click.echo(f"{counted.total():6,} operations")
    for module, number in counted.most_common():
        click.echo(f"{number:6,} {module}")


def trace_step(model: Any, examples: Examples, *, ps: int) -> Any:
    """Train one step in this process, and return the graph of the worker's closure."""
    import keras

    from tfps.testing import InProcessCluster

    with InProcessCluster(workers=1, ps=ps) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, tfps.partitioners.RowShuffle()
        )
        with strategy.scope():
            built = model.build(keras)
            loss, accuracy = model.loss_and_accuracy(keras)
            built.compile(model.optimizer(keras), loss, metrics=[accuracy])
        built.fit(*examples.arrays(1), batch_size=examples.batch_size, verbose=0)
        (compiled,) = built.train_function.compiler.compiled.values()
        (closure,) = compiled.traced.values()
    return closure.graph


def count_operations(graph: Any) -> Counter[str]:
    """Count a graph's operations by the module of tfps that calls TensorFlow; Keras's are one."""
    from tfps.bridge.functions.traced_graph import iter_operations

    counted = Counter[str]()
    for operation in iter_operations(graph):
        files = [Path(frame.filename) for frame in operation.traceback or ()]
        modules = [_module_of(file) for file in files if file.is_relative_to(PACKAGE)]
        if operation.type not in NOT_COUNTED and OF_SERVER not in modules:
            callers = [file for file in files if TENSORFLOW not in file.as_posix()]
            is_own = bool(callers) and callers[-1].is_relative_to(PACKAGE)
            counted[_module_of(callers[-1]) if is_own else OF_MODEL] += 1
    return counted


def _module_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()
