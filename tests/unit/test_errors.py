"""Errors are what users already catch, and say everything that is wrong at once."""

from __future__ import annotations

import inspect
import pickle

import pytest

from tests.messages import raises
from tfps import errors

CAUGHT_AS = {
    errors.ConfigError: ValueError,
    errors.ClusterError: RuntimeError,
    errors.ConnectTimeout: TimeoutError,
    errors.ListenError: OSError,
    errors.TasksInUse: errors.ClusterError,
    errors.TaskFailed: errors.ClusterError,
    errors.StrategyClosed: errors.ClusterError,
    errors.ChiefReplaced: errors.ClusterError,
    errors.BackendError: ImportError,
    errors.DataError: ValueError,
    errors.CheckpointError: ValueError,
    errors.CheckpointDamaged: errors.CheckpointError,
    errors.CheckpointNotSaved: OSError,
    errors.UnsupportedError: NotImplementedError,
    errors.ProtocolError: RuntimeError,
}


def test_every_error_is_listed_here() -> None:
    defined = {
        c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__
    }
    assert defined == {errors.TfpsError, *CAUGHT_AS}


@pytest.mark.parametrize(("error", "caught_as"), CAUGHT_AS.items())
def test_subclasses(error: type[Exception], caught_as: type[Exception]) -> None:
    assert issubclass(error, errors.TfpsError)
    with raises(caught_as, "what was received"):
        raise error("what was received")


@pytest.mark.parametrize(
    ("problems", "source", "expected"),
    [
        ("a: missing", "", "a: missing"),
        (["a: missing"], "", "a: missing"),
        ("a: missing", "job.toml", "job.toml: a: missing"),
        (["a: missing", "b: unknown"], "", "2 mistakes:\n  - a: missing\n  - b: unknown"),
    ],
)
def test_a_config_error_names_all_mistakes(
    problems: str | list[str], source: str, expected: str
) -> None:
    assert str(errors.ConfigError(problems, source=source)) == expected


def test_a_config_error_survives_a_process_boundary() -> None:
    error = errors.ConfigError(["a: missing", "b: unknown"], source="job.toml")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.problems, copy.source) == (str(error), error.problems, error.source)


def test_mistakes_of_several_sources_stand_below_their_own() -> None:
    several = [
        errors.ConfigError(["a: missing", "b: unknown"], source="job.toml"),
        errors.ConfigError("is no JSON", source="TF_CONFIG"),
        errors.ConfigError.joined(
            [errors.ConfigError("c", source="--set"), errors.ConfigError("d", source="job.toml")]
        ),
        errors.ConfigError("is no JSON", source="TF_CONFIG"),
    ]
    joined = errors.ConfigError.joined(several)
    assert str(joined).splitlines() == [
        "job.toml has 3 mistakes:",
        "  - a: missing",
        "  - b: unknown",
        "  - d",
        "TF_CONFIG: is no JSON",
        "--set: c",
    ]
    assert joined.problems == ("a: missing", "b: unknown", "d", "is no JSON", "c")
    assert [part.source for part in joined.parts] == ["job.toml", "TF_CONFIG", "--set"]
    assert str(errors.ConfigError.joined(several[:1])) == str(several[0])
