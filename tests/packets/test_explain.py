"""`maglev explain`: fate and reason of each packet of a capture, told by the stages that `maglev replay` runs."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.l2 import GRE
from scapy.packet import Packet

from forwarder._dataplane import FATE_KINDS, FATES, REASONS
from packets import captures
from packets.captures import NANOSECONDS, START, Record, mixed, pcap
from packets.test_replay import BAD_FILES, PACKETS, settings
from packets.world import (
    BACKENDS,
    CLIENT,
    ELSEWHERE,
    EMPTY,
    VIP,
    VIP6,
    WORLD,
    backend_address,
    ether,
    flow,
    tcp,
    udp,
)

ROOT = Path(__file__).parents[2]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as on most machines

CONFIG = f"""\
node:
  name: lb1
  tunnel_source: {{ipv4: 10.0.2.2, ipv6: "fd00:2::2"}}
  hash_key: "000102030405060708090a0b0c0d0e0f"
backend_pools:
  web: {{backends: [{{name: web1, address: 10.0.3.2}}]}}
  six: {{backends: [{{name: six1, address: "fd00:3::2"}}]}}
  gone: {{backends: [{{name: gone1, address: 10.0.9.2, drain: true}}]}}
vips:
  - {{name: www, address: {VIP}, protocol: tcp, port: 80, pools: [web]}}
  - {{name: www6, address: "{VIP6}", protocol: tcp, port: 80, pools: [six]}}
  - {{name: empty, address: {EMPTY}, protocol: tcp, port: 80, pools: [gone]}}
"""


@dataclass(frozen=True)
class Step:
    """A packet of a capture and what must be said of it."""

    packet: Packet | bytes
    fate: str
    reason: str
    vip: str | None = None
    backend: str | None = None


def error(to: Packet) -> Packet:
    """An ICMP error about the answer to a TCP packet."""
    answer = IP(src=to.dst, dst=to.src) / TCP(sport=to.dport, dport=to.sport)
    return IP(src=ELSEWHERE, dst=to.dst) / ICMP(type=3, code=1) / bytes(answer)[:28]


def too_big_report() -> Packet:
    """A router's word to the tunnel source about what the node sent to a backend."""
    quote = IP(src="10.0.2.2", dst="10.0.3.2", proto=47) / GRE(proto=0x0800) / bytes(4)
    return IP(src=ELSEWHERE, dst="10.0.2.2") / ICMP(type=3, code=4, nexthopmtu=1400) / quote


# A capture that reaches every fate that a capture can reach, a millisecond between its packets.
CAPTURE = [
    Step(tcp(), "hash_new", "new_flow", "www", "web1"),
    Step(tcp(flags="A"), "conn_hit", "known_flow", "www", "web1"),
    Step(tcp(sport=40001, flags="R"), "hash_untracked", "reset_untracked", "www", "web1"),
    Step(error(tcp()), "icmp_error", "error_known", "www", "web1"),
    Step(error(tcp(sport=40002)), "icmp_error", "error_by_table", "www", "web1"),
    Step(IP(src=CLIENT, dst=VIP) / ICMP(), "echo_reply", "echo_answered"),
    Step(tcp(payload=bytes(1460)), "too_big_reply", "too_big_answered", "www", "web1"),
    Step(tcp(VIP6, payload=bytes(1440)), "too_big_reply", "too_big_answered", "www6", "six1"),
    Step(tcp(ELSEWHERE), "not_vip", "other_address"),
    Step(udp(), "not_vip", "other_port"),
    Step(tcp(EMPTY), "no_backend", "no_backend", "empty"),
    Step(IP(src=CLIENT, dst=EMPTY) / ICMP(), "no_backend", "echo_no_backend"),
    Step(IP(src=CLIENT, dst=VIP, chksum=1) / TCP(dport=80), "malformed", "ipv4_checksum"),
    Step(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=4), "malformed", "tcp_header", "www"),
    Step(b"\0", "malformed", "ethernet_cut"),
    Step(tcp(ttl=0), "ttl_expired", "ttl_zero", "www"),
    Step(tcp(src=VIP, payload=bytes(1460)), "too_big", "too_big_silent", "www", "web1"),
    Step(IP(src=VIP, dst=VIP) / ICMP(), "echo_suppressed", "echo_silent"),
    Step(IP(src=CLIENT, dst=VIP, frag=9, proto=17) / bytes(64), "fragment_unmatched", "fragment_late"),
    Step(IP(src=CLIENT, dst=VIP, id=7, frag=9, proto=6) / bytes(64), "fragment", "fragment_later", "www", "web1"),
    Step(IP(src=CLIENT, dst=VIP, id=7, flags="MF") / TCP(dport=80), "fragment", "fragment_first", "www", "web1"),
    Step(too_big_report(), "path_mtu", "path_mtu_lowered"),
    Step(tcp(flags="FA"), "conn_hit", "known_flow", "www", "web1"),
    Step(tcp(), "hash_new", "new_after_closing", "www", "web1"),
]

