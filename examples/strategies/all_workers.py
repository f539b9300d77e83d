"""Starts a script on several workers of this machine, as a scheduler does on several machines.

python examples/strategies/all_workers.py --workers 2 SCRIPT [ARGUMENTS]

Each process gets `TF_CONFIG`, which lists all workers and says which one it is. `tfps run` starts
no such cluster: there the script runs once, and the other tasks serve it.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tfps.cluster import lease_ports

LOOK_EVERY_S = 0.1


def start(script, arguments, workers, lease):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in lease.ports]}
    for index in range(workers):
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        environment[lease.REUSE_PORT_VARIABLE] = "true"
        yield subprocess.Popen([sys.executable, script, *arguments], env=environment)


def main():
    if len(sys.argv) < 4 or sys.argv[1] != "--workers" or not Path(sys.argv[3]).is_file():
        raise SystemExit(f"usage: {sys.argv[0]} --workers N SCRIPT [ARGUMENTS]")
    workers, script = int(sys.argv[2]), sys.argv[3]
    arguments = [*sys.argv[4:], "--workers", str(workers)]
    with lease_ports(workers) as lease:
        processes = list(start(script, arguments, workers, lease))
        # One that fails would be waited for by the others in their next all-reduce.
        while None in (states := [process.poll() for process in processes]) and not any(states):
            time.sleep(LOOK_EVERY_S)
        for process in processes if any(states) else []:
            process.kill()
        statuses = [process.wait() for process in processes]
    raise SystemExit(next((status for status in states if status), max(statuses)))


if __name__ == "__main__":
    main()
