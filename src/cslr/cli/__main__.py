"""``python -m cslr.cli`` runs the program."""

from cslr.cli.main import main

main()
