"""`maglev hashing`: the hashing laboratory. Its code is loaded when it is asked for, since it takes NumPy along."""

from __future__ import annotations

from pathlib import Path

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def hashing() -> None:
    """The hashing laboratory: schemes of the literature side by side. docs/hashing.md tells what to make of it."""


@hashing.command()
@click.argument("schemes", nargs=-1, metavar="[SCHEME[:OPTION=VALUE,...]]...")
@click.option(
    "--nodes", default="100", show_default=True, metavar="N|NAME,...", help="How many nodes, or their names."
)
@click.option("--weights", default="1", show_default=True, metavar="W,...", help="Of the nodes, in turn.")
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1, 10**8), help="MD5s of 0, 1, ...")
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="add:K|remove:K|resize:N",
    help="What happens to the nodes; may be given several times. Default: add:1, remove:1, and remove:5 of many.",
)
@click.option("--seed", default=0, show_default=True, help="Which nodes are removed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--pictures", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Also draw, as PNG and SVG."
)
def compare(
    schemes: tuple[str, ...],
    nodes: str,
    weights: str,
    keys: int,
    changes: tuple[str, ...],
    seed: int,
    as_json: bool,
    pictures: Path | None,
) -> None:
    """How even each SCHEME is, what changes move, and what it costs.

    Without a SCHEME all are compared, e.g. `maglev hashing compare maglev:size=65537 ring:points=1000 --nodes 20`.
    """
    from hashlab import cli

    try:
        cli.run(schemes, nodes, weights, keys, changes, seed, as_json, pictures)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
