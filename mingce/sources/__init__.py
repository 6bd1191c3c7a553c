"""Runs and dumps, read alike: what the page and the tutor know of them comes from here, as rollouts and columns."""
