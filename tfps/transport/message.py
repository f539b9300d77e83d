"""The message between a worker and a server: fixed integer headers, then ids and bytes. Pure."""

from __future__ import annotations

import enum

# Increased when the meaning of a header field or of ids changes; a server refuses other versions.
PROTOCOL = 13
# The worker index in requests of the coordinator itself.
COORDINATOR = -1


class Kind(enum.IntEnum):
    """The purpose of a request, such as to join, to push gradients or to leave."""

    JOIN = 0  # enter with a fresh incarnation: parameters and a first ticket
    PUSH = 1  # gradients of one ticket: new parameters and the next ticket
    FINISH = 2  # end of an evaluation step: the next ticket
    LEAVE = 3  # no more tickets: the last one is closed
    PULL = 4  # parameters only
    WRITE_BACK = 5  # values that a scheduled function has assigned
    ENTER_ROUND = 6  # parameters of a round, from which on the worker takes part
    AWAIT_ROUND = 7  # parameters of a round or a later one
    LOOK_UP = 8  # rows of a table, by their ids


class Request(enum.IntEnum):
    """Positions in the header of a request; all are int64."""

    PROTOCOL = 0
    JOB = 1  # hash of the job's name
    PLAN = 2  # hash of the layout that both sides were traced with
    KIND = 3
    WORKER = 4  # index of the worker
    INCARNATION = 5  # grows with every start of a worker's closure; excludes dead closures
    TICKET = 6  # for scheduled functions the push's number, see `consistency.applied_window`
    CALL = 7  # the number of the optimizer call in the step, from 0
    BASE_VERSION = 8  # this server's version, or round, from which the gradient was computed
    ACKED_TICKET = 9  # the previous ticket, now known to be done on all servers
    EXAMPLES = 10  # the number of examples of the closed ticket
    PUSH_MICROSECONDS = 11  # duration of the previous push, measured by the worker; -1: none
    PULL_MICROSECONDS = 12  # duration of the pull before it; -1: none
    WAIT_MICROSECONDS = 13  # time that the previous step waited for its batch; -1: none
    STEP_EXAMPLES = 14  # the number of examples of the pushed ticket: its weight in a round
    CLOSED_STEPS = 15  # the number of steps of the closed ticket; above 1 with local steps
    CLOCK = 16  # the number of steps that the worker had completed before the pushed one
    # The time of a worker's own part of a step, of the previous ticket; -1: none.
    BATCH_MICROSECONDS = 17
    ENCODE_MICROSECONDS = 18  # time that codecs took to encode this push; -1: none
    DECODE_MICROSECONDS = 19  # time that codecs took to decode the previous reply; -1: none
    REDUCE_MICROSECONDS = 20  # time until workers had added up the gradients of this push; -1: none
    REDUCED_BYTES = 21  # what the worker has sent to others for that
    # Updates of the worker's copies of mirrored weights; of a push, with the update of its round.
    UPDATES = 22


class Reply(enum.IntEnum):
    """Positions in the header of a reply; all are int64."""

    STATUS = 0
    VERSION = 1
    STALENESS = 2
    NEXT_TICKET = 3
    CLOCK = 4  # the clock at which a joining worker starts
    OTHER_WRITES = 5  # the ledger's count of other writes; for functions that of `ValueVersion`


REQUEST_FIELDS = len(Request)
REPLY_FIELDS = len(Reply)
