from typing import TypedDict

class BenchRound(TypedDict):
    worker_ns: float
    floor_ns: float
    packets: int
    met: float
    forwarded: float

class NodeRound(TypedDict):
    seconds: float
    interrupted: int
    packets: int
    forwarded: int
    dropped: int
    known: int
    steering_ns: float
    workers_ns: float
    muxing_ns: float
    turn_ns: float

class SourceRound(TypedDict):
    seconds: float
    sent: int
    refused: int
    returned: int
    median_ns: float
    p99_ns: float
    p999_ns: float
    longest_ns: float

def initialize(arguments: list[str]) -> None: ...

class Bench:
    def __init__(
        self,
        *,
        traffic: str,
        flows: int,
        vips: int = 100,
        backends: int = 100,
        table_size: int = 65537,
        version: int = 4,
        size: int = 74,
        new_permille: int = 0,
        workers: int = 1,
        cold: bool = False,
        nic: bool = False,
    ) -> None: ...
    def run(self, bursts: int) -> BenchRound: ...
    def close(self) -> None: ...

class Node:
    def __init__(
        self,
        *,
        port: str,
        traffic: str,
        flows: int,
        vips: int = 100,
        backends: int = 100,
        table_size: int = 65537,
        version: int = 4,
        size: int = 96,
        new_permille: int = 0,
        workers: int = 1,
        packets: int = 16384,
        ring_size: int = 2048,
        idle: str = "spin",
        layout: str = "software",
    ) -> None: ...
    def open_flows(self) -> None: ...
    def start(self, mode: str, lcores: list[int], *, lay: bool = True) -> None: ...
    def stop(self) -> NodeRound: ...
    def step(self, turns: int) -> NodeRound: ...
    def close(self) -> None: ...

class Source:
    def __init__(self, node: Node, lcore: int, devargs: str | None = None) -> None: ...
    def open_flows(self, packets_per_second: float, *, first: bool) -> None: ...
    def start(self, packets_per_second: float) -> None: ...
    def stop(self) -> SourceRound: ...
    def close(self) -> None: ...
