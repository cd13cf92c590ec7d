"""The paper's statements as programs: what they ask for, and what a stream or a run makes of it.

anchors.py     Definition 1 and Theorem 2 on a stream's own candidates
candidates.py  those candidates, made as clients make them
coverage.py    whether the public sentences lie where clients' texts do, and their licence
quality.py     how far a replay lies from the rows it stands for (Theorem 5)
kept.py        the replay and the trace of a finished run
retention.py   both together: quality beside what was forgotten

NON-PRIVATE: raw lists or evaluation rows are read without noise. For studies.
"""
