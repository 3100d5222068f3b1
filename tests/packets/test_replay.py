"""`python -m forwarder.replay`: the same stages over a capture; deterministic, and every packet gets through."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import PcapNgWriter

from forwarder._dataplane import FATE_KINDS, FATES
from packets import captures
from packets.captures import NANOSECONDS, START, Record, mixed, pcap
from packets.cluster import client_of, in_cluster, pieces, sent_on
from packets.pieces import reassemble
from packets.table import inner_bytes, is_later_piece
from packets.world import (
    BACKENDS,
    CLIENT,
    GATEWAY_MAC,
    HASH_KEY,
    TUNNEL,
    TUNNEL6,
    VIP,
    WORLD,
    ether,
    finished,
    flow,
    left_to_a_nic,
    member,
    outer,
    state,
    tcp,
    udp,
    vip,
)

ROOT = Path(__file__).parents[2]
COUNT = 10_000
FORWARDED = [fate for fate, kind in FATE_KINDS.items() if kind == "forwarded"]
ANSWERED = [fate for fate, kind in FATE_KINDS.items() if kind == "answered"]
GRE, ICMPV6 = 47, 58


def settings(mtu: int = 1500, mac: str | None = None, steering: str = "software") -> dict[str, Any]:
    port = {"device": "eth1", "driver": "af_packet", "gateway": {"ipv4": None, "ipv6": None, "mac": mac}, "mtu": mtu}
    return {
        "node": "lb1",
        "hash_key": HASH_KEY.hex(),
        "tunnel_source": {"ipv4": TUNNEL, "ipv6": TUNNEL6},
        "ports": [port],
        "steering": steering,
        "lcores": {"steering": 0, "workers": [1], "muxing": 0},
        "idle": "sleep",
        "packet_pool": 16384,
        "ring_size": 2048,
        "connection_table": {
            "entries": 65536,
            "tcp_half_open": 10.0,
            "tcp_established": 7200.0,
            "tcp_closing": 10.0,
            "udp": 60.0,
        },
        "hugepages": True,
    }


@dataclass
class Run:
    """What one replay said and wrote."""

    status: int
    stdout: str
    stderr: str
    path: Path

    @property
    def result(self) -> dict[str, Any]:
        assert self.status == 0, self.stderr
        return json.loads(self.stdout)

    @property
    def fates(self) -> dict[str, int]:
        return {fate: n for fate, n in self.result["fates"].items() if n}

    @property
    def out(self) -> list[Record]:
        return captures.read(self.path)


Replay = Callable[..., Run]


def run(source: Path, target: Path, asked: dict[str, Any] | str, *options: str) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "forwarder.replay", str(source), str(target), *options],
        input=asked if isinstance(asked, str) else json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, target)


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Replays records, or the bytes of a capture file, against a state."""
    number = 0

    def once(capture: bytes | list[Record], *options: str, state: dict[str, Any] = WORLD, **fields: Any) -> Run:
        nonlocal number
        number += 1
        source, target = tmp_path / f"in{number}.pcap", tmp_path / f"out{number}.pcap"
        source.write_bytes(capture if isinstance(capture, bytes) else pcap(capture))
        return run(source, target, {"settings": settings(**fields), "state": state}, *options)

    return once


@pytest.fixture(scope="module")
def capture() -> list[Record]:
    return mixed(COUNT)


