"""Models: loading them, sampling from them, the log-probs and entropies of what they said, and the value model."""
