"""Explanations in two languages and three levels, with a run's own numbers put in."""
