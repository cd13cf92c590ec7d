"""Step 4: what a client adds to the sum, and what the noisy sum says (paper, Section 4.5).

``contribution`` runs on the device, ``estimate`` wherever the release is read.
"""
