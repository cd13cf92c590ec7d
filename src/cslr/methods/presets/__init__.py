"""CSLR with other settings: the paper's own protocol, and its ablations."""
