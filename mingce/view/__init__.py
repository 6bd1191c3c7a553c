"""The local web page over runs and dumps: read-only, one rollout at a time, without torch."""
