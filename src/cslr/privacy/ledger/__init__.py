"""The privacy ledger on disk: records, noise keys, receipts and verification."""
