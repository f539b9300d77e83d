"""The message between a worker and a server: fixed integer headers, then ids and bytes. Pure."""

from __future__ import annotations

import enum

# Raised when the meaning of a header field, or of ids, changes; a server refuses another version.
PROTOCOL = 9
# In the place of a worker's index, where the coordinator asks on its own behalf.
COORDINATOR = -1


class Kind(enum.IntEnum):
    """What a request asks of a server."""

    JOIN = 0  # enter with a fresh incarnation: parameters and a first ticket
    PUSH = 1  # gradients of one ticket: new parameters and the next ticket
    FINISH = 2  # an evaluation step is done: the next ticket
    LEAVE = 3  # no more tickets: the last one is closed
    PULL = 4  # parameters only
    WRITE_BACK = 5  # what a scheduled function assigned itself
    ENTER_ROUND = 6  # parameters of a round; the worker takes part from it on
    AWAIT_ROUND = 7  # parameters of a round or a later one
    LOOK_UP = 8  # rows of a table, by their ids


class Request(enum.IntEnum):
    """Positions in the header of a request; all are int64."""

    PROTOCOL = 0
    JOB = 1  # hash of the job's name
    PLAN = 2  # hash of the layout that both sides were traced with
    KIND = 3
    WORKER = 4  # index of the worker
    INCARNATION = 5  # grows with every start of a worker's closure; fences out the dead
    TICKET = 6  # of a scheduled function: which push it is, see `consistency.applied_window`
    CALL = 7  # which of the step's optimizer calls, 0 for the first
    BASE_VERSION = 8  # of this server, that the gradient was computed from; its round if there are
    ACKED_TICKET = 9  # the previous ticket, now known to be done on all servers
    EXAMPLES = 10  # of the ticket that is closed
    PUSH_MICROSECONDS = 11  # duration of the previous push, measured by the worker; -1: none
    PULL_MICROSECONDS = 12  # duration of the pull before it; -1: none
    WAIT_MICROSECONDS = 13  # time that the previous step waited for its batch; -1: none
    STEP_EXAMPLES = 14  # of the ticket that is pushed: its weight in a round
    CLOSED_STEPS = 15  # of the ticket that is closed: one, or those of a period of local steps
    CLOCK = 16  # steps that the worker had completed before the one that is pushed
    BATCH_MICROSECONDS = 17  # for each batch of the ticket that is pushed; -1: not measured
    ENCODE_MICROSECONDS = 18  # that codecs took for what is pushed; -1: none
    DECODE_MICROSECONDS = 19  # and for what the previous push was answered with; -1: none


class Reply(enum.IntEnum):
    """Positions in the header of a reply; all are int64."""

    STATUS = 0
    VERSION = 1
    STALENESS = 2
    NEXT_TICKET = 3
    AHEAD_TICKET = 4  # the second one that a pipelined worker joins with
    CLOCK = 5  # where this server lets a worker begin that joins
    NEXT_BATCHES = 6  # how many tickets the next one stands for; one after the other
    OTHER_WRITES = 7  # what the ledger counts as such; of a function the number of `HandedOut`


REQUEST_FIELDS = len(Request)
REPLY_FIELDS = len(Reply)
