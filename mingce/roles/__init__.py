"""What each of the four does: the actor speaks, the critic values, the reference compares, the reward pays."""
