"""`events.jsonl`: the starts, deaths and restarts of a job's tasks, one JSON object a line."""

from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

EVENTS_FILE = "events.jsonl"
SCHEMA_VERSION = 1

EventName = Literal[
    "job_started", "task_started", "task_died", "task_restarted", "task_given_up", "job_ended"
]


logger = logging.getLogger(__name__)


def _current_time() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


class EventRecord(BaseModel):
    """One line of the log. A reader ignores events and fields that it does not know.

    Args:
        version: the version of this schema; it grows when a field changes its meaning.
        time: the time in ISO 8601, with the zone.
        event: the kind of event.
        task: the task, as in ``worker 1``; None for an event of the job itself.
        pid: the process id of the task.
        status: the exit status of a task that died, or of the job; negative: the signal.
        restarts: how often the task was started again, this time included.
        restarts_after_s: the seconds until a task that died is started again.
        reason: why the job could not go on, or why a task that hung was killed.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = SCHEMA_VERSION
    time: datetime.datetime = Field(default_factory=_current_time)
    event: EventName
    task: str | None = None
    pid: int | None = None
    status: int | None = None
    restarts: int | None = None
    restarts_after_s: float | None = None
    reason: str | None = None


class EventLog:
    """Appends records to a file; several processes may write to the same one.

    Args:
        path: the file; the first record creates it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_begun = False

    def write(self, record: EventRecord) -> None:
        """Append a record; writes ``job_started`` before the first one.

        Logs a warning if the file cannot be written: that must not end a job.
        """
        began = EventRecord(event="job_started", time=record.time)
        records = [record] if self._has_begun else [began, record]
        self._has_begun = True
        lines = [each.model_dump_json(exclude_none=True) + "\n" for each in records]
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, "".join(lines).encode())  # in one call: lines never mix
            finally:
                os.close(file)
        except OSError as error:
            logger.warning("cannot write %s: %s", self.path, error.strerror)

    def read(self) -> list[EventRecord]:
        """Return all records, the oldest first; none if the file does not exist."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        return [EventRecord.model_validate_json(line) for line in lines if line]
