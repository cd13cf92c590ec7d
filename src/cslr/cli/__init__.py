"""The program: one file per verb, all of them thin; ``show`` prints."""