@pytest.fixture(scope="module")
def whole(capture: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One replay of the mixed capture that several tests look at."""
    directory = tmp_path_factory.mktemp("replay")
    (directory / "in.pcap").write_bytes(pcap(capture))
    return run(directory / "in.pcap", directory / "out.pcap", {"settings": settings(), "state": WORLD})


def at(seconds: float, packet: Packet | bytes) -> Record:
    return START + int(seconds * NANOSECONDS), bytes(packet if isinstance(packet, bytes) else ether(packet))


def gist(record: Record) -> tuple[int, bytes, bytes]:
    """A record without its outer id: time, outer destination, GRE and inner packet, or as much as a piece has."""
    when, frame = record
    four = frame[12:14] == b"\x08\x00"
    return when, frame[30:34] if four else frame[38:54], frame[34:] if four else frame[54:]


def protocol(frame: bytes) -> int:
    return frame[23] if frame[12:14] == b"\x08\x00" else frame[20]


def answers(frame: bytes, cause: bytes) -> bool:
    """Whether a frame sent by the node itself is about `cause`: the reply to an echo, or an error that quotes it."""
    at = 34 if frame[12:14] == b"\x08\x00" else 54
    if protocol(cause) in (1, ICMPV6):
        return frame[at + 4 :] == cause[at + 4 : len(frame)]
    return cause[14:].startswith(frame[at + 8 :])


def is_forwarded(record: Record) -> bool:
    return protocol(record[1]) == GRE


# -- a capture of everything


def test_two_runs_are_identical(whole: Run, capture: list[Record], replay: Replay) -> None:
    again = replay(capture)
    assert again.stdout == whole.stdout
    assert again.path.read_bytes() == whole.path.read_bytes()


def test_stdout_is_one_json_object_of_the_described_shape(whole: Run) -> None:
    assert len(whole.stdout.splitlines()) == 1
    result = whole.result
    assert list(result) == ["received", "sent", "fates", "vips", "backends", "connections"]
    assert list(result["fates"]) == list(FATES)
    assert set(result["vips"]) == {v["name"] for v in WORLD["vips"]}
    assert set(result["backends"]) == set(BACKENDS)
    for counts in [*result["vips"].values(), *result["backends"].values()]:
        assert list(counts) == ["packets", "bytes"]
    assert whole.stderr == ""


def test_conservation(whole: Run) -> None:
    """Every packet gets through: received is the sum of the fates, and what was sent lies in the file."""
    result = whole.result
    assert result["received"] == COUNT == sum(result["fates"].values())
    forwarded = [record for record in whole.out if is_forwarded(record)]
    pieces = [record for record in forwarded if is_later_piece(record[1])]
    packets = len(forwarded) - len(pieces)
    assert result["sent"] == len(whole.out) == sum(map(result["fates"].get, FORWARDED + ANSWERED)) + len(pieces)
    assert packets == sum(result["fates"][fate] for fate in FORWARDED)
    assert len(pieces) > 100
    inner = sum(inner_bytes(frame) for _, frame in forwarded)
    for table in (result["vips"], result["backends"]):
        assert sum(counts["packets"] for counts in table.values()) == packets
        assert sum(counts["bytes"] for counts in table.values()) == inner
    for fate in ("ring_full", "transmit_full", "punt"):
        assert result["fates"][fate] == 0
    reached = {
        "conn_hit",
        "fragment",
        "hash_new",
        "hash_untracked",
        "icmp_error",
        "path_mtu",
        "echo_reply",
        "too_big_reply",
        "not_vip",
        "no_backend",
        "malformed",
        "ttl_expired",
        "too_big",
        "echo_suppressed",
    }
    assert reached | {"fragment_unmatched"} == set(whole.fates)


def test_each_packet_sent_has_the_time_and_the_bytes_of_its_cause(whole: Run, capture: list[Record]) -> None:
    cause = dict(capture)
    assert len(cause) == COUNT
    sent = {when: [frame for _, frame in records] for when, records in groupby(whole.out, lambda record: record[0])}
    assert list(sent) == sorted(set(sent)), "the pieces of a packet stand together"
    for when, frames in sent.items():
        if is_forwarded((when, frames[0])):
            frame = reassemble(frames) if len(frames) > 1 else frames[0]
            inner = gist((when, frame))[2][4:]
            assert cause[when][14 : 14 + len(inner)] == inner
        else:
            (frame,) = frames
            assert answers(frame, cause[when])


@pytest.mark.parametrize("workers", ["3", "7", "32"])
def test_several_workers_send_the_same_packets(
    whole: Run, capture: list[Record], replay: Replay, workers: str
) -> None:
    several = replay(capture, "--workers", workers)
    assert sorted(map(gist, several.out)) == sorted(map(gist, whole.out))
    assert several.result == whole.result
    assert replay(capture, "--workers", workers).path.read_bytes() == several.path.read_bytes()


def test_with_rss_one_worker_sends_the_same_bytes(whole: Run, capture: list[Record], replay: Replay) -> None:
    rss = replay(capture, steering="rss")
    assert rss.result == whole.result
    assert rss.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.parametrize("workers", ["3", "32"])
def test_with_rss_several_workers_send_the_same_packets(
    whole: Run, capture: list[Record], replay: Replay, workers: str
) -> None:
    several = replay(capture, "--workers", workers, steering="rss")
    assert several.result == whole.result
    again = replay(capture, "--workers", workers, steering="rss")
    assert again.path.read_bytes() == several.path.read_bytes()


def test_frames_are_what_the_tables_of_the_road_say(replay: Replay) -> None:
    one = replay([at(0, tcp()), at(1, udp()), at(2, udp(dport=80))])
    assert one.out == [at(0, outer(tcp(), BACKENDS["web1"])), at(2, outer(udp(dport=80), BACKENDS["dns1"]))]
    assert one.fates == {"hash_new": 2, "not_vip": 1}
    assert one.result["backends"]["web1"] == {"packets": 1, "bytes": 40}
    assert one.result["vips"]["dns"] == {"packets": 1, "bytes": 36}


# -- settings and state


def test_the_mtu_and_the_gateway_of_the_settings_are_used(replay: Replay) -> None:
    small = replay([at(0, tcp(payload=bytes(36))), at(0, tcp(payload=bytes(37)))], mtu=100, mac="02:00:00:00:00:99")
    assert small.fates == {"too_big_reply": 1, "hash_new": 1}
    assert [frame[:6].hex(":") for _, frame in small.out] == ["02:00:00:00:00:99", GATEWAY_MAC], "answers go back"
    assert replay([at(0, tcp())]).out[0][1][:6].hex(":") == GATEWAY_MAC


def test_a_learned_path_mtu_lives_by_the_clock_of_the_capture(replay: Replay) -> None:
    big, to_be_cut = tcp(payload=bytes(1436)), tcp(payload=bytes(1436), flags="A")
    to_be_cut.getlayer(IP).flags = 0
    quote = outer(big, BACKENDS["web1"])[14:42]
    report = IP(src=CLIENT, dst=TUNNEL) / ICMP(type=3, code=4, nexthopmtu=1400) / quote
    done = replay([at(0, big), at(1, report), at(2, big), at(3, to_be_cut), at(600.9, big), at(601, big)])
    assert done.fates == {"hash_new": 1, "path_mtu": 1, "too_big_reply": 2, "conn_hit": 2}
    assert [len(frame) for _, frame in done.out] == [1514, 590, 14 + 1396, 14 + 20 + 104, 590, 1514]
    assert {Ether(frame)[ICMP].nexthopmtu for _, frame in done.out if len(frame) == 590} == {1376}
    assert done.result["sent"] == 6
    assert done.result["backends"]["web1"] == {"packets": 3, "bytes": 3 * 1476}


def test_weight_0_drain_and_down_take_no_new_flow(replay: Replay) -> None:
    names = {f"b{i}": f"10.0.{i}.2" for i in range(1, 5)}
    members = [member("b1"), member("b2", 0), member("b3", 100, "drain"), member("b4", 100, "down")]
    done = replay([at(i, flow(i)) for i in range(100)], state=state(names, vip("www", VIP, members)))
    counted = {name: counts["packets"] for name, counts in done.result["backends"].items()}
    assert counted == {"b1": 100, "b2": 0, "b3": 0, "b4": 0}


def test_a_state_that_is_refused_is_said_in_one_sentence(replay: Replay) -> None:
    refused = replay([at(0, tcp())], state=state({}, vip("www", VIP, ["b1"])))
    assert refused.status == 1
    assert refused.stderr == "maglev replay: vip www: member b1 is not among the backends\n"


def test_settings_that_are_refused_are_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap([at(0, tcp())]))
    refused = run(tmp_path / "in", tmp_path / "out", {"settings": {}, "state": WORLD})
    assert (refused.status, len(refused.stderr.splitlines())) == (1, 1)


# -- the clock is the capture's


def test_timers_run_by_the_timestamps(replay: Replay) -> None:
    done = replay(
        [
            at(0, tcp()),
            at(11, tcp(flags="A")),  # the half-open entry is gone
            at(12.5, tcp(flags="A")),  # established
            at(7000, tcp(flags="A")),
            at(14201.5, tcp(flags="A")),  # gone after two hours
        ]
    )
    assert done.fates == {"hash_new": 3, "conn_hit": 2}
    assert done.result["connections"] == 1


def test_connections_are_those_alive_at_the_last_timestamp(replay: Replay) -> None:
    flows = [at(i / 100, flow(i)) for i in range(100)]
    assert replay(flows).result["connections"] == 100
    assert replay([*flows, at(5.5, b"\0"), at(11.5, b"\0")]).result["connections"] == 0


def test_answers_are_limited_by_the_timestamps(replay: Replay) -> None:
    """A thousand a second of each kind."""
    ping, big = IP(src=CLIENT, dst=VIP) / ICMP(id=1, seq=1), tcp(payload=bytes(1460))
    flood = [at(i / 4000, (ping, big)[i % 2]) for i in range(2200)]
    done = replay([*flood, at(0.999, ping), at(1, ping), at(1.5, big)])
    assert done.fates == {"echo_reply": 1001, "echo_suppressed": 101, "too_big_reply": 1001, "too_big": 100}
    assert done.result["sent"] == len(done.out) == 2002


def test_a_timestamp_that_goes_back_does_not_turn_the_clock_back(replay: Replay) -> None:
    done = replay([at(100, tcp()), at(50, tcp(flags="A")), at(101, tcp(flags="A"))])
    assert done.fates == {"hash_new": 1, "conn_hit": 2}
    assert [when for when, _ in done.out] == [at(100, b"")[0], at(50, b"")[0], at(101, b"")[0]]


def test_time_zero_is_a_time(replay: Replay) -> None:
    done = replay([(0, bytes(ether(tcp()))), (1, bytes(ether(tcp(flags="A"))))])
    assert done.fates == {"hash_new": 1, "conn_hit": 1}
    assert [when for when, _ in done.out] == [0, 1]


@pytest.mark.parametrize("rest", [86400, 86401, 2**20 - 5, 2**20, 2**20 + 5, 2**21, 2**25])
def test_a_flow_that_rested_for_days_is_a_new_one(replay: Replay, rest: int) -> None:
    """Also when the clock in the entries, of 20 bits, has come round to where it was."""
    assert replay([at(0, tcp()), at(rest, tcp(flags="A"))]).fates == {"hash_new": 2}


# -- fragments


@pytest.mark.parametrize("workers", ["1", "2"])
def test_early_fragments_wait_by_the_timestamps_and_leave_with_the_first(replay: Replay, workers: str) -> None:
    (a, b, c), (d, e, f) = pieces(number=1), pieces(number=2)
    records = [at(0, b), at(0.5, e), at(1.5, a), at(2.5, d), at(2.6, f), at(4, c)]
    done = replay(records, "--workers", workers)
    assert done.fates == {"fragment": 5, "fragment_unmatched": 1}  # e, of which the second tick came first
    assert [when for when, _ in done.out] == [at(when, b"")[0] for when in (1.5, 1.5, 2.5, 2.6, 4)]
    assert {when for when, frame in done.out if frame[38:] == bytes(b)} == {at(1.5, b"")[0]}


def test_as_many_early_fragments_wait_as_in_a_node_of_the_default_pool(replay: Replay) -> None:
    datagrams = [pieces(number=number) for number in range(1, 1001)]
    records = [at(0, later) for _, later, _ in datagrams] + [at(0, first) for first, _, _ in datagrams]
    assert replay(records).fates == {"fragment": 2000}


def test_what_waits_at_the_end_has_a_fate_too(replay: Replay) -> None:
    done = replay([at(0, tcp()), at(0, pieces()[1])])
    assert done.fates == {"hash_new": 1, "fragment_unmatched": 1}
    assert done.result["connections"] == 1


def test_another_nodes_fragments_are_sent_on(replay: Replay) -> None:
    theirs = pieces(src=client_of("lb2"))
    done = replay([at(0, packet) for packet in theirs], state=in_cluster(WORLD))
    assert done.fates == {"fragment": 3}
    assert [frame for _, frame in done.out] == [sent_on(packet, id=n) for n, packet in enumerate(theirs)]
    assert sum(counts["packets"] for counts in done.result["vips"].values()) == 0


# -- files


def test_a_checksum_that_a_kernel_left_to_its_nic_is_finished(replay: Replay) -> None:
    """Captures that were taken at the sender are full of them."""
    ((_, frame),) = replay([at(0, left_to_a_nic(tcp(payload=b"odd")))]).out
    assert frame.endswith(bytes(finished(tcp(payload=b"odd"))))


def test_no_packet_at_all(replay: Replay) -> None:
    empty = replay([])
    assert empty.out == []
    assert (empty.result["received"], empty.result["sent"], empty.result["connections"]) == (0, 0, 0)


@pytest.mark.parametrize("form", [{"micro": True}, {"order": ">"}, {"micro": True, "order": ">"}])
def test_other_forms_of_pcap(replay: Replay, form: dict[str, Any]) -> None:
    records = [at(i, flow(i)) for i in range(20)]
    assert replay(pcap(records, **form)).out == replay(records).out


def test_pcapng(replay: Replay, tmp_path: Path) -> None:
    records = [(when, frame) for when, frame in mixed(200) if len(frame) >= 14]
    path = tmp_path / "in.pcapng"
    writer = PcapNgWriter(str(path))
    for when, frame in records:
        packet = Ether(frame)
        packet.time = when // 1000 / 10**6
        packet.wirelen = len(frame)
        writer.write(packet)
    writer.close()
    done, expected = replay(path.read_bytes()), replay(records)
    assert done.fates == expected.fates
    assert [frame for _, frame in done.out] == [frame for _, frame in expected.out]
    for (was, _), (is_, _) in zip(expected.out, done.out, strict=True):
        assert abs(was - is_) < 2000, "a microsecond at most is lost in this format"


def test_jumbo_frames(replay: Replay) -> None:
    inner = tcp(payload=bytes(8000))
    done = replay([at(0, inner)], mtu=9000)
    assert done.out == [at(0, outer(inner, BACKENDS["web1"]))]


PACKETS = [at(i, flow(i)) for i in range(10)]
BAD_FILES = {
    "a text file": b"not a capture, only a text of some lines\n" * 10,
    "an empty file": b"",
    "a header cut short": pcap([])[:20],
    "cut in the middle of a frame": pcap(PACKETS)[:-7],
    "cut in the middle of a record's header": pcap(PACKETS)[: 24 + 16 + 54 + 9],
    "frames cut by the snapshot length": pcap(PACKETS, snap=40),
    "not of Ethernet": pcap(PACKETS, link=101),
    "a length beyond all bounds": pcap([]) + struct.pack("<IIII", 0, 0, 0x7FFFFFFF, 0x7FFFFFFF) + bytes(100),
    "a time beyond all clocks": bytes.fromhex(
        "0a0d0d0a1c0000004d3c2b1a01000000ffffffffffffffff1c000000"  # section
        "0100000014000000010000000000040014000000"  # interface: Ethernet
        "060000002400000000000000ffffff7fffffffff04000000040000000102030424000000"  # packet
    ),
}


@pytest.mark.parametrize("raw", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_capture_is_said_in_one_sentence(replay: Replay, raw: bytes) -> None:
    done = replay(raw)
    assert done.status == 1
    assert done.stdout == ""
    assert done.stderr.startswith("maglev replay: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_capture_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "none", tmp_path / "out", {"settings": settings(), "state": WORLD})
    assert (done.status, len(done.stderr.splitlines())) == (1, 1)
    assert "No such file" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap(PACKETS))
    done = run(tmp_path / "in", tmp_path / "no" / "out", {"settings": settings(), "state": WORLD})
    assert (done.status, len(done.stderr.splitlines())) == (1, 1)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap([at(i, flow(i)) for i in range(1000)]))
    done = run(tmp_path / "in", Path("/dev/full"), {"settings": settings(), "state": WORLD})
    assert (done.status, len(done.stderr.splitlines())) == (1, 1), done.stderr


def test_a_capture_is_not_written_over_itself(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(pcap(PACKETS))
    done = run(source, source, {"settings": settings(), "state": WORLD})
    assert (done.status, len(done.stderr.splitlines())) == (1, 1)
    assert source.read_bytes() == pcap(PACKETS)


@pytest.mark.parametrize("workers", ["0", "33", "many"])
def test_a_number_of_workers_that_cannot_be(replay: Replay, workers: str) -> None:
    assert replay(PACKETS, "--workers", workers).status == 2


def test_fates_of_a_flow_follow_one_another(replay: Replay) -> None:
    """Row by row, as an operator would read a capture."""
    done = replay([at(i, p) for i, p in enumerate([tcp(), tcp(flags="A"), tcp(flags="FA"), tcp(), tcp(flags="R")])])
    assert Counter(done.fates) == {"hash_new": 2, "conn_hit": 3}
