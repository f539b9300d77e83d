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
WARN_AFTER_S = 3.0


class _RuntimeFunctions(NamedTuple):
    """TensorFlow's C functions; `ctypes` releases Python's lock while they run."""

    add_function: Callable[[int, int, int], None]  # context, function, status
    add_definition: Callable[[int, bytes, int, int], None]  # context, serialized, size, status
    new_status: Callable[[], int]
    delete_status: Callable[[int], None]
    code: Callable[[int], int]
    message: Callable[[int], bytes]
    export_metadata: Callable[[int, Any, int], None]  # context, buffer, status
    new_buffer: Callable[[], Any]
    delete_buffer: Callable[[Any], None]


class _Buffer(ctypes.Structure):
    """A ``TF_Buffer`` of TensorFlow's C interface."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    )


@functools.cache
def load_runtime_functions() -> _RuntimeFunctions:
    """Return TensorFlow's C functions, from the libraries that this process has already loaded."""
    folder = Path(tf.sysconfig.get_lib())
    compiled = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"))
    framework = ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))
    pointer, buffer = ctypes.c_void_p, ctypes.POINTER(_Buffer)

    def set_types(function: Any, result: Any, *arguments: Any) -> Any:
        function.restype, function.argtypes = result, arguments
        return function

    return _RuntimeFunctions(
        add_function=set_types(compiled.TFE_ContextAddFunction, None, pointer, pointer, pointer),
        add_definition=set_types(
            compiled.TFE_ContextAddFunctionDef,
            None,
            pointer,
            ctypes.c_char_p,
            ctypes.c_size_t,
            pointer,
        ),
        new_status=set_types(framework.TF_NewStatus, pointer),
        delete_status=set_types(framework.TF_DeleteStatus, None, pointer),
        code=set_types(framework.TF_GetCode, ctypes.c_int, pointer),
        message=set_types(framework.TF_Message, ctypes.c_char_p, pointer),
        export_metadata=set_types(
            compiled.TFE_ContextExportRunMetadata, None, pointer, buffer, pointer
        ),
        new_buffer=set_types(framework.TF_NewBuffer, buffer),
        delete_buffer=set_types(framework.TF_DeleteBuffer, None, buffer),
    )


def patch_function_registration() -> None:
    """Release Python's lock while TensorFlow registers a function or exports a profile.

    TensorFlow waits for each task's reply, without a deadline, and its Python binding holds the
    lock meanwhile. If one task is stopped at that moment, nothing else in this process could run,
    neither Ctrl-C nor the probes that find out what is wrong.

    `tf.summary.trace_export`, which `keras.callbacks.TensorBoard` calls at the end of a profile,
    waits for functions of this process. A `tf.py_function` of theirs would wait for the lock.
    """
    if getattr(Context, "_tfps_releases_lock", False):
        return
    load_runtime_functions()  # load it here, where an error is visible

    def add_c_function(self: Any, function: Any) -> None:
        self.ensure_initialized()
        context = _get_capsule_pointer(self._handle)
        _call_on_thread(
            lambda status: load_runtime_functions().add_function(
                context, get_wrapped_address(function), status
            )
        )

    def add_function_def(self: Any, definition: Any) -> None:
        self.ensure_initialized()
        context, text = _get_capsule_pointer(self._handle), definition.SerializeToString()
        _call_on_thread(
            lambda status: load_runtime_functions().add_definition(context, text, len(text), status)
        )

    def export_run_metadata(self: Any) -> Any:
        if not self._context_handle:
            return None
        context, buffer = _get_capsule_pointer(self._handle), load_runtime_functions().new_buffer()
        try:
            _call(lambda status: load_runtime_functions().export_metadata(context, buffer, status))
            data = ctypes.string_at(buffer.contents.data, buffer.contents.length)
        finally:
            load_runtime_functions().delete_buffer(buffer)
        return tf.compat.v1.RunMetadata.FromString(data)

    Context.export_run_metadata = export_run_metadata
    Context.add_c_function = add_c_function
    Context.add_function_def = add_function_def
    Context._tfps_releases_lock = True


_collected_functions: collections.deque[tuple[Any, str]] = collections.deque()
_removed_on_tasks: list[tuple[Any, str]] = []  # removed on the tasks; still registered here


def patch_function_removal() -> None:
    """Keep garbage-collected functions registered as long as this process is connected to tasks.

    TensorFlow sends a removal to every task, without a deadline and holding Python's lock: if one
    task is stopped, a garbage collection would freeze this process. Removing without Python's lock
    could deadlock: the removal locks the kernel cache and then takes Python's lock to free the
    function's stack traces, while the owner of Python's lock may wait for the cache (TensorFlow
    2.21, `EagerContext::RemoveFunction` and `StackTrace::Clear`).
    """
    if getattr(Context, "_tfps_defers_removal", False):
        return

    def remove_function(self: Any, name: str) -> None:
        if _is_connected_to_tasks(self):
            _collected_functions.append((self, name))
        else:
            self._tfps_remove_function(name)

    Context._tfps_remove_function = Context.remove_function
    Context.remove_function = remove_function
    Context._tfps_defers_removal = True


def take_collected_functions() -> list[str]:
    """Return the functions collected since the last call, for tasks to remove.

    In this process they stay registered until `remove_collected_functions`. Names are never reused.
    """
    names = []
    while _collected_functions:
        context, name = _collected_functions.popleft()
        # The entry disappears only after the removal; until then its count is 0.
        if not RUNTIME_FUNCTION_REFS.get((context.function_scope_id, name)):
            _removed_on_tasks.append((context, name))
            names.append(tf.compat.as_str(name))
    return names


def remove_collected_functions() -> None:
    """Remove the collected functions, now that no task has to be informed."""
    take_collected_functions()
    while _removed_on_tasks:
        context, name = _removed_on_tasks.pop()
        context._tfps_remove_function(name)


def _is_connected_to_tasks(context: Any) -> bool:
    """Return whether the context is connected to other tasks."""
    definition = context._server_def
    return definition is not None and sum(len(job.tasks) for job in definition.cluster.job) > 1


def _call_on_thread(call: Callable[[int], None]) -> None:
    """Call a C function with a new status on a separate thread, so that Ctrl-C ends the wait."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            _call(call)
            outcome.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the outcome is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, name="tfps-register", daemon=True).start()
    if not wait([outcome], timeout=WARN_AFTER_S).done:
        logger.warning(
            "One task of the cluster does not reply, and TensorFlow needs all tasks to register "
            "a function. Resume the task (SIGCONT), or kill it and start it again."
        )
    outcome.result()


def _call(call: Callable[[int], None]) -> None:
    """Call a C function with a new status; raise the error that it reports."""
    status = load_runtime_functions().new_status()
    try:
        call(status)
        code, message = (
            load_runtime_functions().code(status),
            load_runtime_functions().message(status).decode(errors="replace"),
        )
    finally:
        load_runtime_functions().delete_status(status)
    if code:
        raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, message)


def get_wrapped_address(wrapped: Any) -> int:
    """Return the address of the C++ object that a Python object of pybind11 wraps."""
    # struct instance of pybind11/detail/common.h: the address follows the header of the object.
    address = ctypes.c_void_p.from_address(id(wrapped) + object.__basicsize__).value
    assert address is not None
    return address


def _get_capsule_pointer(capsule: Any) -> int:
    name = ctypes.pythonapi.PyCapsule_GetName  # None up to TensorFlow 2.21
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, name(capsule)))
