"""Everything that bounds, sums, noises or counts. Loads without torch."""
