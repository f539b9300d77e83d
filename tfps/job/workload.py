"""What an example brings to a job: its model, its data, what is measured and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tfps.config.bundle import example
from tfps.job.inputs import Inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Mapping[str, Any]], "Figure"]


class Workload(Protocol):
    """A model on its data, and how well it does: ``WORKLOAD`` of an example's `workload.py`.

    Importing it must import neither Keras nor TensorFlow: a chief looks at the data while its
    tasks start. The job does what is the same for all: cluster, optimizer, loop, results.
    """

    @property
    def metric(self) -> str:
        """The metric that is drawn beside the loss, by the name that Keras gives it."""

    def title(self, config: Any) -> str:
        """What is trained, for people.

        Args:
            config: of the job, checked by the example's ``JOB``; so are the others.
        """

    def check_data(self, config: Any) -> str:
        """Look at what is on this machine; say what `load` would use. Downloads nothing.

        Raises:
            DataError: files are missing or damaged.
        """

    def load(self, config: Any, *, say: Callable[[str], None]) -> Inputs:
        """What to train, validate and test with; nothing else has started yet.

        Args:
            config: of the job.
            say: receives what the user should know about the data.

        Raises:
            DataError: files are missing or damaged.
        """

    def build(self, config: Any) -> Any:
        """The model, not compiled; called in the scope of a strategy."""

    def compile_arguments(self) -> Mapping[str, Any]:
        """Loss and metrics, as `compile` takes them."""

    def test(self, model: Any, inputs: Any) -> Mapping[str, Any]:
        """What the trained model reaches, by name: it stands beside the rest in `result.json`.

        Args:
            model: trained.
            inputs: what `load` has answered.
        """

    def reached(self, result: Mapping[str, Any]) -> str:
        """How well the model does, for the title of a picture.

        Args:
            result: what `result.json` holds.
        """

    def last_line(self, result: Mapping[str, Any]) -> str:
        """The same for the terminal, without the number of epochs."""

    @property
    def pictures(self) -> Mapping[str, Draw]:
        """What is drawn beside curves and staleness, by the names of the files."""


def workload_of(name: str) -> Workload:
    """Return what an example brings.

    Args:
        name: of a shipped example, or the path of a folder.

    Raises:
        ConfigError: there is none.
    """
    return example(name).module("workload").WORKLOAD
