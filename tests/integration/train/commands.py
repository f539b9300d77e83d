"""How these tests call `tfps train`, and what it leaves."""

from __future__ import annotations

import sys

DEADLINE_S = 300
TFPS = [sys.executable, "-m", "tfps"]
ALONE = {"TF_CONFIG": None}
SUBSET = ["--set", "data.source=subset"]
SMALL = [*SUBSET, "--set", "model.name=mlp", "--set", "training.epochs=1"]
# What a run leaves in its folder.
RESULTS = {
    "checkpoints",
    "config.toml",
    "events.jsonl",
    "logs",
    "metrics.jsonl",
    "model.keras",
    "result.json",
    "staleness.png",
    "training_curves.png",
}
