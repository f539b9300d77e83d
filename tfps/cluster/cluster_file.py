"""Reads the tasks' current addresses from a file, for a chief whose `TF_CONFIG` cannot change."""

from __future__ import annotations

import os
from pathlib import Path

from tfps.cluster.spec import ClusterSpec
from tfps.errors import ConfigError

CLUSTER_FILE = "TFPS_CLUSTER_FILE"


def read_cluster_file() -> ClusterSpec | None:
    """Read the cluster from the file that ``TFPS_CLUSTER_FILE`` names; None if it is not set.

    Raises:
        ConfigError: the file cannot be read, or contains no cluster.
    """
    path = os.environ.get(CLUSTER_FILE, "").strip()
    if not path:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"cannot read {path}: {reason}. Write the cluster to this file in the form of "
            'TF_CONFIG: {"cluster": {"chief": [...], "worker": [...], "ps": [...]}}',
            source=CLUSTER_FILE,
        ) from error
    return ClusterSpec.from_tf_config(text, source=f"{CLUSTER_FILE} ({path})")
