"""Writes constraints.txt: one locked version per package that resolves on every supported Python.

Run it after a change of the dependencies, with the interpreters that the lock shall hold for:

    python .ci/lock.py python3.11 python3.12 python3.13

Each interpreter resolves the project with all its extras in a fresh environment; nothing is
installed. A package whose version differs between interpreters gets one line for each, with an
environment marker. The file holds names and versions only, so that it works with any index.

    python .ci/lock.py --tensorflow 2.18.1 python3.12

writes constraints/tensorflow-2.18.txt instead: what the tests need with an older TensorFlow. It
leaves Keras out, whose releases need the same packages: `make test-versions` adds the one of a row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTERPRETERS = ["python3.11", "python3.12", "python3.13"]
EXTRAS = "test,lint,bench,docs,recommender"
HEADER = """\
# Locked versions, for Python {versions}; written by .ci/lock.py, not by hand.
"""


def version_of(interpreter: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.check_output([interpreter, "-c", code], text=True).strip()


def resolve(interpreter: str, *, extras: str, pins: list[str]) -> dict[str, str]:
    """The versions that pip picks for the project, and for pinned packages, on this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.check_call([interpreter, "-m", "venv", folder])
        python = f"{folder}/bin/python"
        subprocess.check_call([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"])
        report = Path(folder) / "report.json"
        # Wheels only, so that every line installs without a compiler; promise has no wheel.
        wheels = ["--only-binary=:all:", "--no-binary=promise"]
        options = [*wheels, "--dry-run", "--ignore-installed", f"--report={report}"]
        wanted = [f"{ROOT}[{extras}]", *pins]
        subprocess.check_call([python, "-m", "pip", "install", "--quiet", *options, *wanted])
        items = json.loads(report.read_text())["install"]
    packages = {item["metadata"]["name"]: item["metadata"]["version"] for item in items}
    packages.pop("tfps")
    return packages


def lines(resolved: dict[str, dict[str, str]]) -> list[str]:
    """Lines of the file: one per package, or one per Python version where they differ."""
    versions: dict[str, dict[str, str]] = defaultdict(dict)
    for python, packages in resolved.items():
        for name, version in packages.items():
            key = name.lower().replace("_", "-").replace(".", "-")
            versions[key][python] = version
    output = []
    for key in sorted(versions):
        by_python = versions[key]
        if len(by_python) == len(resolved) and len(set(by_python.values())) == 1:
            output.append(f"{key}=={next(iter(by_python.values()))}")
            continue
        output += [
            f'{key}=={version} ; python_version == "{python}"'
            for python, version in sorted(by_python.items())
        ]
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the locked versions of all dependencies.")
    parser.add_argument("interpreters", nargs="*", default=INTERPRETERS)
    parser.add_argument("--tensorflow", metavar="RELEASE", help="an older TensorFlow, for its row")
    arguments = parser.parse_args()
    release = arguments.tensorflow
    file, extras, pins = ROOT / "constraints.txt", EXTRAS, []
    if release:
        file = ROOT / "constraints" / f"tensorflow-{release.rpartition('.')[0]}.txt"
        extras, pins = "test", [f"tensorflow=={release}"]
    resolved = {
        version_of(interpreter): resolve(interpreter, extras=extras, pins=pins)
        for interpreter in arguments.interpreters
    }
    if release:
        for packages in resolved.values():
            del packages["keras"]
    text = HEADER.format(versions=", ".join(sorted(resolved))) + "\n".join(lines(resolved)) + "\n"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    print(f"{file}: {len(text.splitlines()) - 1} lines for {', '.join(resolved)}")


if __name__ == "__main__":
    main()
