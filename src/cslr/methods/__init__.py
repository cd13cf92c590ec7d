"""The contract of a method, the registry, CSLR itself and the baselines."""
