"""The client of docker-compose.yml: fifty requests a second, each on a new connection, and who answered them."""

from __future__ import annotations

import argparse
import asyncio
import sys

from lab.load import Client, Results

RATE = 50.0  # requests a second
ROUND = 250  # requests per line that is printed
CONCURRENCY = 16


def line(results: Results) -> str:
    """What came of one round, for a person."""
    backends = ", ".join(f"{name} {count}" for name, count in sorted(results.per_backend.items()))
    retried = f", {len(results.retries)} attempts in vain" if results.retries else ""
    return f"{results.answered} of {results.requests} requests answered: {backends or 'by nobody'}{retried}"


async def main(address: str, port: int) -> None:
    """Round after round, until killed."""
    options = argparse.Namespace(address=address, port=port, source=None, rate=RATE, period=1.0, requests=ROUND)
    while True:
        client = Client(options)
        await client.requests(CONCURRENCY)
        print(line(client.results), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
