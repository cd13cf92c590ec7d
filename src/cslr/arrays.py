"""The array types that every signature uses; shapes are noted beside them in the paper's letters.

b clients in a batch · n examples · d encoder dimensions · r coordinates · L list entries ·
K modes · m anchors · c labels · D coordinates of one client's contribution
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray"]

FloatArray: TypeAlias = NDArray[np.floating]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
