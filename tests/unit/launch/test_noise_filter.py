"""The lines that libraries write by themselves, and that no line is lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tfps.launch.noise_filter import LineSorter, sort_lines

# As written by TensorFlow 2.21 and its libraries.
NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795241491.287833    5726 cudart_stub.cc:31] Could not find cuda drivers on your machine
I0000 00:00:1795241491.430497    5726 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the \
appropriate compiler flags.
E0000 00:00:1795241506.304509    5726 cuda_platform.cc:52] failed call to cuInit: INTERNAL
2026-11-21 06:06:50.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
2026-11-21 06:06:50.123456: W external/local_xla/xla/tsl/framework/cpu_allocator_impl.cc:83] 10%
W1121 06:06:50.123456  140123 context_distributed_manager.cc:1] Failed to remove function remotely
E1121 06:06:50.123456  140123 chttp2_transport.cc:1180] ipv4:127.0.0.1:1: connection refused
ERROR:tensorflow:Worker /job:worker/replica:0/task:1 failed with UnavailableError():Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling
:UNKNOWN:Error received from peer  {grpc_status:10, grpc_message:"Unable to find a context_id"}
This could happen if the remote target has been disconnected from the client.
W0000 00:00:1795241506.304509    5726 local_rendezvous.cc:404] is aborting with status: INVALID
\t [[{{node while}}]]
I0000 00:00:1795241506.304509    5726 eager_service_impl.cc:355] SessionOptions: goo.gle/debugstr
device_count {
  key: "CPU"
}
allow_soft_placement: true
experimental {
  collective_group_leader: "/job:ps/replica:0/task:0"
}

"""
OTHER = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("wrong")
ValueError: wrong
/home/me/train.py:3: UserWarning: that is odd
  warnings.warn("that is odd")
Epoch 1/3
loss: 0.3
:-)
WARNING: my own warning
INFO:root:mine
INFO:tensorflow_probability:mine
I think so
W1121 06:06:50.123456 140123 train.py:12] written with absl by a user's script
F0000 00:00:1795241506.304509    5726 tensor.cc:12] Check failed: it is over
Fatal Python error: Segmentation fault
"""


def test_lines_of_libraries_and_of_users() -> None:
    sorter = LineSorter()
    for line in NOISE.encode().split(b"\n")[:-1]:
        assert sorter.is_noise(line), line
    for line in OTHER.encode().splitlines():
        assert not sorter.is_noise(line), line


def test_a_users_indented_line_is_noise_only_as_part_of_one() -> None:
    sorter = LineSorter()
    first = b"E0000 00:00:1795241506.304509    5726 cuda_platform.cc:52] failed call to cuInit"
    assert [
        sorter.is_noise(line) for line in (b"  a", first, b"  b", b"c", b"  d", b"loss: 3")
    ] == [False, True, True, False, False, False]


def _sorted(chunks: list[bytes], tmp_path: Path) -> tuple[bytes, bytes]:
    read_end, write_end = os.pipe()
    shown, log = tmp_path / "shown", tmp_path / "log"
    with shown.open("wb") as target, log.open("wb") as rest:
        thread = threading.Thread(
            target=sort_lines, args=(read_end, target.fileno(), rest.fileno())
        )
        thread.start()
        for chunk in chunks:
            os.write(write_end, chunk)
        os.close(write_end)
        thread.join(20)
        assert not thread.is_alive()
    os.close(read_end)
    return shown.read_bytes(), log.read_bytes()


@given(
    st.lists(st.sampled_from((NOISE + OTHER).encode().splitlines(keepends=True)), max_size=30),
    st.lists(st.integers(1, 60), min_size=1, max_size=10),
    st.booleans(),
)
@settings(deadline=None)
def test_every_line_arrives_once_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sizes: list[int], cut_end: bool
) -> None:
    data = b"".join(lines)
    if cut_end and data.endswith(b"\n"):
        data = data[:-1]
    chunks, position, turn = [], 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        chunks.append(data[position : position + size])
        position, turn = position + size, turn + 1
    shown, log = _sorted(chunks, tmp_path_factory.mktemp("sorted"))
    assert sorted((shown + b"\n" + log).split()) == sorted(data.split())


def test_sorting(tmp_path: Path) -> None:
    shown, log = _sorted([(OTHER + NOISE).encode()], tmp_path)
    assert shown.decode() == OTHER
    assert log.decode() == NOISE


def test_a_prompt_is_shown_before_its_line_ends(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    shown_read, shown_write = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        arguments = (read_end, shown_write, log.fileno())
        thread = threading.Thread(target=sort_lines, args=arguments)
        thread.start()
        os.write(write_end, b"continue? ")
        assert os.read(shown_read, 100) == b"continue? "
        os.write(write_end, b"yes\n")
        assert os.read(shown_read, 100) == b"yes\n"
        os.close(write_end)
        thread.join(20)
    for number in (read_end, shown_read, shown_write):
        os.close(number)


SCRIPT = """
import os, sys, warnings
from pathlib import Path
from tfps.launch.noise import install_noise_filter
install_noise_filter(Path(sys.argv[1])); install_noise_filter(Path(sys.argv[1]))
os.write(2, b'I0000 00:00:1795241506.304509    5726 a.cc:1] noise\\n')
print('shown', file=sys.stderr)
os.write(2, b'last words of C code\\n')
import logging
logging.getLogger('tensorflow').warning('of TensorFlow')
logging.getLogger('mine').warning('of mine')
print(sys.stderr.isatty())
exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("pass", 0, ""),
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("os.abort()", -signal.SIGABRT, ""),
        ("os._exit(4)", 4, ""),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    ],
)
def test_the_last_lines_survive_every_end(
    tmp_path: Path, end: str, status: int, words: str
) -> None:
    log, errors = tmp_path / "log", tmp_path / "errors"
    with errors.open("wb") as stream:
        arguments = [sys.executable, "-c", SCRIPT, str(log), end]
        process = subprocess.run(
            arguments, stderr=stream, stdout=subprocess.PIPE, timeout=60, check=False
        )
    assert process.returncode == status
    ends_at = time.monotonic() + 10
    while "last words" not in errors.read_text() and time.monotonic() < ends_at:
        time.sleep(0.02)
    text = errors.read_text()
    for line in ("shown\n", "last words of C code\n", "of mine\n", words):
        assert line in text
    assert "a.cc" not in text
    assert "of TensorFlow" not in text
    assert "a.cc:1] noise\n" in log.read_text()
    assert "WARNING:tensorflow:of TensorFlow\n" in log.read_text()
