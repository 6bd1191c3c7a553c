"""What a run writes down and what is read back: its directory, ledger, checkpoints, and a batch of any trainer."""
