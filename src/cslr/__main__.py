"""``python -m cslr`` runs the command line."""

from cslr.cli.start import main

if __name__ == "__main__":
    main()
