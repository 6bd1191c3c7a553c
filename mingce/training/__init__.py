"""The loop and what stands around it: start and resume, validation, self-check, saving, loggers."""
