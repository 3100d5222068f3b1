"""`maglev explain` from inside: lines in the order of the capture whenever fates are met, and none left out."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from forwarder import explain, replay
from forwarder._capture import CaptureError, CaptureReader
from forwarder._dataplane import Dataplane
from forwarder.explain import Lines, in_order
from forwarder.settings import parse
from packets.captures import NANOSECONDS, pcap
from packets.test_replay import PACKETS, settings
from packets.world import WORLD


def trace(number: int, reason: str = "new_flow") -> replay.Trace:
    return number, reason, None, None


@pytest.mark.parametrize(
    "batches",
    [
        [[0], [1], [2], [3]],
        [[3, 2, 1, 0]],
        [[1], [2, 3], [], [0]],
        [[], [0, 2], [], [3], [1], []],
    ],
    ids=["at once", "backwards", "the first one last", "one in between"],
)
def test_a_packet_that_is_held_back_holds_up_the_lines_of_later_ones(batches: list[list[int]]) -> None:
    assert [number for number, *_ in in_order([trace(n) for n in batch] for batch in batches)] == [0, 1, 2, 3]


def test_a_line_is_written_as_soon_as_its_turn_has_come() -> None:
    batches = iter([[trace(0)], [trace(2)], [trace(1)]])
    told = in_order(batches)
    assert next(told) == trace(0)
    assert next(told) == trace(1)
    assert next(batches, None) is None
    assert next(told) == trace(2)


def test_names_may_be_anything() -> None:
    names = {5: 'a "vip"'}, {9: "b\\end"}
    assert json.loads(Lines(*names, as_json=True).line((7, "new_flow", 5, 9))) == {
        "index": 7,
        "fate": "hash_new",
        "reason": "new_flow",
        "vip": 'a "vip"',
        "backend": "b\\end",
    }


# -- in this process, whose DPDK is there already


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(replay, "initialize", lambda arguments: None)
    (tmp_path / "in").write_bytes(pcap(PACKETS[:3]))
    return tmp_path / "in"


def test_a_packet_that_meets_no_fate_is_said(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    explain.explain(parse(settings()), WORLD, source, out, as_json=True)
    assert len(out.getvalue().splitlines()) == 3
    traces = replay.Replay.traces

    def forgetful(run: replay.Replay) -> list[replay.Trace]:
        return [trace for trace in traces(run) if trace[0] != 1]

    monkeypatch.setattr(replay.Replay, "traces", forgetful)
    with pytest.raises(CaptureError, match="2 packets met no fate, the first of them is 1"):
        explain.explain(parse(settings()), WORLD, source, out)


class Watched:
    """A data plane whose clock is written down."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane
        self.clock: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataplane, name)

    def step(self, now: int) -> int:
        self.clock.append(now)
        return self._dataplane.step(now)


@pytest.mark.parametrize("lost", [0, 7], ids=["whole", "cut"])
def test_behind_the_last_packet_time_goes_on_until_nothing_can_be_held_back(source: Path, lost: int) -> None:
    source.write_bytes(pcap(PACKETS[:4])[: -lost or None])
    run = replay.Replay(parse(settings()), WORLD, 1)
    watched = run._dataplane = Watched(run._dataplane)  # type: ignore[assignment]
    times: list[int] = []
    with pytest.raises(CaptureError) if lost else nullcontext():
        times.extend(run.steps(CaptureReader(str(source))))
    for _ in run.sent():
        pass
    assert run.close() == 0
    expected = [when for when, _ in PACKETS[: 3 if lost else 4]]
    assert watched.clock[-1] == expected[-1] // NANOSECONDS + replay.LONGEST_HOLD
    assert times == [*expected, expected[-1]]
