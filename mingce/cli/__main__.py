"""`python -m mingce.cli`."""

from mingce.cli.app import main

main()
