"""Step 4: a client's contribution, and the estimate from the noisy sum (paper, Section 4.5).

``contribution`` runs on the device, ``estimate`` wherever the release is read.
"""
