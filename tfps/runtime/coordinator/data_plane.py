"""Chooses the carriers that bring requests to servers, and installs plans on direct servers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import secrets
import threading
from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.cluster.address import split_address
from tfps.errors import ConfigError, UnsupportedError
from tfps.runtime.coordinator.connections import ControlChannel
from tfps.runtime.coordinator.control_plane import NoSuchFunction
from tfps.runtime.coordinator.server import Server
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport import tokens
from tfps.transport.carrier import Carrier, InProcessCarrier
from tfps.transport.chunk import max_payload_bytes_from_environment
from tfps.transport.direct import (
    SECRET_VARIABLE,
    Endpoint,
    Plain,
    encryption_from_environment,
    fingerprint,
    secret_from_environment,
)
from tfps.transport.direct_carrier import DirectCarrier, MixedCarrier
from tfps.transport.links import NO_INCARNATION, Links, Peers
from tfps.transport.one_thread import run_on_one_thread, suits_one_thread
from tfps.transport.reducer import Reducer
from tfps.transport.service_loop import service_loop

logger = logging.getLogger(__name__)

# The limit of a call to a worker that perhaps does not reply either.
HANG_UP_TIMEOUT_S = 3.0


class DataPlane:
    """The carriers of a job.

    `direct` if both ends are processes of tfps. If one is not, or the ``transport`` excludes it,
    the plain carrier, which is TensorFlow's RPC between processes.

    Raises:
        UnsupportedError: ``"direct"`` with a task that is not a process of tfps.
        ConfigError: tasks with another secret than this process.
    """

    def __init__(
        self,
        *,
        job_id: int,
        servers: list[Server],
        channels: list[ControlChannel],
        transport: str,
        plain_carrier: Carrier,
    ) -> None:
        self.job_id, self._servers, self._channels = job_id, servers, channels
        # The addresses of the sockets of servers that are reached directly.
        self.endpoints: dict[int, Endpoint] = {}
        self._peers: dict[int, Endpoint] = {}  # of workers, for sums among themselves
        self._peers_lock = threading.Lock()
        self._moved: dict[str, str] = {}  # the address of a server in traces -> its current address
        plain: list[str] = []
        secret = secret_from_environment()
        self._secret = sent_secret = b"" if secret else secrets.token_bytes(32)
        if transport != "grpc":
            _get_process_links()
            plain = self._find_plain_tasks(secret)
            if not all(f"worker {worker}" in plain for worker in range(len(channels))):
                direct_servers = [s for s in servers if f"ps {s.index}" not in plain]
                self.endpoints = {s.index: self._open_job(s, sent_secret) for s in direct_servers}
        self.direct_workers = tuple(
            transport != "grpc" and f"worker {worker}" not in plain
            for worker in range(len(channels))
        )
        if plain and transport == "direct":
            raise UnsupportedError(
                'transport: received "direct" with plain tf.distribute.Server tasks: '
                f"{', '.join(plain)}; expected processes of tfps. Start the tasks with `tfps run` "
                'or `tfps train`, or use transport="auto".'
            )
        if plain:
            logger.warning(
                "%s: a plain tf.distribute.Server uses TensorFlow's RPC, at about half the speed "
                "of processes of tfps; start all tasks with `tfps run` or `tfps train`.",
                ", ".join(plain),
            )
        direct = self.plain_carrier = plain_carrier
        if self.endpoints:
            direct = DirectCarrier(Peers(self.endpoints, sent_secret.hex()).to_json())
        carriers = {
            s.index: direct if s.index in self.endpoints else plain_carrier for s in servers
        }
        is_mixed = len(set(carriers.values())) > 1
        self._carrier: Carrier = MixedCarrier(carriers) if is_mixed else carriers[0]
        self.carriers = tuple(carriers[server.index].name for server in servers)

    def _find_plain_tasks(self, secret: bytes | None) -> list[str]:
        """Return the names of tasks that are no tfps processes; check the secret of the others."""
        channels = {f"worker {worker}": channel for worker, channel in enumerate(self._channels)}
        channels.update({f"ps {server.index}": server.channel for server in self._servers})
        plain, others = [], []
        for name, channel in channels.items():
            try:
                if not self._has_secret(channel, secret):
                    others.append(name)
            except NoSuchFunction:
                plain.append(name)
        if others:
            raise ConfigError(_format_secret_mismatch(others, chief_has_one=secret is not None))
        return plain

    def _has_secret(self, channel: ControlChannel, secret: bytes | None) -> bool:
        """Return whether a process of tfps has the same secret as this process."""
        own = fingerprint(secret, job=self.job_id)
        return bool(channel.ask(tokens.FINGERPRINT, self.job_id) == own)

    def find_incompatibility(self, server: Server) -> str:
        """Return why a restarted server cannot take part, or an empty string if it can."""
        if server.index not in self.endpoints:
            return ""
        name, secret = f"ps {server.index}", secret_from_environment()
        channel = server.open_channel()
        try:
            if self._has_secret(channel, secret):
                return ""
            return _format_secret_mismatch([name], chief_has_one=secret is not None)
        except NoSuchFunction:
            return (
                f"{name} at {server.address}: received a plain tf.distribute.Server, expected a "
                "process of tfps as before; start it with `tfps serve` or `tfps run`."
            )
        finally:
            channel.close()

    def _open_job(self, server: Server, secret: bytes) -> Endpoint:
        """Open the job on a server, and return the address of its socket."""
        opened = Endpoint.from_json(server.channel.ask(tokens.OPEN, self.job_id, secret).decode())
        return dataclasses.replace(opened, host=split_address(server.address)[0])

    @property
    def carrier(self) -> Carrier:
        """The carrier for functions that any worker, or the coordinator, may run."""
        return self._carrier if all(self.direct_workers) else self.plain_carrier

    def get_carrier(self, worker: int) -> Carrier:
        """Return the carrier for functions that one worker runs."""
        return self._carrier if self.direct_workers[worker] else self.plain_carrier

    @property
    def is_in_process(self) -> bool:
        """Whether all tasks are devices of this process."""
        return isinstance(self.plain_carrier, InProcessCarrier)

    @property
    def has_peers(self) -> bool:
        """Whether all workers can connect with each other."""
        return self.is_in_process or (
            all(self.direct_workers) and len(self.endpoints) == len(self._servers)
        )

    def get_max_row_bytes(self, server: int) -> int | None:
        """Return the most bytes of rows in one reply of a server; None: any number.

        Sockets of tfps move rows part by part. TensorFlow's RPC does not, since their number is not
        known when an exchange is traced.
        """
        is_direct = server in self.endpoints and all(self.direct_workers)
        return None if is_direct else max_payload_bytes_from_environment()

    def install(self, server: Server, plan: ServedPlan) -> None:
        """Let a server serve a plan; does nothing if TensorFlow's RPC calls the functions."""
        if server.index in self.endpoints:
            service, graph = plan.service, build_service_graph(plan, device=server.device)
            server.channel.ask(tokens.INSTALL, self.job_id, service.to_json().encode(), graph)

    def socket_bytes(self, server: int) -> tuple[int, int] | None:
        """Return the received and sent bytes of a server's sockets; None if it counts none."""
        if server not in self.endpoints:
            return None
        received, sent = self._servers[server].channel.ask(tokens.TRAFFIC, self.job_id)
        return int(received), int(sent)

    def reopen_server(self, server: Server) -> None:
        """Open the job on a restarted server, and send its address to the workers."""
        if server.index in self.endpoints:
            self.hang_up(server.index)
            known = self.endpoints[server.index].to_json()
            self._moved[known] = self._open_job(server, self._secret).to_json()
            _get_process_links().move_endpoint(known.encode(), self._moved[known].encode())
            for worker, _ in self._get_direct_channels():
                with contextlib.suppress(tf.errors.UnavailableError):  # told when it is back
                    self.send_new_addresses(worker)

    def send_new_addresses(self, worker: int) -> None:
        """Send a worker the current addresses of servers that have moved."""
        for known, now in self._moved.items() if self.direct_workers[worker] else ():
            channel = self._channels[worker]
            channel.ask(tokens.MOVED, known.encode(), now.encode(), patience_s=HANG_UP_TIMEOUT_S)

    def find_peers(self, worker: int, *, addresses: Sequence[str]) -> str:
        """Return where workers accept each other, as JSON.

        Args:
            worker: the worker that joins them; its process may have been started anew.
            addresses: the addresses of all workers.

        Raises:
            ConfigError: the port that a worker has in its environment is in use.
        """
        if self.is_in_process:
            text = _get_process_reducer().accept(self.job_id, self._secret)
            here = dataclasses.replace(Endpoint.from_json(text.decode()), host="localhost")
            self._peers = dict.fromkeys(range(len(self._channels)), here)
        with self._peers_lock:
            for each, channel in self._get_direct_channels():
                if each == worker or each not in self._peers:
                    with contextlib.suppress(tf.errors.UnavailableError):  # it is lost
                        text = channel.ask(
                            tokens.ACCEPT, self.job_id, self._secret, patience_s=HANG_UP_TIMEOUT_S
                        )
                        if isinstance(problem := json.loads(text), str):
                            raise ConfigError(f"worker {each}: {problem}")
                        found, host = (
                            Endpoint.from_json(text.decode()),
                            split_address(addresses[each])[0],
                        )
                        self._peers[each] = dataclasses.replace(found, host=host)
            return Peers(self._peers, self._secret.hex()).to_json()

    def part(self, lost: int) -> None:
        """Let all workers end their sums with one that was lost."""
        for worker, channel in self._get_direct_channels():
            if worker != lost:
                with contextlib.suppress(tf.errors.UnavailableError):  # it is lost itself
                    channel.ask(tokens.PART, self.job_id, lost, patience_s=HANG_UP_TIMEOUT_S)

    def _get_responsive_channels(self) -> dict[int, ControlChannel]:
        """Return the channels to the direct servers that are not lost, by server."""
        direct = [server for server in self._servers if server.index in self.endpoints]
        return {server.index: server.channel for server in direct if server.lost is None}

    def free_plans(self, plans: Sequence[tuple[int, int]]) -> None:
        """Free the plans, given as (server, plan), that are no longer used."""
        channels = self._get_responsive_channels()
        for index, plan_id in plans:
            if index in channels:
                channels[index].ask(tokens.FORGET, self.job_id, plan_id)

    def read_last_failures(self) -> str:
        """Return the last failures that servers and workers report, for an error message."""
        channels = self._get_responsive_channels().items()
        texts = {
            f"ps {index}": channel.ask(tokens.FAILURE, self.job_id) for index, channel in channels
        }
        for worker, channel in self._get_direct_channels():
            with contextlib.suppress(tf.errors.UnavailableError):  # it is lost itself
                texts[f"worker {worker}"] = channel.ask(
                    tokens.LINK_FAILURE, self.job_id, patience_s=HANG_UP_TIMEOUT_S
                )
        return " ".join(f"{name} reports: {text.decode()}." for name, text in texts.items() if text)

    def read_error(self, server: int, plan_id: int) -> tf.errors.OpError | None:
        """Ask a server for the latest error of its function while it served a plan.

        Return None if it had none, or does not reply.
        """
        channel = self._get_responsive_channels().get(server)
        text = b"" if channel is None else channel.ask(tokens.ERROR, self.job_id, plan_id)
        if not text:
            return None
        code, message = json.loads(text)
        kind = tf.compat.v1.errors.exception_type_from_error_code(code)
        return cast("tf.errors.OpError", kind(None, None, message))

    def _get_direct_channels(self) -> list[tuple[int, ControlChannel]]:
        return [(w, channel) for w, channel in enumerate(self._channels) if self.direct_workers[w]]

    def cancel(self, worker: int, incarnation: int = NO_INCARNATION) -> None:
        """Wait until the requests of a cancelled closure have arrived, and send no more of them.

        Without an incarnation, wait for the requests of all closures of the worker.

        For `direct`: TensorFlow itself cancels its own calls, of which some may have arrived.
        """
        if self.direct_workers[worker]:
            with contextlib.suppress(tf.errors.UnavailableError):  # it is lost itself
                channel = self._channels[worker]
                channel.ask(tokens.CANCEL, self.job_id, worker, incarnation, patience_s=0.0)

    def hang_up(self, server: int) -> None:
        """Let all workers end their exchanges with a server that does not reply."""
        for worker, channel in self._get_direct_channels():
            try:
                channel.ask(tokens.HANG_UP, self.job_id, server, patience_s=HANG_UP_TIMEOUT_S)
            except tf.errors.UnavailableError as error:
                logger.info(
                    "could not tell worker %d to end its requests to ps %d: %s",
                    worker,
                    server,
                    error,
                )

    def close(self) -> None:
        """Close the job on all servers."""
        for channel in self._get_responsive_channels().values():
            channel.ask(tokens.CLOSE, self.job_id)
        if self.endpoints:
            _get_process_links().close_job(self.job_id)
        if self._peers and self.is_in_process:
            _get_process_reducer().retire(self.job_id)
        for _, channel in self._get_direct_channels() if self._peers else ():
            with contextlib.suppress(tf.errors.UnavailableError):  # it is lost
                channel.ask(tokens.RETIRE, self.job_id, patience_s=HANG_UP_TIMEOUT_S)


