"""The control messages that a forwarder is sent, under any change: each is answered or refused, nothing else.

`run` is the target, of the bytes that come over a connection; `mutate` changes messages by what they mean. Neither
needs a fuzzer: fuzz_control.py gives them to one, test_control_corpus.py does without.
"""

import asyncio
import copy
import json
import random
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from forwarder import settings, state_message
from forwarder.control import ControlServer, Handler, Request, RequestRefused, flow_of
from forwarder.hashing import slot_table
from forwarder.hashing.digest import state_digest
from forwarder.state_message import StateRefused

LARGEST_TABLE = 251  # a large one takes a second, and says nothing more about messages
WORDS = ("", "up", "web1", "192.0.2.1", "2001:db8::1", "fe80::1%eth0", "10.0.0.0/8", "\0", "\ud800", "x" * 300)
NUMBERS = (0, 1, -1, 7, 65535, 65536, 2**24, 2**31, 2**32, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"))
ODD: tuple[Any, ...] = (*WORDS, *NUMBERS, None, True, False, [], {}, [[]], [1, 2, 3], {"": {}})


class Finding(BaseException):
    """A handler raised what is no refusal. Not an Exception, so that the server does not make an answer of it."""


class Connection:
    """The asker's end: keeps what it is answered."""

    def __init__(self) -> None:
        self.answers = bytearray()

    def write(self, data: bytes) -> None:
        self.answers += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def _small(weights: Mapping[str, int], size: int, scheduler: str) -> slot_table.Table:
    return slot_table.build(weights, min(size, LARGEST_TABLE), scheduler)


async def _state(request: Request) -> dict[str, Any]:
    """What the forwarder does with a state before it publishes it."""
    raw = request.get("state") or {}
    message = state_message.parse(raw)
    for vip in message.vips:
        assert 0 <= vip.port <= 65535
        assert all(member.backend in message.backends for member in vip.members)
    return {"digest": state_digest(raw, _small)}


async def _lookup(request: Request) -> dict[str, Any]:
    protocol, source, _, destination, _ = flow_of(request)
    assert protocol in (6, 17)
    assert source.version == destination.version
    return {}


async def _settings(request: Request) -> dict[str, Any]:
    """Settings come by a file; here they are a message, so that one target has it all."""
    try:
        parsed = settings.parse(request.get("settings") or {})
    except settings.Refused as error:
        raise RequestRefused(str(error)) from error
    assert all(seconds >= 1 for seconds in parsed.connection_seconds)
    return {"fingerprint": parsed.fingerprint}


def _or_finding(handler: Handler) -> Handler:
    async def checked(request: Request) -> dict[str, Any]:
        try:
            return await handler(request)
        except (StateRefused, RequestRefused):
            raise
        except Exception as error:
            raise Finding(f"{request['op']}: {error!r}") from error

    return checked


HANDLERS = {
    "state": _or_finding(_state),
    "churn": _or_finding(_state),
    "lookup": _or_finding(_lookup),
    "settings": _or_finding(_settings),
}
LOOP = asyncio.new_event_loop()


async def _converse(data: bytes) -> bytes:
    reader, connection = asyncio.StreamReader(), Connection()
    reader.feed_data(data)
    reader.feed_eof()
    server = ControlServer(None, HANDLERS)  # type: ignore[arg-type]  # the socket is us
    await server._serve(reader, connection)  # type: ignore[arg-type]
    return bytes(connection.answers)


def run(data: bytes) -> list[dict[str, Any]]:
    """The answers to what came over a connection. Raises Finding."""
    answers = [json.loads(body) for body in frames(LOOP.run_until_complete(_converse(data)))]
    for answer in answers:
        assert answer["ok"] is True or isinstance(answer["error"], str)
    return answers


def frame(message: Any) -> bytes:
    """A message as it goes over the socket."""
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body


def frames(data: bytes) -> Iterator[bytes]:
    """The bodies of the complete frames."""
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from("!I", data, at)
        if at + 4 + length > len(data):
            return
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def mutate(data: bytes, seed: int) -> bytes | None:
    """The messages with one to four of their values changed; None when there is none that can be read."""
    dice = random.Random(seed)
    try:
        messages = [json.loads(body) for body in frames(data)]
    except (ValueError, RecursionError):
        return None
    if not messages:
        return None
    for _ in range(dice.randint(1, 4)):
        _change(messages, dice)
    return b"".join(frame(message) for message in messages)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _places(value[key])


def _change(messages: list[Any], dice: random.Random) -> None:
    places = list(_places(messages))
    if not places:
        return
    container, key = dice.choice(places)
    match dice.randrange(6):
        case 0:
            container[key] = copy.deepcopy(dice.choice(ODD))
        case 1:
            other, at = dice.choice(places)
            container[key] = copy.deepcopy(other[at])
        case 2:
            del container[key]
        case 3 if isinstance(container, list):
            container.insert(dice.randint(0, len(container)), copy.deepcopy(container[key]))
        case 3:
            container[dice.choice(WORDS)] = container.pop(key)
        case 4 if isinstance(container[key], int | float):
            container[key] += dice.choice((-1, 1, 2**16, -(2**31)))
        case _ if isinstance(container[key], str):
            at = dice.randint(0, len(container[key]))
            container[key] = container[key][:at] + dice.choice(WORDS) + container[key][at + dice.randint(0, 2) :]
