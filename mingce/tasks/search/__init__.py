"""The embedded search agent: a corpus of made-up facts, an index over it, and questions that it answers."""
