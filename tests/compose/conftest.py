"""docker-compose.yml, up once for all tests of this folder, and then gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine import engine, run, say
from project import NAME, Project


@pytest.fixture(scope="session")
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    with engine():
        made = Project()
        try:
            made.up()
            yield made
        finally:
            if request.session.testsfailed:
                _tell(made)
            say("removing everything")
            made.remove()
        left = made.remains()
        assert not left, f"left behind: {', '.join(left)}"
        say("containers, networks, volumes and images are removed")


def _tell(project: Project) -> None:
    """What the containers said last, for whoever looks for the reason of a failure."""
    print(run("docker", "ps", "-a", "--filter", f"label=com.docker.compose.project={NAME}"))
    for service in ("router", "lb1", "lb2", "b1", "client", "monitor"):
        print(f"--- {service}", *project.logs(service).splitlines()[-30:], sep="\n")
