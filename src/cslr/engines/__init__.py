"""Where clients live: in this process (``simulation``), later across machines."""
