"""`python -m tfps.job.optimizer_arguments`: checks an optimizer's arguments with Keras.

It runs as a process of its own, for a launcher that does not import TensorFlow, as Keras does.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tfps.config.schema import OptimizerSection
from tfps.job.optimizer import argument_problems
from tfps.launch.environment import common_environment
from tfps.launch.parent import end_with_parent

COMMAND = (sys.executable, "-P", "-m", "tfps.job.optimizer_arguments")


def argument_problems_in_subprocess(section: OptimizerSection) -> list[str]:
    """Call `tfps.job.optimizer.argument_problems` in another process, which imports Keras.

    If that process fails, the result is empty: the chief checks again, and reports the failure.

    Args:
        section: ``[training.optimizer]``.
    """
    if not section.arguments():
        return []
    completed = subprocess.run(
        COMMAND,
        input=section.model_dump_json(),
        capture_output=True,
        text=True,
        env=common_environment(extra={"CUDA_VISIBLE_DEVICES": "-1"}),
        check=False,
    )
    problems = [] if completed.returncode else json.loads(completed.stdout)
    return [str(problem) for problem in problems]


def main() -> None:
    """Read a section of a job file as JSON, and print its problems as JSON."""
    end_with_parent()
    section = OptimizerSection.model_validate_json(sys.stdin.read())
    print(json.dumps(argument_problems(section)))


if __name__ == "__main__":
    main()
