"""What everything stands on: errors, languages, numbers as text, the terminal, files, processes and the processor."""
