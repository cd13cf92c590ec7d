"""``python -m cslr`` is the program."""

from cslr.cli.start import main

if __name__ == "__main__":
    main()
