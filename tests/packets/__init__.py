"""Tables of packets: what goes in, what becomes of it, what comes out. The real stages, in memory."""

import pytest

pytest.register_assert_rewrite("packets.road", "packets.table")
