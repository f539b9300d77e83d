"""The commands of docker/Dockerfile and docker/compose.yaml, run as processes of this machine.

For machines without a Docker daemon: the build stage's commands in a clean environment, then one
process per service with the image's entry point, its command and its TF_CONFIG, where only the
addresses are other ones.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.project.dockerfile import Statement, statements
from tfps.cluster import PortLease, lease_ports

INSTALL_TIMEOUT_S = 900
TRAIN_TIMEOUT_S = 600
END_TIMEOUT_S = 60
# The job is the image's; only shorter, and with data that need no network.
SHORTER = ["--set", "training.epochs=1", "--set", 'data.source="subset"']


@dataclass
class Service:
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def parsed(root: Path) -> list[Statement]:
    return statements(root / "docker/Dockerfile")


@pytest.fixture(scope="module")
def prefix(
    parsed: list[Statement],
    root: Path,
    clean_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The files that the build stage installs, in a folder instead of /opt/tfps."""
    source = tmp_path_factory.mktemp("source")
    prefix = tmp_path_factory.mktemp("opt") / "tfps"
    given = dict(one.text.split("=") for one in parsed if one.instruction == "ARG")
    for one in (one for one in parsed if one.stage == 0):
        if one.instruction == "COPY":
            *names, target = one.text.split()
            for name in names:
                _copy(root / name, source / target)
        if one.instruction == "RUN":
            command = one.text.replace("/opt/tfps", str(prefix))
            if command.startswith("python "):
                command = f"{sys.executable} {command.removeprefix('python ')}"
            ran = subprocess.run(
                ["sh", "-c", command],
                cwd=source,
                env={**clean_environment, **given},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
            assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}"
    return prefix


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, target)


@pytest.fixture
def services(
    parsed: list[Statement],
    prefix: Path,
    root: Path,
    clean_environment: dict[str, str],
    tmp_path: Path,
) -> Iterator[dict[str, Service]]:
    """Every service of the compose file, started; none outlives the test."""
    declared: dict[str, Any] = yaml.safe_load((root / "docker/compose.yaml").read_text())[
        "services"
    ]
    entry = next(one.words for one in parsed if one.instruction == "ENTRYPOINT")
    assert entry[:2] == ["tini", "--"]
    with ExitStack() as stack:
        lease = stack.enter_context(lease_ports(len(declared)))
        ports = dict(zip(declared, lease.ports, strict=True))
        started: dict[str, Service] = {}
        for name, service in declared.items():
            folder = tmp_path / name
            folder.mkdir()
            tf_config = _on_loopback(service["environment"]["TF_CONFIG"], ports)
            process = subprocess.Popen(
                [prefix / "bin" / entry[2], *service["command"], *SHORTER],
                cwd=folder,
                env=clean_environment
                | {"TF_CONFIG": tf_config, PortLease.REUSE_PORT_VARIABLE: "true"},
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context((folder / "output.log").open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started[name] = Service(process, folder)
        yield started


def _on_loopback(tf_config: str, ports: dict[str, int]) -> str:
    content = json.loads(tf_config)
    content["cluster"] = {
        job: [f"127.0.0.1:{ports[address.partition(':')[0]]}" for address in addresses]
        for job, addresses in content["cluster"].items()
    }
    return json.dumps(content)


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + TRAIN_TIMEOUT_S + 300)
def test_the_services_train_and_all_end_with_0(services: dict[str, Service]) -> None:
    chief = services["chief"]
    status = chief.process.wait(TRAIN_TIMEOUT_S)
    assert status == 0, "\n".join(
        f"== {name}\n{one.output[-2000:]}" for name, one in services.items()
    )
    ended = {name: one.process.wait(END_TIMEOUT_S) for name, one in services.items()}
    assert ended == dict.fromkeys(services, 0)
    (result,) = (chief.folder / "runs").rglob("result.json")
    assert json.loads(result.read_text())["test_accuracy"] > 0.5
    # Only the chief writes results.
    for name in ("worker-0", "worker-1", "ps-0"):
        assert [path.name for path in services[name].folder.iterdir()] == ["output.log"]
