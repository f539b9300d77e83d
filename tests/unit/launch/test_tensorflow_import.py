"""Tasks that serve have TensorFlow without Keras, which code can still import later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# As TensorFlow ends: without Keras it does.
TENSORFLOW = """
try:
    import keras
except ImportError:
    keras = None
"""


@pytest.mark.parametrize(("first", "finds"), [("", False), ("import keras", True)])
def test_keras_is_imported_by_nobody_but_the_user(tmp_path: Path, first: str, finds: bool) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    (tmp_path / "keras.py").touch()
    program = (
        f"import sys; sys.path.insert(0, sys.argv[1])\n{first}\n"
        "from tfps.launch.tensorflow_import import import_without_keras\n"
        "import_without_keras(); import_without_keras()\n"
        "import tensorflow, keras\nprint(tensorflow.keras is keras)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == f"{finds}\n"
