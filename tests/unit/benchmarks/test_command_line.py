from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from benchmarks.__main__ import BENCHMARKS, main


def test_the_list_of_benchmarks_imports_no_tensorflow() -> None:
    code = (
        "import sys\nfrom benchmarks.__main__ import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print('tensorflow' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    for kind in BENCHMARKS:
        assert f"\n  {kind.name} " in ran.stdout
    assert ran.stdout.endswith("False\n")


def test_results_that_cannot_be_written_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = str(tmp_path / "file/results")
    result = CliRunner().invoke(main, ["placement", "--quick", "--output", output])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: --output: received '{output}': {tmp_path}/file is a file; expected a folder to "
        "write to\n"
    )
