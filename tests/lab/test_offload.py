"""What a kernel leaves to its NIC: unfinished checksums are finished, merged packets are refused at start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from needs import WIRE
from packets.world import BACKENDS, VIP, state, vip
from scapy.layers.inet import IP, TCP, UDP
from wire import (
    NODE,
    NODE_ADDRESS,
    NODE_PORT,
    PEER,
    PEER_ADDRESS,
    PEER_PORT,
    Forwarder,
    Wire,
    inside,
    ip,
    settings,
    wait_until,
)

pytestmark = WIRE

DEVICES = [NODE_PORT, f"net_pcap0,rx_iface_in={NODE_PORT},tx_iface={NODE_PORT}"]
SERVICE = state({"web1": BACKENDS["web1"]}, vip("www", VIP, ["web1"]), vip("dns", VIP, ["web1"], "udp", 80))
CLIENT = f"""
import socket
udp = socket.socket(type=socket.SOCK_DGRAM)
for size in (1, 2, 501, 1400):
    udp.sendto(b"q" * size, ("{VIP}", 80))
tcp = socket.socket()
tcp.settimeout(0.5)
try:
    tcp.connect(("{VIP}", 80))
except TimeoutError:
    pass
"""


def offload(namespace: str, port: str, *words: str) -> None:
    subprocess.run(inside(namespace, "ethtool", "-K", port, *words), check=True, capture_output=True)


def port(device: str, wire: Wire) -> dict[str, Any]:
    """A port of the settings; a virtual device has nobody to tell it of neighbors."""
    driver, mac = ("af_packet", None) if device == NODE_PORT else ("vdev", wire.peer_mac)
    gateway = {"ipv4": PEER_ADDRESS, "ipv6": None, "mac": mac}
    return {"device": device, "driver": driver, "gateway": gateway, "mtu": 1600}


def right_checksum(inner: IP) -> bool:
    """Whether scapy would write the same one."""
    layer = TCP if TCP in inner else UDP
    fresh = IP(bytes(inner))
    del fresh[layer].chksum
    return bool(IP(bytes(fresh))[layer].chksum == inner[layer].chksum)


@pytest.mark.parametrize("device", DEVICES)
def test_a_client_that_leaves_checksums_to_its_nic_is_served(wire: Wire, forwarder: Forwarder, device: str) -> None:
    offload(PEER, PEER_PORT, "tx", "on")
    ip("-n", PEER, "route", "add", VIP, "via", NODE_ADDRESS)
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start(ports=[port(device, wire)])
    assert forwarder.ask("state", state=SERVICE)["ok"]
    wait_until(lambda: all(hop["mac"] for hop in forwarder.ask("stats")["next_hops"]), "next hops are known")
    subprocess.run(inside(PEER, sys.executable, "-c", CLIENT), check=True, timeout=20)
    inner = [IP(frame[38:]) for frame in wire.tunneled()]
    assert sorted(len(packet) for packet in inner if UDP in packet) == [29, 30, 529, 1428]
    assert any(TCP in packet for packet in inner)
    assert all(right_checksum(packet) for packet in inner)


@pytest.mark.parametrize("device", DEVICES)
def test_a_port_whose_kernel_merges_packets_is_refused_with_the_command(
    wire: Wire, forwarder: Forwarder, device: str
) -> None:
    ports = [port(device, wire)]
    offload(NODE, NODE_PORT, "gro", "on")
    code, said = forwarder.refused(settings(ports=ports))
    assert code == 2
    assert said.strip().endswith(f"run `ethtool -K {NODE_PORT} gro off`.")
    offload(NODE, NODE_PORT, "gro", "off")
    forwarder.start(ports=ports)