def build_service_graph(plan: ServedPlan, *, device: str) -> bytes:
    """Return a serialized graph that serves a plan, as `transport.data_server` expects it."""
    suited = [each for each in plan.hot if suits_one_thread(plan.functions[each])]
    # For the other functions TensorFlow would visit all operations in each call.
    hot = plan.hot if len(suited) == len(plan.hot) else plan.hot[:1]
    loop = trace_server_function(
        lambda connection: service_loop(plan.functions, hot=hot, connection=connection),
        device=device,
        signature=[tf.TensorSpec([], tf.int64)],
    )
    graph = tf.Graph()
    with tf.init_scope(), graph.as_default(), tf.device(device):
        connection = tf.compat.v1.placeholder(tf.int64, [], name="connection")
        tf.identity(loop(connection)[0], name="end")
    definition = graph.as_graph_def()
    for each in suited:
        run_on_one_thread(definition, plan.functions[each].function_def.signature.name)
    return bytes(definition.SerializeToString())


@functools.cache
def _get_process_links() -> Links:
    """Return this process's connections to servers, over which the coordinator pulls and pushes."""
    links = Links(encryption=encryption_from_environment())
    links.register(in_a_task=False)
    return links


@functools.cache
def _get_process_reducer() -> Reducer:
    """Return what adds up tensors of workers that are devices of this process."""
    reducer = Reducer(host="localhost", port=0, encryption=Plain())
    reducer.register()
    return reducer


def _format_secret_mismatch(tasks: Sequence[str], *, chief_has_one: bool) -> str:
    received = "another secret than this process, or none" if chief_has_one else "a secret"
    return (
        f"{SECRET_VARIABLE}: {', '.join(tasks)} received {received}, expected the same as this "
        f"process{'' if chief_has_one else ', which has none'}. Give the same {SECRET_VARIABLE} "
        "(or TFPS_JOB_SECRET_FILE) to all tasks of the job, including the chief, or to none."
    )
