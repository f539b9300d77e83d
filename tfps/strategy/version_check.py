"""Decides, at the first strategy, whether versions newer than the tested ones may be used.

Names are compared at import. Here the parameters of functions are compared, and a program trains
and compares numbers in a process of its own; what has passed is remembered for the environment.
Tested versions pay nothing, and only chiefs make strategies.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tfps
from tfps.bridge.private_names import (
    UNTESTED_VARIABLE,
    check_attributes,
    find_changed_parameters,
    find_newer_packages,
    format_refusal,
    get_version,
    untested_is_allowed,
)
from tfps.bridge.private_places import PACKAGES
from tfps.errors import UnsupportedError
from tfps.package_versions import task_versions

PROGRAM = "tfps.job.version_check"
DEADLINE_S = 600.0

logger = logging.getLogger(__name__)


class VersionCheck:
    """Checks versions newer than the tested ones, once for each process.

    Args:
        run: runs the program that compares numbers; returns why it failed, or an empty text.
    """

    def __init__(self, run: Callable[[], str]) -> None:
        self._run, self._lock = run, threading.Lock()
        self._accepted: set[str] = set()

    def check(self) -> None:
        """Refuse versions newer than the tested ones that fail the check; warn of others, once.

        Raises:
            UnsupportedError: functions have other parameters, or the numbers differ.
            ImportError: private attributes are missing.
            ConfigError: ``TFPS_UNTESTED`` has another value than 1.
        """
        newer = find_newer_packages()
        if not newer:
            return
        with self._lock:
            names = " and ".join(f"{PACKAGES[name].title} {get_version(name)}" for name in newer)
            if names in self._accepted:
                return
            if untested_is_allowed():
                checked = f"{UNTESTED_VARIABLE}=1 skips the check"
            else:
                self._refuse_failing(names)
                checked = "the check has passed"
            self._accepted.add(names)
            logger.warning("not tested with %s; %s", names, checked)

    def _refuse_failing(self, names: str) -> None:
        check_attributes()  # the program below would run without those that are missing
        changed = find_changed_parameters()
        if changed:
            raise UnsupportedError(
                format_refusal(f"These functions have changed: {'; '.join(changed)}.")
            )
        passed = _record()
        if passed.exists():
            return
        logger.info("trying %s, which takes half a minute, once in this environment", names)
        failure = self._run()
        if failure:
            raise UnsupportedError(format_refusal(f"The check failed: {failure}."))
        try:
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.write_text(json.dumps(_environment(), indent=1))
        except OSError as error:  # a machine without a home: the check runs again
            logger.warning("could not remember that the check has passed: %s", error)


def run_program(program: str = PROGRAM) -> str:
    """Run the program that trains and compares; return why it failed, or an empty text.

    Args:
        program: the module that is run.
    """
    home = str(Path(tfps.__file__).resolve().parent.parent)
    environment = os.environ | {
        UNTESTED_VARIABLE: "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")])),
    }
    environment.pop("TF_CONFIG", None)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", program],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"python -m {program} took more than {DEADLINE_S:.0f} s"
    if ended.returncode == 0:
        return ""
    lines = ended.stderr.strip().splitlines() or [f"python -m {program} printed nothing"]
    return f"{lines[-1]} (status {ended.returncode})"


check_newer_versions = VersionCheck(run_program).check


def _environment() -> dict[str, str | None]:
    """Return everything that the result of the check depends on."""
    return {**task_versions(), "numpy": np.__version__, "prefix": sys.prefix}


def _record() -> Path:
    """Return the file that exists when the check has passed in this environment."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    text = json.dumps(_environment(), sort_keys=True)
    return Path(cache) / "tfps" / f"checked-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
