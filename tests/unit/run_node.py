"""`maglev run CONFIG` with the fake forwarder for the real one, and backends 10.0.x.y probed at 127.0.x.y."""

import asyncio
import sys
from ipaddress import ip_address
from pathlib import Path

from controller import app, logs
from controller.app import StartError
from controller.config import load
from controller.model import CheckKey
from controller.probes import make_probe
from controller.probes.check import Check
from controller.probes.probe import Probe
from controller.run import serve
from controller.rundir import RunDir

FAKE = (sys.executable, str(Path(__file__).with_name("fake_forwarder.py")))


def make_local_probe(key: CheckKey, check: Check) -> Probe:
    here = ip_address(str(key.address).replace("10.", "127.", 1))
    return make_probe(CheckKey(here, key.check), check)


if __name__ == "__main__":
    logs.set_up()
    setattr(app, "make_probe", make_local_probe)  # noqa: B010 - a name that app only imports
    path = Path(sys.argv[1])
    config = load(path)
    try:
        asyncio.run(serve(path, config, RunDir(config.node.name), forwarder_command=FAKE))
    except StartError as error:
        print(error, file=sys.stderr)
        sys.exit(2 if error.wrong else 1)
