"""``python -m cslr.cli`` is the program."""

from cslr.cli.main import main

main()
