"""All that is on disk about what was spent: records, keys, receipts, checks."""
