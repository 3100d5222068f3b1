"""DPDK's environment, once per process, and roads that verify themselves after every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forwarder import _dataplane
from packets.road import LCORES, Road, allowed_cpus
from packets.world import WORLD

MEGABYTES = 256
LAYOUTS = ("software", "rss")
SANITIZED = Path(__file__).parents[2] / "build" / "sanitized"


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    """EAL without hugepages, files or devices: lcore 0 is this thread, the others take turns on the CPUs."""
    if os.environ.get("MAGLEV_SANITIZE"):
        assert Path(_dataplane.__file__).is_relative_to(SANITIZED), "these tests were to be run sanitized"
    cpus = allowed_cpus()
    lcores = [f"{lcore}@{cpus[(lcore - 1) % len(cpus)]}" for lcore in LCORES]
    floating = ",".join(str(cpu) for cpu in cpus)
    try:
        _dataplane.initialize(
            ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", str(MEGABYTES)]
            + ["--log-level", "lib.eal:warning", "--lcores", ",".join([f"0@({floating})", *lcores])]
        )
    finally:
        os.sched_setaffinity(0, cpus)  # EAL pinned this thread, and every process it starts would inherit that


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every road test runs in both layouts, or in those that its marker `layout` names."""
    if "layout" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("layout")
        metafunc.parametrize("layout", only.args if only else LAYOUTS)


@pytest.fixture
def make_road(layout: str) -> Iterator[Callable[..., Road]]:
    """Makes roads; each is verified and closed after the test, the last one first."""
    made: list[Road] = []

    def make(**options: object) -> Road:
        made.append(Road(**{"layout": layout, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for road in reversed(made):
        try:
            road.verify()
        finally:
            road.close()


@pytest.fixture
def road(make_road: Callable[..., Road]) -> Road:
    """One worker, one port, and the world's vips."""
    road = make_road()
    road.apply(WORLD)
    return road
