"""The laboratory: the whole system in network namespaces, and a scenario that plays its failures."""
