"""`python -m forwarder.needs PACKET_POOL ENTRIES`: memory that a forwarder takes, as JSON; status 1: none can run.

For `maglev doctor`, which as part of the controller does not load DPDK itself.
"""

import json
import sys


def main() -> int:
    """Entry point; returns the exit status."""
    packet_pool, entries = (int(word) for word in sys.argv[1:])
    try:
        from forwarder._dataplane import table_bytes
        from forwarder.environment import needed_megabytes
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    megabytes = needed_megabytes(packet_pool, hugepages=True)
    print(json.dumps({"dpdk_megabytes": megabytes, "table_bytes": table_bytes(entries)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
