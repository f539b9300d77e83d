"""The project's pages, and the blocks of code in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(
    r"(?:<!-- (?P<marker>\w+): (?P<value>[\w -]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```",
    re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, and the marker in the comment above it."""

    page: Path
    language: str
    text: str
    marker: str  # "runnable", "output", or nothing
    value: str


def pages() -> list[Path]:
    """Return every page, the README first."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def text_of(name: str) -> str:
    """Return the text of one page."""
    return (ROOT / name).read_text()


def everything() -> str:
    """Return the text of all pages, one after the other."""
    return "\n".join(page.read_text() for page in pages())


def blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [
        Block(page, found["language"], found["text"], found["marker"] or "", found["value"] or "")
        for page in pages()
        for found in BLOCK.finditer(page.read_text())
    ]


def runnable(how: str) -> list[Block]:
    """Return the blocks that are run in one way."""
    return [block for block in blocks() if (block.marker, block.value) == ("runnable", how)]


def samples(of: str) -> list[Block]:
    """Return the blocks that show what one command prints."""
    return [block for block in blocks() if (block.marker, block.value) == ("output", of)]


def before(diff: str) -> str:
    """Return the text that a diff starts from."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] != "+")


def after(diff: str) -> str:
    """Return the text after a diff: its new lines and those that stay."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] != "-")


def commands() -> Iterator[list[str]]:
    """Return each command of the shell examples, without comments and leading variables."""
    for block in blocks():
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                yield from ([*part] for part in _split(words) if part)


def _split(words: list[str]) -> Iterator[list[str]]:
    while "&&" in words:
        at = words.index("&&")
        yield words[:at]
        words = words[at + 1 :]
    yield words


# What differs from run to run: colours and bars, times and rates, losses and steps, names of
# temporary folders and of slabs.
MEASURED = [
    (re.compile(r"\x1b\[[\d;?]*[a-zA-Z]"), ""),
    (re.compile(r"/tmp/[\w/-]+"), "FOLDER"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "SLAB"),
    (re.compile(r"\d+/\d+ [━╸╺ ]*\d+m?s\b( \d+\w+/step)?"), "STEPS"),
    (re.compile(r"\d+ steps/s"), "RATE steps/s"),
    (re.compile(r"\(\d+(, \d+)*\) steps each"), "STEPS each"),
    (re.compile(r"on worker \d+ by"), "on WORKER by"),
    (re.compile(r"\d+ rounds in"), "ROUNDS in"),
    (re.compile(r"\d+ gradients dropped"), "DROPPED"),
    (re.compile(r"\d+ KiB moved"), "SIZE moved"),
    (re.compile(r"\d*\.\d+(e-?\d+)?"), "NUMBER"),
]


def masked(text: str) -> list[str]:
    """Return a text's lines with a word instead of each number that a run measures.

    >>> masked("938/938 ━━━━━━━━━━ 3s - loss: 0.5819 - 765 steps/s - 2/2 workers")
    ['STEPS - loss: NUMBER - RATE steps/s - 2/2 workers']
    """
    for pattern, word in MEASURED:
        text = pattern.sub(word, text)
    return [line.strip() for line in re.split(r"[\r\n]+", text)]


def not_shown(sample: str, printed: str) -> list[str]:
    """Return the lines of a sample that a command did not print; ``...`` stands for any."""
    printed_lines = {*masked(printed), "", "..."}
    return [line for line in masked(sample) if line not in printed_lines]
