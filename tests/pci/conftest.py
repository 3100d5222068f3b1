"""The machine and what is around it, once for all tests of this folder for each kind of NIC, and then gone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from guest import Guest
from outside import NICS, NODE, Nic, Site

from lab import machine
from lab.namespaces import LabError
from lab.topology import ROUTER


def say(text: str) -> None:
    """One line for the person who waits."""
    print(f"\n[{time.strftime('%H:%M:%S')}] {text}", end="", flush=True)


@pytest.fixture(scope="session", params=NICS, ids=[nic.name for nic in NICS])
def nic(request: pytest.FixtureRequest) -> Nic:
    chosen: Nic = request.param
    return chosen


@pytest.fixture(scope="session")
def site(nic: Nic) -> Iterator[Site]:
    try:
        machine.require()
    except LabError as error:
        pytest.fail(str(error))
    made = Site()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def guest(request: pytest.FixtureRequest, site: Site, nic: Nic) -> Iterator[Guest]:
    made = Guest(ROUTER, NODE.name, nic.device, site.work, nic.queues)
    try:
        say(f"a machine with {nic.name} behind an IOMMU is up after {made.wait():.0f} s")
        site.connect()
        yield made
        if request.session.testsfailed:
            print(made.attempt("journalctl -u maglev --no-pager | tail -n 40; dmesg | tail; maglev status")[1])
    finally:
        made.close()
