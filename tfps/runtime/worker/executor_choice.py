"""Chooses the executor of TensorFlow that runs a worker's closure. Pure.

By default TensorFlow passes every operation that becomes ready to a thread pool, one by one. The
single-threaded executor does not, which makes steps of many small operations faster. It keeps loops
functional, so their bodies miss TensorFlow's rewrites, such as those to kernels of oneDNN, and it
does not report which operation has failed.
"""

from __future__ import annotations

from typing import NamedTuple

# The most conditions inside one another. Each blocks a thread of the worker while its branch runs,
# and so does the function itself; the other threads are for the input and the coordinator.
MAX_DEPTH = 2
# The threads that the chief's TensorFlow needs, however many workers there are: a closure of one
# thread with a dataset among its arguments blocks two of them until a third one has sent it.
LEAST_CHIEF_THREADS = 4
# The numbers of a matrix from which several threads, or a kernel of oneDNN, are worth more.
LARGE_MATRIX = 2**20

REWRITTEN = ("Conv", "DepthwiseConv", "Fused", "AvgPool", "MaxPool", "Einsum", "LRN", "Fft", "FFT")
CHECKS = ("Assert", "CheckNumerics", "Print")
PYTHON_FUNCTIONS = ("EagerPyFunc", "PyFuncStateless")
# The executor refuses the first ones; all belong to control flow of TensorFlow 1.
NOT_SUPPORTED = (
    *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "Ref", "Collective"),
)


class GraphFacts(NamedTuple):
    """The properties of a closure's graph, its functions included, on which the choice depends."""

    kinds: frozenset[str]  # the types of operations
    carrier: str = "direct"
    is_one_cpu: bool = True  # whether the step runs on the only CPU device of a worker
    # The threads between operations of the chief, which are few if TensorFlow started before tfps.
    chief_threads: int = LEAST_CHIEF_THREADS
    calls_outside_loop: bool = False  # whether it calls functions outside of the loop of steps
    depth: int = 0  # the number of conditions inside one another
    largest_matrix: int = 0  # the size of the largest constant factor of a product
    unnamed_operation: str = ""  # one that may fail, and whose error shows its name or line


class ExecutorChoice(NamedTuple):
    """Whether a worker's closure runs on one thread, and the reason."""

    is_one_thread: bool
    reason: str

    def __str__(self) -> str:
        return f"{'one thread' if self.is_one_thread else 'thread pool'}: {self.reason}"


def choose_executor(facts: GraphFacts) -> ExecutorChoice:
    """Choose one thread for a graph of small operations whose errors need no name.

    Example:

    >>> str(choose_executor(GraphFacts(frozenset({"MatMul", "Relu"}))))
    'one thread: the step has small operations only'
    >>> str(choose_executor(GraphFacts(frozenset({"MatMul", "Conv2D"}))))
    'thread pool: Conv2D is faster with several threads or a rewrite'
    """
    reason = _find_reason_for_pool(facts)
    return ExecutorChoice(not reason, reason or "the step has small operations only")


def _find_reason_for_pool(facts: GraphFacts) -> str:
    """Return why the thread pool of TensorFlow runs a graph; empty if one thread does."""
    if facts.carrier != "direct":
        return f"calls over {facts.carrier} wait for servers at the same time"
    if not facts.is_one_cpu:
        return "the step runs on a GPU or on several devices"
    if facts.chief_threads < LEAST_CHIEF_THREADS:
        return (
            f"the chief started TensorFlow before the strategy, with {facts.chief_threads} threads"
        )
    for prefixes, text in (
        (NOT_SUPPORTED, "is not supported on one thread"),
        (CHECKS, "would not be named in its error on one thread"),
        (PYTHON_FUNCTIONS, "calls Python"),
        (REWRITTEN, "is faster with several threads or a rewrite"),
    ):
        if found := sorted(kind for kind in facts.kinds if kind.startswith(prefixes)):
            return f"{found[0]} {text}"
    if facts.largest_matrix >= LARGE_MATRIX:
        return f"a product has a matrix of {facts.largest_matrix:,} numbers"
    if facts.unnamed_operation:
        return f"{facts.unnamed_operation} would not be named in its error on one thread"
    if facts.calls_outside_loop:
        return "a function is called outside of the loop of steps"
    if facts.depth > MAX_DEPTH:
        return f"{facts.depth} conditions inside one another would block as many threads"
    return ""
