"""The control path: configuration, health, decisions, supervision. It never imports the DPDK extension."""
