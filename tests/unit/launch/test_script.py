"""A script under `tfps run` sees what it sees under `python`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

RUN = (
    "import sys; from tfps.launch.script import exit_status_of, run_script;"
    "from functools import partial; from tfps.launch.exit import end_process;"
    "end_process(exit_status_of(partial(run_script, sys.argv[1], sys.argv[2:])))"
)


def _run(script: Path, *arguments: str, plain: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script)] if plain else [sys.executable, "-c", RUN, str(script)]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=script.parent.parent,
    )


SCRIPTS = {
    "names": "import sys; print(__name__, __file__, sys.argv, sys.path[0], __builtins__)\n"
    "import neighbour; print(neighbour.__file__)\n"
    "import __main__; X = 3; print(__main__.X)\n"
    "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))\n"
    "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))\n"
    "x: 'undefined' = 1\nprint(__annotations__)",
    "traceback": "def f():\n    raise ValueError('wrong')\nf()",
    "chain": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError from e",
    "syntax": "print('never'\n",
    "exit 3": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('that went wrong')",
    "exit none": "raise SystemExit",
    "hook": "import sys; sys.excepthook = lambda *a: print('mine', a[0]); 1/0",
    "atexit": "import atexit; atexit.register(print, 'at exit'); print('first')",
    "thread": "import threading, time\n"
    "def f(): time.sleep(0.3); print('thread')\nthreading.Thread(target=f).start()",
    "pool": "from concurrent.futures import ThreadPoolExecutor as P\n"
    "p = P(1); p.submit(print, 'pool')",
    "unflushed": "import sys; sys.stdout.write('no line end')",
    "spawn": "import multiprocessing as m\ndef f(): print('spawned', flush=True)\n"
    "if __name__ == '__main__':\n"
    "    p = m.get_context('spawn').Process(target=f); p.start(); p.join()",
}


@pytest.mark.quick("traceback", "exit 3", "names")
@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_python(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "neighbour.py").write_text("")
    script = folder / "train.py"
    script.write_text(SCRIPTS[name])
    plain = _run(script, "--epochs", "3", plain=True)
    ours = _run(script, "--epochs", "3", plain=False)
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr


def test_an_exception_has_the_status_that_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('lost')")
    run = RUN.replace("argv[2:])", "argv[2:]), status_of_error=lambda error: 75")
    result = subprocess.run(
        [sys.executable, "-c", run, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 75
    assert result.stderr.endswith("ValueError: lost\n")


INTERRUPTED = "import os, signal, time\n{}\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"


@pytest.mark.quick("False-*")
@pytest.mark.parametrize(("supervised", "said"), [(False, "tfps: SIGINT: stopped\n"), (True, "")])
def test_ctrl_c_is_no_traceback(tmp_path: Path, supervised: bool, said: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(INTERRUPTED.format(""))
    run = RUN.replace("argv[2:])", f"argv[2:]), supervised={supervised}")
    result = subprocess.run(
        [sys.executable, "-c", run, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", said)


@pytest.mark.rare
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("try:\n{}\nexcept KeyboardInterrupt:\n    print('caught')", 0),
        ("import sys\nsys.excepthook = lambda kind, *_: print('caught')\nif True:\n{}", 130),
    ],
)
def test_ctrl_c_is_the_scripts_where_it_wants_it(tmp_path: Path, code: str, status: int) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text(code.format(textwrap.indent(INTERRUPTED.format(""), "    ")))
    result = _run(script, plain=False)
    assert (result.returncode, result.stdout, result.stderr) == (status, "caught\n", "")


def test_end_process_skips_only_the_teardown(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from tfps.launch.exit import end_process\n"
        "class A:\n    def __del__(self): print('teardown')\n"
        "a = A(); atexit.register(print, 'first'); atexit.register(print, 'second')\n"
        "end_process(5)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 5
    assert result.stdout == "second\nfirst\n"
