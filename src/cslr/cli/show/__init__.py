"""What the program prints on a terminal."""
