"""Faults on purpose, and the checks that must notice them.

``table`` names every fault with the detector that catches it; ``faults_*`` break the real code for
as long as a ``with`` block lasts; ``detect_*`` run that code and look for what an honest build
never shows. A detector knows nothing of the faults: it recomputes what was promised by other means.
"""
