"""The compose file as a project of its own: built, up, asked, and gone with all that it made."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar

from engine import compose_command, run, say

NAME = "maglevcomposetest"
BASE = "maglev-compose-test-base"
VIP = "192.0.2.1"
LABEL = "com.docker.compose.project"
T = TypeVar("T")


def wait_for(what: str, seconds: float, ask: Callable[[], T | None]) -> T:
    """The first true answer within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)
    return answer


class Load:
    """`lab.load` in the client's container: `long` connections that stay, until `finish`; or so many requests."""

    def __init__(self, client: str, *, requests: int | None = None, long: int = 0, rate: float | None = None) -> None:
        words = ["docker", "exec", "-i", "-u", "nobody", client, "python3", "-m", "lab.load", VIP, "80"]
        words += ["--connections", str(long)]
        words += ["--requests", str(requests)] if requests is not None else []
        words += ["--rate", str(rate)] if rate is not None else []
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()  # the long connections are open

    def finish(self) -> dict[str, Any]:
        """Stop, with a last exchange on every long connection, and tell what the client saw."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.completed()

    def completed(self) -> dict[str, Any]:
        """What the client saw once all requests are made."""
        results = self._line()
        self.close()
        return results

    def close(self) -> None:
        """Whatever happened, nothing is left running here."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client's load ended early"
        return dict(json.loads(line))


class Project:
    """What `docker compose up` makes of the file."""

    def __init__(self) -> None:
        self._compose = [*compose_command(), "-p", NAME]
        self._made_base = "MAGLEV_BASE" not in os.environ
        self._environment = {"MAGLEV_BASE": os.environ.get("MAGLEV_BASE", BASE), "PROMETHEUS_PORT": "0"}

    def up(self) -> None:
        """Build all images and start all containers."""
        os.environ.update(self._environment)
        began = time.monotonic()
        self.remove()  # of a run that was killed
        if self._made_base:
            say("making the base image by debootstrap")
            run("docker/base-image.sh", BASE)
        say(f"building the images with {' '.join(self._compose[:-2])}")
        run(*self._compose, "build")
        say(f"built in {time.monotonic() - began:.0f} s; starting")
        run(*self._compose, "up", "-d")

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        words = ["docker", "ps", "-aq", "--filter", f"label={LABEL}={NAME}"]
        return run(*words, "--filter", f"label=com.docker.compose.service={service}").strip()

    def inside(self, service: str, *words: str) -> str:
        """One command in a service's container."""
        return run("docker", "exec", self.container(service), *words)

    def logs(self, service: str) -> str:
        """What a service has printed."""
        return run(*self._compose, "logs", "--no-color", service)

    def load(self, **wishes: Any) -> Load:
        """Start requests from the client's container, see `Load`."""
        return Load(self.container("client"), **wishes)

    def next_hops(self) -> set[str]:
        """The nodes that the router's kernel spreads the vip over."""
        routes = json.loads(self.inside("router", "ip", "-j", "route", "show", VIP) or "[]")
        return {hop["gateway"] for route in routes for hop in route.get("nexthops", [route]) if "gateway" in hop}

    def ask_prometheus(self, query: str) -> dict[str, float]:
        """An instant query's value by node, through the port that is published on this machine."""
        (published,) = run("docker", "port", self.container("monitor"), "9090/tcp").split()[:1]
        url = f"http://{published}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as response:
            answer = json.load(response)
        return {series["metric"].get("node", ""): float(series["value"][1]) for series in answer["data"]["result"]}

    def remove(self) -> None:
        """Take away all containers, networks, volumes and images."""
        run(*self._compose, "down", "--volumes", "--rmi", "local", "--remove-orphans", "--timeout", "5")
        # The stages that no image is left of.
        run("docker", "image", "prune", "--force", "--filter", "label=maglev.stage")
        if self._made_base and run("docker", "images", "-q", BASE):
            run("docker", "rmi", BASE)

    def remains(self) -> list[str]:
        """What of the project there still is."""
        mine = ["--filter", f"label={LABEL}={NAME}"]
        found = [f"container {name}" for name in run("docker", "ps", "-aq", *mine).split()]
        found += [f"network {name}" for name in run("docker", "network", "ls", "-q", *mine).split()]
        found += [f"volume {name}" for name in run("docker", "volume", "ls", "-q", *mine).split()]
        images = run("docker", "images", "--format", "{{.Repository}}").split()
        found += [f"image {name}" for name in images if name.startswith(NAME) or (name == BASE and self._made_base)]
        return found
