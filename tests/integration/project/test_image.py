"""docker/Dockerfile: what each statement promises; built and run where a Docker daemon runs."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.project.dockerfile import Statement, statements
from tfps.tested_versions import list_known_releases


@pytest.fixture(scope="module")
def parsed(root: Path) -> list[Statement]:
    return statements(root / "docker/Dockerfile")


@pytest.fixture(scope="module")
def final(parsed: list[Statement]) -> dict[str, str]:
    """The last word of each instruction in the image that is run."""
    last_stage = parsed[-1].stage
    return {one.instruction: one.text for one in parsed if one.stage == last_stage}


def test_both_stages_start_from_the_pinned_slim_image(parsed: list[Statement]) -> None:
    bases = [one.text.split()[0] for one in parsed if one.instruction == "FROM"]
    assert bases == ["python:3.12-slim-bookworm"] * 2


def test_the_process_is_not_root(parsed: list[Statement], final: dict[str, str]) -> None:
    assert final["USER"] == "tfps"
    assert any("useradd" in one.text for one in parsed if one.instruction == "RUN")
    order = [one.instruction for one in parsed]
    assert order.index("USER") > max(i for i, name in enumerate(order) if name == "RUN")


def test_tini_is_process_1_and_starts_tfps(parsed: list[Statement], final: dict[str, str]) -> None:
    entry = next(one for one in parsed if one.instruction == "ENTRYPOINT")
    assert entry.words == ["tini", "--", "tfps"]
    assert next(one for one in parsed if one.instruction == "CMD").words == ["train"]
    assert any("install" in one.text and " tini" in one.text for one in parsed)
    assert "/opt/tfps/bin:" in final["ENV"]


def test_versions_are_locked(parsed: list[Statement]) -> None:
    installs = [one.text for one in parsed if "pip install" in one.text]
    assert installs
    assert all("-c ${CONSTRAINTS}" in text for text in installs)
    defaults = [one.text for one in parsed if one.instruction == "ARG"]
    assert defaults == ["CONSTRAINTS=constraints.txt", f"KERAS={list_known_releases('keras')[0]}"]


def test_what_is_copied_exists_and_reaches_the_build(parsed: list[Statement], root: Path) -> None:
    allowed = [
        line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    copied = [
        source
        for one in parsed
        if one.instruction == "COPY" and not one.text.startswith("--from")
        for source in one.text.split()[:-1]
    ]
    assert set(copied) == set(allowed)
    for source in copied:
        assert (root / source).exists()
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed)


def docker(*words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="module")
def image(root: Path) -> str:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    result = docker("version", timeout_s=30)
    if result.returncode != 0:
        pytest.skip(f"no Docker daemon responds: {result.stderr.strip().splitlines()[-1]}")
    built = docker(
        "build", "-f", f"{root}/docker/Dockerfile", "-t", "tfps", str(root), timeout_s=1500
    )
    assert built.returncode == 0, built.stderr[-4000:]
    return "tfps"


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_image_trains_the_reference_job(image: str) -> None:
    result = docker("run", "--rm", image, "--version", timeout_s=120)
    assert (result.returncode, result.stdout.split()[0]) == (0, "tfps,"), result.stderr
    trained = docker("run", "--rm", image, "train", timeout_s=1200)
    assert trained.returncode == 0, trained.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_compose_trains_and_every_task_ends_with_0(image: str, root: Path) -> None:
    if docker("compose", "version", timeout_s=30).returncode != 0:
        pytest.skip("the compose plugin of docker is not installed")
    compose = ("compose", "-f", f"{root}/docker/compose.yaml", "-p", "tfps-test")
    try:
        ran = docker(*compose, "up", "--no-build", "--abort-on-container-failure", timeout_s=1200)
        assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
        listed = docker(
            *compose, "ps", "--all", "--format", "{{.Service}} {{.ExitCode}}", timeout_s=60
        )
        assert sorted(listed.stdout.split("\n")[:-1]) == [
            "chief 0",
            "ps-0 0",
            "worker-0 0",
            "worker-1 0",
        ]
    finally:
        docker(*compose, "down", "--volumes", timeout_s=120)
