"""The paper's statements as programs, applied to a stream or to a finished run.

anchors.py     Definition 1 and Theorem 2 on a stream's own candidates
candidates.py  those candidates, made as clients make them
coverage.py    whether the public sentences cover the clients' texts, and their licence
quality.py     the distance of a replay from the rows it represents (Theorem 5)
kept.py        the replay and the trace of a finished run
retention.py   replay quality next to forgetting

NON-PRIVATE: raw lists or evaluation rows are read without noise. For studies.
"""
