"""The methods CSLR is compared with, one file each."""
