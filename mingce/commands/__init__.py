"""The commands beside training: evaluate, talk to, export, check, and look at the machine. One file a command.

Each has a `run(console, …)` that the command line calls; a person's mistake raises a MingceError.
"""
