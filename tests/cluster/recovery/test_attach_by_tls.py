"""A reader with a certificate of the job reads it by TLS over its servers' data ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.counting_model import count_of, counting_model, updates_of
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises
from tests.unit.transport.direct.certificates import made_tls, needs_openssl
from tfps.cluster import lease_ports
from tfps.errors import ConfigError, ConnectTimeout
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180), needs_openssl]

SECRET = "correct horse"
STEPS = 6


class EncryptedJob:
    """A named job whose server shows a certificate, and the readers that it admits."""

    def __init__(self, cluster: LocalCluster, port: int, tls: tfps.TLS) -> None:
        self.cluster, self.addresses, self.tls = cluster, [f"127.0.0.1:{port}"], tls
        self.strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, job="night", transport="direct"
        )
        with self.strategy.scope():
            self.model = counting_model()

    def attach(self, job: str = "night", **other: Any) -> tfps.Attachment:
        given: dict[str, Any] = {"secret": SECRET, "tls": self.tls, "timeout_s": 20.0} | other
        return tfps.attach(job, self.addresses, **given)

    def fit(self, **options: Any) -> None:
        data = np.zeros([STEPS, 1])
        self.model.fit(data, data, batch_size=1, verbose=0, **options)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedJob]:
    folder: Path = tmp_path_factory.mktemp("tls")
    tls = made_tls(folder / "job")
    variables = {
        "TFPS_JOB_SECRET": SECRET,
        "TFPS_TLS_CERTIFICATE": tls.certificate,
        "TFPS_TLS_KEY": tls.key,
        "TFPS_TLS_AUTHORITY": tls.authority,
    }
    with lease_ports(1) as lease:
        (port,) = lease.ports
    with pytest.MonkeyPatch.context() as patch, assert_no_leaks():
        for name, value in variables.items():
            patch.setenv(name, value)
        environment = variables | {"TFPS_DATA_PORT": str(port)}
        with LocalCluster(workers=1, ps=1, log_dir=folder, environment=environment) as cluster:
            guarded = EncryptedJob(cluster, port, tls)
            yield guarded
            guarded.strategy.close()


def test_it_reads_what_the_chief_would(job: EncryptedJob) -> None:
    job.fit()
    with job.attach() as reader:
        values, versions = reader.pull()
        theirs, _ = job.strategy.pull()
        assert set(values) == set(theirs)
        for name, value in theirs.items():
            np.testing.assert_array_equal(values[name], value, err_msg=name)
        assert vars(reader.stats()).items() <= vars(job.strategy.stats()).items()

        read: list[int] = []

        def look(*_: Any, **__: Any) -> None:
            now, (version,) = reader.pull()
            numbers = {count_of([v]) for name, v in now.items() if "learning_rate" not in name}
            assert numbers == {int(version)}  # of one moment
            read.append(int(version))

        job.fit(callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
        assert read == sorted(read)
        assert versions[0] < read[-1] <= updates_of(job.model)


def test_who_may_not_read(job: EncryptedJob, tmp_path: Path) -> None:
    """Each gets one error that says what to look at."""
    other_tls = made_tls(tmp_path / "other")
    with raises(ConfigError, "tls", remedy="certificate"):
        job.attach(tls=other_tls)
    with raises(ConfigError, "'night'"):
        job.attach(secret="battery staple")
    with raises(ConfigError, "'day'"):
        job.attach("day")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    with raises(ConnectTimeout, "server", received=nobody):
        tfps.attach("night", [nobody], secret=SECRET, tls=job.tls, timeout_s=3)


def test_a_server_that_hangs_is_not_waited_for(job: EncryptedJob) -> None:
    """The server is read again when it goes on."""
    with job.attach(timeout_s=1.0) as reader:
        job.cluster.suspend("ps", 0)
        try:
            with raises(tf.errors.UnavailableError, "is lost"):
                reader.pull()
        finally:
            job.cluster.resume("ps", 0)
        assert reader.pull()[1] == job.strategy.pull()[1]


def test_arguments_that_do_not_fit(job: EncryptedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFPS_JOB_SECRET")
    with pytest.raises(ConfigError) as raised:
        tfps.attach("night", tls=True)  # type: ignore[arg-type]
    text = str(raised.value)
    assert "tls: received True, expected a tfps.TLS" in text
    assert "addresses: received None; with tls=, expected a list" in text
    assert "secret: received none; with tls=, expected that of the servers" in text
