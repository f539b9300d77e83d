"""The recommender as a job trains it: which examples, which model, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recommender.file_inputs import file_inputs
from recommender.inputs import ShardInputs
from recommender.planted_inputs import planted_inputs
from recommender.settings import RecommenderJob
from tfps.job.workload import Draw
from tfps.units import format_bytes

PLACES = 4  # of an AUC: the last one is the chance of the test examples


class RecommenderWorkload:
    """A `tfps.job.workload.Workload` that predicts clicks."""

    metric = "auc"

    def title(self, config: RecommenderJob) -> str:
        """Return a readable name of the training."""
        clicks = "clicks" if config.data.path else "planted clicks"
        return f"{config.model.name.upper()} on {clicks}"

    def check_data(self, config: RecommenderJob) -> str:
        """Say what `load` would use."""
        if config.data.path is not None:
            return file_inputs(config).source
        rows = config.data.rows()
        size = 4 * config.model.dlrm.embedding_width * sum(rows)
        tables = f"{len(rows)} tables of {sum(rows):,} rows ({format_bytes(size)})"
        return f"planted click log, seed {config.data.click_log.seed}; {tables}"

    def load(self, config: RecommenderJob, *, say: Callable[[str], None]) -> ShardInputs:
        """Describe the parts of the data; workers make them."""
        return planted_inputs(config) if config.data.path is None else file_inputs(config)

    def build(self, config: RecommenderJob) -> Any:
        """The model, not compiled."""
        from recommender.model import dlrm

        return dlrm(table_rows=config.data.rows(), **config.model.dlrm.model_dump())

    def compile_arguments(self) -> Mapping[str, Any]:
        """Log loss and the area below the ROC curve."""
        import keras

        return {
            "loss": keras.losses.BinaryCrossentropy(from_logits=True),
            "metrics": [keras.metrics.AUC(name=self.metric, from_logits=True)],
        }

    def test(self, model: Any, inputs: ShardInputs) -> Mapping[str, Any]:
        """The AUC, the log loss, and what the two curves of the picture are made of."""
        from recommender.thresholds import curves_of

        results = model.evaluate(inputs.test_data(), verbose=0, return_dict=True)
        (auc,) = (m for m in _metrics_of(model) if m.name == self.metric)
        return {
            "test_auc": float(results[self.metric]),
            "test_log_loss": float(results["loss"]),
            "best_auc": inputs.best_auc() if inputs.best_auc else None,
            "target_auc": inputs.target_auc,
            **curves_of(auc),
        }

    def reached(self, result: Mapping[str, Any]) -> str:
        """The AUC, and how much of it is possible."""
        best = result["best_auc"]
        at_most = "" if best is None else f" of at most {best:.{PLACES}f}"
        return f"AUC {result['test_auc']:.{PLACES}f}{at_most}"

    def last_line(self, result: Mapping[str, Any]) -> str:
        """Return the test AUC and log loss, and whether the AUC reaches its target."""
        loss, target = f"log loss {result['test_log_loss']:.4f}", result["target_auc"]
        if target is not None:
            verdict = "reached" if result["test_auc"] >= target else "MISSED"
            loss += f"; target {target:g} {verdict}"
        return f"Test {self.reached(result)} ({loss})"

    @property
    def pictures(self) -> Mapping[str, Draw]:
        """The ROC curve, and how well the predicted probabilities hold."""
        from recommender.pictures import roc_and_calibration

        return {"roc_and_calibration.png": roc_and_calibration}


def _metrics_of(model: Any) -> list[Any]:
    """Return the model's metrics and those that Keras keeps inside of one of them."""
    found = []
    for metric in model.metrics:
        found += [metric, *(getattr(metric, "metrics", None) or [])]
    return found


WORKLOAD = RecommenderWorkload()
