"""``python -m cslr`` is the program."""

from cslr.cli.main import main

if __name__ == "__main__":
    main()
