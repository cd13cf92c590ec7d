"""From bounded contributions to their sum, and to nothing else, across machines.

In one process the sum is ``values.plain_sum``. Across machines it is double masking after Bonawitz
et al. (2017): ``SumClient`` and ``SumServer`` exchange ``messages``, and the server learns the
noised sum alone. Neither of them does input or output, so tests, timing and a network run the same
code. docs/secure-sum.md describes the protocol.

    terms      what all parties pinned: identities, threshold, colluders; and one release
    messages   ten frozen messages, five each way     codec    their bytes, strictly checked
    shamir     secret sharing                         masks    key agreement, masks, sealed shares
    client     refuses what is not in the protocol    state    what it keeps across a restart
    server     collects, aborts cleanly, adds up      recover  removes the masks
"""

from __future__ import annotations

from cslr.privacy.secure_sum.client import SumClient
from cslr.privacy.secure_sum.server import SumServer
from cslr.privacy.secure_sum.terms import Release, SumTerms

__all__ = ["Release", "SumClient", "SumServer", "SumTerms"]
