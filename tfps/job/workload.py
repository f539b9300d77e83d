"""The interface of an example: its model, its data, its measurements and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tfps.config.bundle import find_example
from tfps.job.inputs import Inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Mapping[str, Any]], "Figure"]


class Workload(Protocol):
    """A model, its data and its test: ``WORKLOAD`` of an example's `workload.py`.

    Importing it must import neither Keras nor TensorFlow: a chief checks the data while its tasks
    start. The job does what is common to all: cluster, optimizer, training loop, results.
    """

    @property
    def metric(self) -> str:
        """The Keras name of the metric that is drawn beside the loss."""

    def title(self, config: Any) -> str:
        """Return a title that names what is trained.

        Args:
            config: the job's configuration, checked by the example's ``JOB``.
        """

    def check_data(self, config: Any) -> str:
        """Check the data on this machine, without a download; return what `load` would use.

        Raises:
            DataError: files are missing or damaged.
        """

    def load(self, config: Any, *, say: Callable[[str], None]) -> Inputs:
        """Load the data for training, validation and test, before anything else starts.

        Args:
            config: the job's configuration.
            say: receives messages about the data for the user.

        Raises:
            DataError: files are missing or damaged.
        """

    def build(self, config: Any) -> Any:
        """Return the model, not compiled; called in the scope of a strategy."""

    def compile_arguments(self) -> Mapping[str, Any]:
        """Return loss and metrics, as keyword arguments of `compile`."""

    def test(self, model: Any, inputs: Any) -> Mapping[str, Any]:
        """Return the measurements of the trained model, by name, for `result.json`.

        Args:
            model: the trained model.
            inputs: the result of `load`.
        """

    def reached(self, result: Mapping[str, Any]) -> str:
        """Return a text about the model's quality, for the title of a picture.

        Args:
            result: the contents of `result.json`.
        """

    def last_line(self, result: Mapping[str, Any]) -> str:
        """Return a text about the model's quality for the terminal, without its epochs."""

    @property
    def pictures(self) -> Mapping[str, Draw]:
        """The functions that draw further pictures, by the names of the files."""


def workload_of(name: str) -> Workload:
    """Return the workload of an example.

    Args:
        name: the name of a shipped example, or the path of a folder.

    Raises:
        ConfigError: the example does not exist.
    """
    return find_example(name).module("workload").WORKLOAD
