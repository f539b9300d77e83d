"""The statements of a Dockerfile, as far as tests look at them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

INSTRUCTIONS = frozenset(
    {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"}
)


@dataclass(frozen=True)
class Statement:
    instruction: str
    text: str
    stage: int

    @property
    def words(self) -> list[str]:
        """The exec form of an instruction, ["like", "this"]."""
        words: list[str] = json.loads(self.text)
        return words


def statements(path: Path) -> list[Statement]:
    """Comments dropped, continued lines joined, stages counted from 0."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[Statement] = []
    stage = -1
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction not in INSTRUCTIONS:
            raise ValueError(f"{path}: {instruction!r} is no instruction known to this test")
        stage += instruction == "FROM"
        found.append(Statement(instruction, rest.strip(), stage))
    return found
