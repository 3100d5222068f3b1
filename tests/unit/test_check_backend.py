"""packaging/check-backend: a backend that is ready, and everything that can be wrong with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging/check-backend"


def loaded() -> ModuleType:
    spec = spec_from_loader("check_backend", SourceFileLoader("check_backend", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["check_backend"] = module  # a NamedTuple looks its annotations up there
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


check_backend = loaded()


def gre(name: str, kind: str, flags: tuple[str, ...] = ("UP",), **data: Any) -> dict[str, Any]:
    """As `ip -j -d link show` has it."""
    info = {"remote": "any", "local": "any"} | data
    return {"ifname": name, "flags": list(flags), "linkinfo": {"info_kind": kind, "info_data": info}}


def entry(address: str, prefix_length: int) -> dict[str, Any]:
    """As `ip -j address show` has it."""
    return {"family": "inet6" if ":" in address else "inet", "local": address, "prefixlen": prefix_length}


class FakeHost:
    """A backend of both families that is ready."""

    def __init__(self) -> None:
        self.tunnels = [
            gre("gre0", "gre", flags=()),  # the kernel's own, which is there as soon as the module is
            gre("maglev4", "gre", local="10.0.3.2"),
            gre("maglev6", "ip6gre", local="fd00:3::2"),
        ]
        self.mtu = 1600
        self.addresses = {"lo": {"127.0.0.1": 8, "192.0.2.1": 32, "2001:db8::1": 128}, "eth0": {"10.0.3.2": 24}}
        self.routes = {4: {"dev": "eth0", "prefsrc": "10.0.3.2"}, 6: {"dev": "eth0", "prefsrc": "fd00:3::2"}}
        self.default_routes = {4, 6}
        self.sockets = {"tcp": ["*:80"], "udp": ["192.0.2.1:53", "[2001:db8::1]:53", "127.0.0.53%lo:53"]}
        self.modules = {"ip_gre", "ip6_gre"}
        self.settings = {
            "net/ipv4/ip_forward": 0,
            "net/ipv6/conf/all/forwarding": 0,
            "net/ipv4/conf/all/rp_filter": 0,
            "net/ipv4/conf/maglev4/rp_filter": 0,
            "net/ipv4/conf/maglev6/rp_filter": 0,
            "net/ipv4/conf/all/arp_ignore": 1,
            "net/ipv4/conf/all/arp_announce": 0,
            "net/ipv4/conf/eth0/arp_announce": 2,
            "net/ipv6/conf/maglev4/disable_ipv6": 0,
            "net/ipv6/conf/maglev6/disable_ipv6": 0,
        }

    def ip(self, *words: str) -> list[dict[str, Any]]:
        match words:
            case ("link", "show", "type", kind):
                return [link if link["linkinfo"]["info_kind"] == kind else {} for link in self.tunnels]
            case ("link", "show"):
                return [*self.tunnels, {"ifname": "eth0", "mtu": self.mtu, "flags": ["UP"]}]
            case ("address", "show"):
                return [
                    {"ifname": name, "addr_info": [entry(a, n) for a, n in addresses.items()]}
                    for name, addresses in self.addresses.items()
                ]
            case ("route", "get", to):
                route = self.routes.get(6 if ":" in to else 4)
                return [route] if route else []
            case (family, "route", "show", "default"):
                return [{"dst": "default"}] if int(family[1:]) in self.default_routes else []
        raise AssertionError(words)

    def listening(self, protocol: str) -> list[str]:
        return self.sockets[protocol]

    def setting(self, name: str) -> int | None:
        return self.settings.get(name)

    def has_module(self, name: str) -> bool:
        return name in self.modules


ARGUMENTS = (
    *("--vip", "192.0.2.1", "--vip", "2001:db8::1", "--port", "80", "--port", "udp/53"),
    *("--tunnel-source", "10.0.2.2", "--tunnel-source", "fd00:2::2"),
)


def answer(host: FakeHost, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, str]]]:
    """The exit status, and what is not ok."""
    status = check_backend.main([*ARGUMENTS, *more, "--json"], host)
    told = json.loads(capsys.readouterr().out)
    assert told["errors"] == sum(finding["level"] == "error" for finding in told["findings"])
    for finding in told["findings"]:
        assert (finding["level"] == "ok") == (not finding["why"]) == (not finding["mend"]), finding
    return status, [finding for finding in told["findings"] if finding["level"] != "ok"]


def test_a_backend_that_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(FakeHost(), capsys) == (0, [])


def test_what_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.settings["net/ipv4/conf/all/rp_filter"] = 1
    host.tunnels.pop()
    assert check_backend.main(["--vip", "192.0.2.1", "--tunnel-source", "10.0.2.2", "--port", "80"], host) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       maglev4 is up and takes GRE from any to 10.0.3.2",
        "ok       eth0 has MTU 1600: a packet of 1500 bytes and 24 of GRE fit",
        "error    rp_filter of maglev4 is strict (maglev4 0, all 1: the higher one counts)",
        "           why: the route back to a client is not by the tunnel, so the kernel drops its packets "
        "without a word",
        "          mend: sysctl -w net.ipv4.conf.maglev4.rp_filter=0 net.ipv4.conf.all.rp_filter=0",
        "ok       192.0.2.1 is on lo",
        "ok       answers from 192.0.2.1 leave by the default route",
        "ok       it does not forward IPv4",
        "ok       arp_ignore of eth0 is 1",
        "ok       arp_announce of eth0 is 2",
        "ok       somebody listens on tcp port 80 of 192.0.2.1",
        "1 error, 0 warnings",
    ]


Spoil = Callable[[FakeHost], object]


def tunnels(*links: dict[str, Any]) -> Spoil:
    return lambda host: setattr(host, "tunnels", [*links, gre("maglev6", "ip6gre")])


def setting(name: str, value: int) -> Spoil:
    return lambda host: host.settings.update({name: value})


def sockets(protocol: str, *bound: str) -> Spoil:
    return lambda host: host.sockets.update({protocol: list(bound)})


@pytest.mark.parametrize(
    ("spoil", "level", "says", "mend"),
    [
        (
            tunnels(),
            "error",
            "no gre interface takes packets from 10.0.2.2",
            "ip link add maglev4 type gre local 10.0.3.2 remote any && ip link set maglev4 up",
        ),
        (
            lambda host: (tunnels()(host), host.modules.discard("ip_gre")),
            "error",
            "no gre interface",
            "modprobe ip_gre && ip link add maglev4",
        ),
        (
            tunnels(gre("gre1", "gre", remote="10.0.6.2", local="10.0.3.2")),
            "error",
            "(gre1 takes GRE from 10.0.6.2 to 10.0.3.2)",
            "remote any",
        ),
        (
            tunnels(gre("gre1", "gre", ikey="0.0.0.7")),
            "error",
            "(gre1 takes GRE from any to any with key 0.0.0.7)",
            "type gre",
        ),
        (tunnels(gre("gre1", "gre", external=True)), "error", "no gre interface", "type gre"),
        (tunnels(gre("maglev4", "gre", flags=())), "error", "maglev4 is down", "ip link set maglev4 up"),
        (
            tunnels(gre("maglev4", "gre", local="10.9.9.9")),
            "warning",
            "maglev4 takes packets to 10.9.9.9, and this machine's address towards 10.0.2.2 is 10.0.3.2",
            "write address: 10.9.9.9",
        ),
        (lambda host: host.tunnels.pop(), "error", "no ip6gre interface", "type ip6gre local fd00:3::2 remote any"),
        (
            lambda host: setattr(host, "mtu", 1543),
            "warning",
            "eth0 has MTU 1543, and a packet of 1500 bytes from fd00:2::2 has 1544",
            "ip link set eth0 mtu 1544, and likewise all the way to the nodes; or let clients send less: "
            "ip route change default ... advmss 1439",
        ),
        (lambda host: host.routes.pop(6), "warning", "there is no route to fd00:2::2", "ip route get fd00:2::2"),
        (
            setting("net/ipv4/conf/maglev4/rp_filter", 1),
            "error",
            "rp_filter of maglev4 is strict (maglev4 1, all 0",
            "sysctl -w net.ipv4.conf.maglev4.rp_filter=0",
        ),
        (
            setting("net/ipv4/conf/maglev4/rp_filter", 2),
            "error",
            "rp_filter of maglev4 is loose, which is not enough without an address (maglev4 2, all 0",
            "net.ipv4.conf.all.rp_filter=0",
        ),
        (setting("net/ipv6/conf/maglev6/disable_ipv6", 1), "error", "maglev6 has no IPv6", "disable_ipv6=0"),
        (
            lambda host: host.addresses["lo"].pop("192.0.2.1"),
            "error",
            "no interface has 192.0.2.1",
            "ip address add 192.0.2.1/32 dev lo",
        ),
        (
            lambda host: host.addresses["lo"].pop("2001:db8::1"),
            "error",
            "no interface has 2001:db8::1",
            "ip address add 2001:db8::1/128 dev lo nodad preferred_lft 0",
        ),
        (
            lambda host: host.addresses["lo"].update({"192.0.2.1": 24}),
            "error",
            "192.0.2.1 has prefix length 24 on lo",
            "ip address add 192.0.2.1/32 dev lo; ip address del 192.0.2.1/24 dev lo",
        ),
        (
            lambda host: host.addresses["eth0"].update({"192.0.2.1": host.addresses["lo"].pop("192.0.2.1")}),
            "warning",
            "192.0.2.1 is on eth0",
            "ip address del 192.0.2.1/32 dev eth0; ip address add 192.0.2.1/32 dev lo",
        ),
        (
            lambda host: host.default_routes.discard(6),
            "error",
            "there is no default route of IPv6",
            "ip -6 route add default via ROUTER",
        ),
        (setting("net/ipv4/ip_forward", 1), "warning", "it forwards IPv4", "net.ipv4.ip_forward=0"),
        (setting("net/ipv4/conf/all/arp_ignore", 0), "warning", "arp_ignore of eth0 is 0", "all.arp_ignore=1"),
        (setting("net/ipv4/conf/eth0/arp_announce", 1), "warning", "arp_announce of eth0 is 1", "arp_announce=2"),
        (
            sockets("tcp", "0.0.0.0:80"),
            "error",
            "nobody listens on tcp port 80 of 2001:db8::1 (there is one on 0.0.0.0)",
            "start the service on [2001:db8::1]:80",
        ),
        (
            sockets("udp", "192.0.2.1:53", "*:53"),
            "warning",
            "udp port 53 is bound to all addresses, not to 2001:db8::1",
            "bind it to [2001:db8::1]:53 too",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_mend(
    spoil: Spoil, level: str, says: str, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host = FakeHost()
    spoil(host)
    status, findings = answer(host, capsys)
    (finding,) = findings
    assert (finding["level"], status) == (level, int(level == "error"))
    assert says in finding["says"]
    assert mend in finding["mend"]


def test_loose_filtering_will_do_where_the_tunnel_has_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.settings["net/ipv4/conf/maglev4/rp_filter"] = 2
    host.addresses["maglev4"] = {"169.254.47.1": 32}
    assert answer(host, capsys) == (0, [])


def test_a_service_may_be_bound_to_each_family_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.sockets["tcp"] = ["0.0.0.0:80", "[::]:80"]
    assert answer(host, capsys) == (0, [])


def test_a_service_of_the_vip_alone_fails_health_checks(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.sockets["tcp"] = ["192.0.2.1:80"]
    assert check_backend.main(["--vip", "192.0.2.1", "--port", "80", "--tunnel-source", "10.0.2.2"], host) == 0
    assert "warning  tcp port 80 is bound to 192.0.2.1 only" in capsys.readouterr().out


def test_what_several_nodes_meet_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost()
    host.tunnels = [gre("maglev4", "gre", flags=()), gre("maglev6", "ip6gre")]
    _, findings = answer(host, capsys, "--tunnel-source", "10.0.6.2")
    assert [finding["says"] for finding in findings] == ["maglev4 is down"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--vip", "192.0.2.1"),
        ("--vip", "192.0.2.300", "--tunnel-source", "10.0.2.2"),
        ("--vip", "192.0.2.1", "--tunnel-source", "10.0.2.2", "--port", "sctp/80"),
        ("--vip", "192.0.2.1", "--tunnel-source", "10.0.2.2", "--port", "65536"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check_backend.main(list(words), FakeHost())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


NAMESPACE = f"maglev-backend-{os.getpid()}"


@pytest.fixture
def namespace() -> Iterator[Callable[..., None]]:
    """A backend with a TUN device where a program would put what it took out of GRE."""
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces")

    def inside(*words: str) -> None:
        subprocess.run(["ip", "netns", "exec", NAMESPACE, *words], check=True)

    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=True)


def test_a_real_machine(namespace: Callable[..., None]) -> None:
    command = ["ip", "netns", "exec", NAMESPACE, str(SCRIPT), "--vip", "192.0.2.1", "--tunnel-source", "10.0.2.2"]
    for words in (
        "ip link set lo up",
        "ip link add eth0 mtu 1600 type veth peer name peer",
        "ip link set peer up",
        "ip link set eth0 up",
        "ip address add 10.0.3.2/24 dev eth0",
        "ip route add default via 10.0.3.1",
        "ip tuntap add decap0 mode tun",
        "sysctl -qw net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
    ):
        namespace(*words.split())
    bare = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    wrong = [finding["says"] for finding in json.loads(bare.stdout)["findings"] if finding["level"] != "ok"]
    assert wrong == ["no gre interface takes packets from 10.0.2.2", "no interface has 192.0.2.1"]

    command += ["--tunnel", "decap0"]
    for _ in range(5):  # what it says to do is done, until there is nothing to do
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        mends = [finding["mend"] for finding in json.loads(done.stdout)["findings"] if finding["level"] != "ok"]
        if not mends:
            break
        namespace(*mends[0].split())
    assert done.returncode == 0
    assert json.loads(done.stdout)["errors"] == 0