# Fates that no capture reaches, and why. They are reached in test_reasons.py, on roads that are not so well off.
OUT_OF_REACH = {
    "punt": "there is no kernel behind a capture: what is not ours is not_vip",
    "punt_suppressed": "there is no kernel behind a capture: what is not ours is not_vip",
    "from_kernel": "there is no kernel behind a capture",
    "no_neighbor": "no kernel is asked: the next hop's MAC is the configuration's or a fixed one",
    "ring_full": "every packet gets through before the next one comes",
    "transmit_full": "every packet gets through before the next one comes",
    "no_headroom": "a frame of a capture has more room before it than the outer headers take",
}


@dataclass
class Run:
    """What one command said."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert (self.status, self.stderr) == (0, "")
        return [json.loads(line) for line in self.stdout.splitlines()]


def command(config: Path, source: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "controller.cli", "explain", str(config), str(source), *options]


def run(argv: list[str], asked: str | None = None, **options: Any) -> Run:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(argv, input=asked, text=True, cwd=ROOT, env=BUFFERED, timeout=120, check=False, **options)
    return Run(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "lb1.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "in.pcap"
    frames = [s.packet if isinstance(s.packet, bytes) else bytes(ether(s.packet)) for s in CAPTURE]
    path.write_bytes(pcap((START + i * 10**6, frame) for i, frame in enumerate(frames)))
    return path


# -- a capture of everything


def test_the_capture_reaches_every_fate_within_reach() -> None:
    assert {step.fate for step in CAPTURE} == set(FATES) - set(OUT_OF_REACH)
    assert all(REASONS[step.reason][0] == step.fate for step in CAPTURE)


@pytest.mark.parametrize("workers", [(), ("--workers", "3")], ids=["one worker", "three workers"])
def test_each_packet_is_told_with_fate_reason_vip_and_backend(
    config: Path, capture: Path, workers: tuple[str, ...]
) -> None:
    told = run(command(config, capture, "--json", *workers)).lines
    fields = ("fate", "reason", "vip", "backend")
    expected = [{"index": i} | {field: getattr(step, field) for field in fields} for i, step in enumerate(CAPTURE)]
    assert told == expected
    assert {tuple(line) for line in told} == {("index", *fields)}, "in this order"


def test_the_table_for_people_says_the_reasons_in_words(config: Path, capture: Path) -> None:
    done = run(command(config, capture))
    head, *rows = done.stdout.splitlines()
    assert (done.status, done.stderr) == (0, "")
    assert head.split() == ["index", "fate", "vip", "backend", "reason"]
    for index, (row, step) in enumerate(zip(rows, CAPTURE, strict=True)):
        assert row.split(maxsplit=4) == [
            str(index),
            step.fate,
            step.vip or "-",
            step.backend or "-",
            REASONS[step.reason][1],
        ]
        assert row.index(REASONS[step.reason][1]) == head.index("reason"), "columns are columns"


# -- the same as replay says


ASKED = json.dumps({"settings": settings(), "state": WORLD})


@dataclass
class Both:
    """A capture explained, and replayed: what was said, and what was sent."""

    lines: list[dict[str, Any]]
    result: dict[str, Any]
    out: list[Record]


@pytest.fixture(scope="module", params=["1", "5"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    directory = tmp_path_factory.mktemp("both")
    source, target = directory / "in.pcap", directory / "out.pcap"
    source.write_bytes(pcap(mixed(5000, seed=7)))
    options = ["--workers", request.param]
    told = run([sys.executable, "-m", "forwarder.explain", str(source), "--json", *options], ASKED)
    done = run([sys.executable, "-m", "forwarder.replay", str(source), str(target), *options], ASKED)
    return Both(told.lines, json.loads(done.stdout), captures.read(target))


def test_one_line_per_packet_in_order(both: Both) -> None:
    assert [line["index"] for line in both.lines] == list(range(5000))


def test_fates_vips_and_backends_are_those_that_replay_counts(both: Both) -> None:
    fates = Counter(line["fate"] for line in both.lines)
    assert dict(fates) == {fate: n for fate, n in both.result["fates"].items() if n}
    forwarded = [line for line in both.lines if FATE_KINDS[line["fate"]] == "forwarded"]
    for kind, plural in (("vip", "vips"), ("backend", "backends")):
        counted = {name: n["packets"] for name, n in both.result[plural].items() if n["packets"]}
        assert Counter(line[kind] for line in forwarded) == counted


def test_what_is_told_of_each_packet_is_what_happened_to_it(both: Both) -> None:
    """Records that were sent have the time of their cause, and no two packets came at the same time."""
    sent = dict(both.out)
    for line, (when, _) in zip(both.lines, mixed(5000, seed=7), strict=True):
        kind = FATE_KINDS[line["fate"]]
        assert (when in sent) == (kind in ("forwarded", "answered")), line
        if kind == "forwarded":
            assert backend_address(sent[when]) == str(ip_address(BACKENDS[line["backend"]]))


def test_the_clock_is_the_captures(tmp_path: Path) -> None:
    frames = {0: flow(1), 11: flow(1, flags="A"), 12: flow(1, flags="A")}
    (tmp_path / "in").write_bytes(pcap((START + at * NANOSECONDS, frame) for at, frame in frames.items()))
    done = run([sys.executable, "-m", "forwarder.explain", str(tmp_path / "in"), "--json"], ASKED)
    assert [line["reason"] for line in done.lines] == ["new_flow", "new_flow", "known_flow"]


@pytest.mark.parametrize(("workers", "refused"), [("1", 200), ("2", 0)])
def test_there_are_as_many_workers_as_asked_for(tmp_path: Path, workers: str, refused: int) -> None:
    """Each answers a thousand echo requests in a second; 1200 clients come to both of two."""
    pings = (IP(src=f"198.51.{i >> 8}.{i & 255}", dst=VIP) / ICMP() for i in range(1200))
    (tmp_path / "in").write_bytes(pcap((START + i, bytes(ether(ping))) for i, ping in enumerate(pings)))
    argv = [sys.executable, "-m", "forwarder.explain", str(tmp_path / "in"), "--json", "--workers", workers]
    assert Counter(line["reason"] for line in run(argv, ASKED).lines)["echo_rate"] == refused


def test_the_last_second_of_all_clocks(tmp_path: Path) -> None:
    """Of pcapng, whose clock goes farther. Time goes on behind the last packet, and comes round."""
    frame = flow(1) + bytes(2)
    when = (2**32 - 1) * 10**6  # microseconds
    block = struct.pack("<IIIIIII", 6, 32 + len(frame), 0, when >> 32, when & 0xFFFFFFFF, len(frame), len(frame))
    section = BAD_FILES["a time beyond all clocks"][: 28 + 20]
    (tmp_path / "in").write_bytes(section + block + frame + struct.pack("<I", 32 + len(frame)))
    done = run([sys.executable, "-m", "forwarder.explain", str(tmp_path / "in"), "--json"], ASKED)
    assert [line["reason"] for line in done.lines] == ["new_flow"]


def test_no_packet_at_all(tmp_path: Path, config: Path) -> None:
    (tmp_path / "in").write_bytes(pcap([]))
    assert run(command(config, tmp_path / "in", "--json")) == Run(0, "", "")
    assert len(run(command(config, tmp_path / "in")).stdout.splitlines()) == 1


# -- what goes wrong


@pytest.mark.parametrize("raw", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_capture_is_said_in_one_sentence_after_what_can_be_told(
    config: Path, tmp_path: Path, raw: bytes
) -> None:
    (tmp_path / "bad").write_bytes(raw)
    done = run(command(config, tmp_path / "bad", "--json"))
    assert done.status == 1
    assert done.stderr.startswith(f"maglev explain: {tmp_path / 'bad'}: ")
    assert len(done.stderr.splitlines()) == 1
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == list(range(done.stdout.count("\n")))


def test_a_capture_that_was_cut_is_told_as_far_as_it_goes(config: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(pcap(PACKETS)[:-7])
    done = run(command(config, tmp_path / "cut", "--json"), stderr=subprocess.STDOUT)
    *lines, sentence = done.stdout.splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(len(PACKETS) - 1))
    assert "truncated" in sentence, "what went wrong is said last"


def test_a_capture_that_is_not_there(config: Path, tmp_path: Path) -> None:
    done = run(command(config, tmp_path / "none"))
    assert (done.status, done.stdout) == (1, "")
    assert done.stderr == f"maglev explain: {tmp_path / 'none'}: No such file or directory\n"


def test_settings_and_states_that_are_refused_are_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap(PACKETS))
    for asked in ({"settings": {}, "state": WORLD}, {"settings": settings(), "state": {}}):
        done = run([sys.executable, "-m", "forwarder.explain", str(tmp_path / "in")], json.dumps(asked))
        assert (done.status, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@pytest.fixture
def long_capture(tmp_path: Path) -> Path:
    """More lines than any pipe holds."""
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap((START + i, flow(i)) for i in range(20_000)))
    return path


def test_whoever_reads_may_stop_at_any_time(config: Path, long_capture: Path) -> None:
    with subprocess.Popen(
        command(config, long_capture),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=BUFFERED,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split()[0] == "index"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_output_that_cannot_be_written_is_said(config: Path, capture: Path, long_capture: Path) -> None:
    for source in (capture, long_capture):
        with open("/dev/full", "w") as full:
            done = run(command(config, source), stdout=full)
        assert (done.status, done.stderr) == (1, "maglev explain: cannot write: No space left on device\n")


def test_lines_come_while_the_capture_is_still_being_read(config: Path, long_capture: Path, tmp_path: Path) -> None:
    """Nothing is kept that grows with the capture: it is read from a pipe whose end comes after the first lines."""
    os.mkfifo(tmp_path / "pipe")
    told = threading.Event()

    def feed() -> None:
        with (tmp_path / "pipe").open("wb") as pipe:
            pipe.write(long_capture.read_bytes())
            pipe.flush()
            told.wait(60)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with subprocess.Popen(
        command(config, tmp_path / "pipe"), stdout=subprocess.PIPE, text=True, cwd=ROOT, env=BUFFERED
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(1000)]
        told.set()
        lines += process.stdout.readlines()
    feeder.join()
    assert len(lines) == 20_001
