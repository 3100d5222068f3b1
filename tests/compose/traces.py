"""What a Docker engine leaves on a machine when it stops, and how it is taken away again.

Only for an engine that we started ourselves: what another one left is not ours.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("iptables", "ip6tables")
DOCKERS = re.compile(r"DOCKER|docker0|\bbr-[0-9a-f]{12}\b")  # in a rule or a chain of the engine's
SWITCHES = tuple(
    Path("/proc/sys", *name.split("."))
    for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv6.conf.default.forwarding")
)
DIRECTORIES = tuple(Path(name) for name in ("/etc/docker", "/run/docker", "/run/containerd"))
KEY = Path("/etc/docker/key.json")  # written by engines up to 20.10


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Rules:
    """The rules, chains and policies of one program, each with the name of its table."""

    rules: frozenset[tuple[str, str]]
    chains: frozenset[tuple[str, str]]
    policies: frozenset[tuple[str, str, str]]  # those that do not accept

    @classmethod
    def read(cls, program: str) -> Rules:
        """As they are now."""
        return cls.parse(_output(f"{program}-save"))

    @classmethod
    def parse(cls, text: str) -> Rules:
        """From the text of `iptables-save`."""
        table = ""
        rules, chains, policies = set(), set(), set()
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith("-A "):
                rules.add((table, line))
            elif line.startswith(":"):
                chain, policy, *_ = line[1:].split()
                if policy == "-":
                    chains.add((table, chain))
                elif policy != "ACCEPT":
                    policies.add((table, chain, policy))
        return cls(frozenset(rules), frozenset(chains), frozenset(policies))


def _bridges() -> frozenset[str]:
    names = (path.name for path in Path("/sys/class/net").iterdir() if (path / "bridge").is_dir())
    return frozenset(name for name in names if DOCKERS.search(name))


@dataclass(frozen=True)
class Traces:
    """The state of everything that an engine changes."""

    rules: dict[str, Rules]
    switches: dict[Path, str]
    bridges: frozenset[str]
    paths: frozenset[Path]

    @classmethod
    def read(cls) -> Traces:
        """As it is now."""
        return cls(
            {program: Rules.read(program) for program in PROGRAMS if shutil.which(program)},
            {path: path.read_text().strip() for path in SWITCHES if path.exists()},
            _bridges(),
            frozenset(path for path in (*DIRECTORIES, KEY) if path.exists()),
        )

    def restore(self) -> None:
        """Take away what has come since this was read, as far as it bears the engine's names."""
        for bridge in _bridges() - self.bridges:
            _output("ip", "link", "delete", bridge)
        for program, before in self.rules.items():
            now = Rules.read(program)
            for table, rule in now.rules - before.rules:
                if DOCKERS.search(rule):
                    _output(program, "-t", table, "-D", *shlex.split(rule)[1:])
            chains = [(table, chain) for table, chain in now.chains - before.chains if DOCKERS.search(chain)]
            for word in ("-F", "-X"):  # they refer to each other
                for table, chain in chains:
                    _output(program, "-t", table, word, chain)
            for table, chain, _ in now.policies - before.policies:
                if (table, chain) == ("filter", "FORWARD"):
                    _output(program, "-t", table, "-P", chain, "ACCEPT")
        for path, value in self.switches.items():
            path.write_text(value)
        for path in DIRECTORIES:
            if path not in self.paths:
                shutil.rmtree(path, ignore_errors=True)
        if KEY not in self.paths:
            KEY.unlink(missing_ok=True)
        for path in Path("/sys/fs/cgroup").glob("*/docker"):
            with suppress(OSError):  # not empty: another engine's
                path.rmdir()

    def differences(self) -> list[str]:
        """What is not as it was when this was read."""
        now = Traces.read()
        found = [f"bridge {name}" for name in now.bridges ^ self.bridges]
        found += [str(path) for path in now.paths ^ self.paths]
        found += [
            f"{path} is {now.switches[path]}" for path, was in self.switches.items() if now.switches[path] != was
        ]
        for program, before in self.rules.items():
            rules = now.rules[program]
            changed = (rules.rules ^ before.rules) | (rules.chains ^ before.chains)
            found += [f"{program} {table}: {what}" for table, what in changed if DOCKERS.search(what)]
            found += [f"{program} {' '.join(policy)}" for policy in rules.policies ^ before.policies]
        return found
