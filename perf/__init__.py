"""Benchmarks. Compiled parts are built by `make bench`, not by `make build`."""
