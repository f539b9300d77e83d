"""Names of the functions that tfps processes register for calls from other tasks. Pure."""

from __future__ import annotations

from tfps.cluster.served_chief import INTRODUCE_FUNCTION

# On workers and parameter servers, called by the coordinator.
INTRODUCE = INTRODUCE_FUNCTION  # (question) -> answer; see `cluster.served_chief`
FINGERPRINT = "tfps_data_fingerprint"  # (job) -> of the secret that the environment gives, or ""
USAGE = "tfps_usage"  # () -> JSON of `observe.usage.Usage`
GIVE_BACK = "tfps_give_back"  # () -> whether the system received memory

# On the chief, called by a parameter server.
LEAVE = "tfps_leave"  # (server) -> whether what it holds is saved

# On a parameter server, called by the coordinator.
TRAFFIC = "tfps_data_traffic"  # (job) -> [bytes received, bytes sent]
OPEN = "tfps_data_open"  # (job, secret) -> endpoint
INSTALL = "tfps_data_install"  # (job, service) -> 1
FORGET = "tfps_data_forget"  # (job, plan) -> 1
CLOSE = "tfps_data_close"  # (job) -> 1
FAILURE = "tfps_data_failure"  # (job) -> text of the last failure in a service loop, or ""
ERROR = "tfps_data_error"  # (job, plan) -> [code, message] that a function raised just now, or ""

# On a parameter server, called by its own service loop.
TURN = "tfps_data_turn"  # (connection, reply) -> (function, request)

# On a worker: called by steps, and by the coordinator.
EXCHANGE = "tfps_data_exchange"  # (peers, servers, reply sizes, requests) -> replies
HANG_UP = "tfps_data_hang_up"  # (job, server) -> 1
CANCEL = "tfps_data_cancel"  # (job, worker, incarnation) -> whether its exchanges have ended
MOVED = "tfps_data_moved"  # (endpoint in traces, endpoint now) -> 1
LINK_FAILURE = "tfps_data_link_failure"  # (job) -> text of the last lost connection, or ""
REDUCE = "tfps_reduce"  # (peers, place, vectors) -> (whether all members took part, sums)
REGROUP = "tfps_reduce_regroup"  # (job, worker, oldest generation to go on) -> that one
PART = "tfps_reduce_part"  # (job, lost worker) -> 1
RETIRE = "tfps_reduce_retire"  # (job) -> 1
ACCEPT = "tfps_reduce_accept"  # (job, secret) -> endpoint

# The functions for the coordinator that return bytes; the others return numbers.
RETURNING_BYTES = frozenset(
    {INTRODUCE, FINGERPRINT, USAGE, OPEN, ACCEPT, FAILURE, ERROR, LINK_FAILURE}
)
