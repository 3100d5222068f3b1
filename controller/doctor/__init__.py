"""`maglev doctor`: whether a machine is ready for a node, and the command that mends what is not.

Each subject is a file with `examine(machine, config)` and a row of the table in `subjects`.
"""
