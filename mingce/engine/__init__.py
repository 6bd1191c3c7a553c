"""Where the roles run."""
