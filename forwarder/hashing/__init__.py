"""Hashes and tables, without DPDK: what forwarder and controller compute alike on every node."""
