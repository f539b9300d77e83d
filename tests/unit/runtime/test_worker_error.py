"""Errors of traced functions: the reason, the operation and the user's lines, and nothing else."""

from __future__ import annotations

import os
from traceback import FrameSummary

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.bridge.keras_patches import PACKAGE_FOLDER
from tfps.errors import UnsupportedError
from tfps.runtime.coordinator.worker_error import (
    find_operation,
    parse_graph_error,
    refuse_python_functions,
    select_user_frames,
    shorten_message,
)

LIBRARY = os.path.join(os.path.dirname(tf.__file__), "python", "ops.py")
DETECTED = "Detected at node a/b defined at (most recent call last):\n"
FRAMES = '  File "train.py", line 3, in <module>\n\n  File "train.py", line 9, in call\n\n'
APPENDIX = (
    "\n\t [[{{node a/b}}]]\nAdditional GRPC error information from remote target /job:worker:\n"
    ':UNKNOWN:Error received from peer  {grpc_message:"bad"} [Op:__inference_closure_1]'
)
TRACE = (
    "\nTraceback (most recent call last):\n\n"
    f'  File "{LIBRARY}", line 269, in __call__\n    ret = func(*args)\n          ^^^^^^\n\n'
    '  File "train.py", line 7, in wrong\n    raise KeyError("k")\n\n'
    "KeyError: 'k'\n"
)


@pytest.mark.parametrize(
    "message",
    [
        f"bad{APPENDIX}",
        f"Graph execution error:\n\n{DETECTED}{FRAMES}{DETECTED}{FRAMES}bad{APPENDIX}",
        f"Graph execution error:\n\n{DETECTED}<stack traces unavailable>\nbad{APPENDIX}",
        f"{{{{function_node __inference_1}}}} {{{{function_node __inference_2}}}} bad{APPENDIX}",
        "2 root error(s) found.\n  (0) INVALID_ARGUMENT: bad\n\t [[{{node a/b}}]]\n"
        "\t [[Func/x]]\n  (1) INVALID_ARGUMENT: worse\n\t [[{{node c}}]]\n0 successful operations.",
        "Graph execution error:\n\nFrom /job:ps/replica:0/task:0:\n  bad\n\t [[{{node a/b}}]]",
    ],
)
def test_reason_and_operation(message: str) -> None:
    assert parse_graph_error(message) == ("bad", "a/b", ())


def test_lines_of_a_python_function() -> None:
    error = parse_graph_error(f"KeyError: 'k'{TRACE}{APPENDIX}")
    assert error.reason == "KeyError: 'k'"
    assert [(frame.filename, frame.lineno) for frame in error.frames] == [("train.py", 7)]


@given(reason=st.from_regex(r"[a-z]([a-z (){},.=\-]{0,20}[a-z])?(\n[a-z]{1,9})?", fullmatch=True))
def test_every_reason_survives(reason: str) -> None:
    message = f"Graph execution error:\n\n{DETECTED}{FRAMES}{reason}{APPENDIX}"
    assert parse_graph_error(message).reason == reason


def _frames(*files: str) -> list[FrameSummary]:
    return [FrameSummary(file, number, "f") for number, file in enumerate(files)]


def test_only_lines_that_a_library_called_are_the_users() -> None:
    ours = os.path.join(PACKAGE_FOLDER, "training", "epoch_runner.py")
    frames = _frames(
        "<frozen runpy>", "train.py", ours, "model.py", LIBRARY, "layer.py", "<lambda>"
    )
    assert [frame.filename for frame in select_user_frames(frames)] == ["model.py", "layer.py"]
    assert select_user_frames(_frames("train.py")) == []
    start = os.path.join(PACKAGE_FOLDER, "launch", "script.py")
    frames = _frames(start, "train.py", ours, "model.py")
    assert [frame.filename for frame in select_user_frames(frames)] == ["model.py"]


def _nested() -> tf.Graph:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.debugging.check_numerics(x, "inner", name="deep")

    @tf.function(autograph=False)
    def outer(x: tf.Tensor) -> tf.Tensor:
        (y,) = tf.while_loop(lambda _: True, lambda x: [inner(x)], [x], maximum_iterations=2)
        return tf.identity(y, name="shallow")

    return outer.get_concrete_function(tf.TensorSpec([2])).graph


def test_operations_are_found_inside_loops_and_functions() -> None:
    graph = _nested()
    assert find_operation([graph], "shallow").type == "Identity"
    assert find_operation([graph], "while/body/_1/while/deep").type == "CheckNumerics"
    assert find_operation([tf.Graph(), graph], "deep").type == "CheckNumerics"
    assert find_operation([graph], "cond/shallow_tfg_inlined_cond_0").type == "Identity"
    assert find_operation([graph], "other") is None


def test_explained_error_keeps_its_type_and_is_explained_once() -> None:
    error = tf.errors.InvalidArgumentError(None, None, "bad\n\t [[{{node while/deep}}]]")
    for _ in range(2):
        shorten_message(error, [_nested()], place="on worker 1")
        assert str(error).startswith("bad\n\nRaised on worker 1 by deep (CheckNumerics)")


def test_other_errors_stay_as_they_are() -> None:
    error = ValueError("bad {{node a}}")
    shorten_message(error, [], place="on worker 1")
    assert str(error) == "bad {{node a}}"


def test_python_functions_are_refused_wherever_they_are() -> None:
    @tf.function(autograph=False)
    def outer(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 0, lambda: tf.py_function(lambda v: v, [x], tf.float32), lambda: x)

    with raises(
        UnsupportedError,
        "tf.py_function",
        received="EagerPyFunc (EagerPyFunc)",
        remedy="Dataset.map",
    ):
        refuse_python_functions(outer.get_concrete_function(tf.TensorSpec([])).graph)
    refuse_python_functions(_nested())
