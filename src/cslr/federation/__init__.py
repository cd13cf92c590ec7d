"""Where clients are: in this process, or on other machines."""
