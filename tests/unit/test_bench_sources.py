"""Traffic sources that are not ours, by what they would say to a generator; none of them has seen a real one here."""

import argparse
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perf.sources import kernel_pktgen, running_node
from perf.sources.kernel_pktgen import KernelPktgen
from perf.sources.pktgen_dpdk import PktgenDpdk
from perf.sources.running_node import RunningNode


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    answer: dict[str, Any] = {"stats": {"fates": dict.fromkeys(running_node.FORWARDED, 2) | {"not_vip": 100}}}
    monkeypatch.setattr(running_node, "find_running", lambda name: SimpleNamespace(controller_socket=Path("socket")))
    monkeypatch.setattr(running_node, "ask", lambda path, method, resource: answer)
    return answer


def test_a_running_node_is_asked_what_it_forwarded(status: dict[str, Any]) -> None:
    assert RunningNode(None).forwarded() == 2 * len(running_node.FORWARDED)


def test_a_forwarder_that_does_not_answer_ends_the_search(status: dict[str, Any]) -> None:
    status["stats"] = None
    with pytest.raises(SystemExit, match="The forwarder of lb1 does not answer"):
        RunningNode("lb1").forwarded()


def test_kernel_pktgen_is_told_rate_size_and_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(kernel_pktgen, "PROC", tmp_path)
    monkeypatch.setattr(KernelPktgen, "_write", lambda self, file, command: told.append((file, command)))
    (tmp_path / "eth1@0").write_text("Current:\n     pkts-sofar: 4711  errors: 0\n")
    asked = argparse.Namespace(interface="eth1", vip="192.0.2.1", vip_port=80, mac="02:00:00:00:00:02")
    source = KernelPktgen(asked)
    source.start(1e6, 64)
    assert source.stop() == 4711
    assert told[0] == ("pgctrl", "reset")
    assert told[1] == ("kpktgend_0", "add_device eth1@0")
    commands = [command for file, command in told if file == "eth1@0"]
    assert {"pkt_size 60", "ratep 1000000", "dst 192.0.2.1", "udp_dst_min 80", "flows 65535"} <= set(commands)
    assert told[-1] == ("pgctrl", "stop")


def test_kernel_pktgen_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_pktgen, "PROC", tmp_path / "none")
    with pytest.raises(SystemExit, match="modprobe pktgen"):
        KernelPktgen(argparse.Namespace(interface="eth1", vip="192.0.2.1", vip_port=80, mac="02:00:00:00:00:02"))


def test_pktgen_dpdk_is_told_the_rate_as_a_share_of_the_line() -> None:
    scripts: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    script = b""
                    while part := connection.recv(4096):
                        script += part
                    scripts.append(script.decode())
                    connection.sendall(b"sent 4711\n" if b"opackets" in script else b"")

        thread = threading.Thread(target=serve)
        thread.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        source = PktgenDpdk(argparse.Namespace(pktgen=where, gigabits=10.0))
        source.start(7.44e6, 64)
        assert source.stop() == 4711
        thread.join()
    assert 'pktgen.set("0", "rate", 49.9968);' in scripts[0]
    assert 'pktgen.range.pkt_size("0", "start", 64);' in scripts[0]
    assert scripts[0].rstrip().endswith('pktgen.start("0");')
    assert scripts[1].startswith('pktgen.stop("0");')
