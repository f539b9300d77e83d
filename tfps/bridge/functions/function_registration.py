"""Registers traced functions without holding Python's lock (the GIL), and removes them late."""

from __future__ import annotations

import collections
import ctypes
import functools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.tensorflow_private import RUNTIME_FUNCTION_REFS, Context

logger = logging.getLogger(__name__)

# A task replies within milliseconds; a probe waits as long.
SAID_AFTER_S = 3.0


class _Runtime(NamedTuple):
    """TensorFlow's C functions; `ctypes` releases Python's lock while they run."""

    add_function: Callable[[int, int, int], None]  # context, function, status
    add_definition: Callable[[int, bytes, int, int], None]  # context, serialized, size, status
    new_status: Callable[[], int]
    delete_status: Callable[[int], None]
    code: Callable[[int], int]
    message: Callable[[int], bytes]


@functools.cache
def runtime() -> _Runtime:
    """Return TensorFlow's C functions, from the libraries that this process has already loaded."""
    folder = Path(tf.sysconfig.get_lib())
    compiled = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"))
    framework = ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))
    pointer = ctypes.c_void_p

    def typed(function: Any, result: Any, *arguments: Any) -> Any:
        function.restype, function.argtypes = result, arguments
        return function

    return _Runtime(
        add_function=typed(compiled.TFE_ContextAddFunction, None, pointer, pointer, pointer),
        add_definition=typed(
            compiled.TFE_ContextAddFunctionDef,
            None,
            pointer,
            ctypes.c_char_p,
            ctypes.c_size_t,
            pointer,
        ),
        new_status=typed(framework.TF_NewStatus, pointer),
        delete_status=typed(framework.TF_DeleteStatus, None, pointer),
        code=typed(framework.TF_GetCode, ctypes.c_int, pointer),
        message=typed(framework.TF_Message, ctypes.c_char_p, pointer),
    )


def register_without_lock() -> None:
    """Release Python's lock while TensorFlow registers a function with every task.

    TensorFlow waits for each task's reply, without a deadline, and its Python binding holds the
    lock meanwhile. If one task is stopped at that moment, nothing else in this process could run,
    neither Ctrl-C nor the probes that find out what is wrong.
    """
    if getattr(Context, "_tfps_registers", False):
        return
    runtime()  # load it here, where an error is visible

    def add_c_function(self: Any, function: Any) -> None:
        self.ensure_initialized()
        where = _pointer_of_capsule(self._handle)
        _aside(lambda status: runtime().add_function(where, address_of(function), status))

    def add_function_def(self: Any, definition: Any) -> None:
        self.ensure_initialized()
        where, text = _pointer_of_capsule(self._handle), definition.SerializeToString()
        _aside(lambda status: runtime().add_definition(where, text, len(text), status))

    Context.add_c_function = add_c_function
    Context.add_function_def = add_function_def
    Context._tfps_registers = True


_collected: collections.deque[tuple[Any, str]] = collections.deque()
_forgotten: list[tuple[Any, str]] = []  # removed on the tasks; still registered here


def hold_back_removals() -> None:
    """Keep garbage-collected functions registered as long as this process is connected to tasks.

    TensorFlow sends a removal to every task, without a deadline and holding Python's lock: if one
    task is stopped, a garbage collection would freeze this process. Removing without Python's lock
    could deadlock: the removal locks the kernel cache and then takes Python's lock to free the
    function's stack traces, while the owner of Python's lock may wait for the cache (TensorFlow
    2.21, `EagerContext::RemoveFunction` and `StackTrace::Clear`).
    """
    if getattr(Context, "_tfps_holds_back", False):
        return

    def remove_function(self: Any, name: str) -> None:
        if _has_tasks(self):
            _collected.append((self, name))
        else:
            self._tfps_remove_function(name)

    Context._tfps_remove_function = Context.remove_function
    Context.remove_function = remove_function
    Context._tfps_holds_back = True


def collected_functions() -> list[str]:
    """Return the functions collected since the last call, which tasks may now remove.

    In this process they stay registered until `disconnected`. Names are never used again.
    """
    names = []
    while _collected:
        where, name = _collected.popleft()
        # The entry disappears only after the removal; until then its count is 0.
        if not RUNTIME_FUNCTION_REFS.get((where.function_scope_id, name)):
            _forgotten.append((where, name))
            names.append(tf.compat.as_str(name))
    return names


def disconnected() -> None:
    """Remove the collected functions, now that no task has to be informed."""
    collected_functions()
    while _forgotten:
        where, name = _forgotten.pop()
        where._tfps_remove_function(name)


def _has_tasks(context: Any) -> bool:
    """Return whether the context is connected to other tasks, which hear of each function."""
    definition = context._server_def
    return definition is not None and sum(len(job.tasks) for job in definition.cluster.job) > 1


def _aside(call: Callable[[int], None]) -> None:
    """Call a C function with a new status on a separate thread, so that Ctrl-C ends the wait."""
    outcome: Future[tuple[int, str]] = Future()

    def run() -> None:
        status = runtime().new_status()
        try:
            call(status)
            text = runtime().message(status).decode(errors="replace")
            outcome.set_result((runtime().code(status), text))
        except BaseException as error:  # noqa: BLE001 - raised again where the outcome is awaited
            outcome.set_exception(error)
        finally:
            runtime().delete_status(status)

    threading.Thread(target=run, name="tfps-register", daemon=True).start()
    if not wait([outcome], timeout=SAID_AFTER_S).done:
        logger.warning(
            "One task of the cluster does not reply, and TensorFlow needs all tasks to register "
            "a function. Resume the task (SIGCONT), or kill it and start it again."
        )
    code, message = outcome.result()
    if code:
        raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, message)


def address_of(wrapped: Any) -> int:
    """Return the address of the C++ object that a Python object of pybind11 wraps."""
    # struct instance of pybind11/detail/common.h: the address follows the header of the object.
    address = ctypes.c_void_p.from_address(id(wrapped) + object.__basicsize__).value
    assert address is not None
    return address


def _pointer_of_capsule(capsule: Any) -> int:
    name = ctypes.pythonapi.PyCapsule_GetName  # None up to TensorFlow 2.21
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, name(capsule)))
