"""Asks the API of a running node; synchronous, for the command line."""

from __future__ import annotations

import http.client
import json
import socket
from http import HTTPStatus
from pathlib import Path
from typing import Any

from controller.config_errors import Problem

TIMEOUT = 60.0
LOOK_TIMEOUT = 5.0
"""For what only looks: a controller that hangs shall not make the one who asks why hang too."""
"""A reload or a flush may keep a busy node thinking."""


class ApiError(Exception):
    """The node said no or cannot be asked; `wrong` when what was asked for is at fault, not the node."""

    def __init__(self, message: str, *, wrong: bool = False) -> None:
        super().__init__(message)
        self.wrong = wrong


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, resource: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to the API behind that socket; raises ApiError."""
    connection = _UnixConnection(path, LOOK_TIMEOUT if method == "GET" else TIMEOUT)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, resource, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ApiError(f"the node does not answer on {path}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        problems = (Problem(**problem) for problem in answer.get("problems", ()))
        message = answer.get("error") or "\n".join(map(str, problems))
        wrong = 400 <= response.status < 500 and response.status != HTTPStatus.PRECONDITION_FAILED
        raise ApiError(message, wrong=wrong)
    return dict(answer)
