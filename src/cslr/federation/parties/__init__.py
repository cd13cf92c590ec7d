"""A federation across machines, without its network: what a node and a server do with messages.

    charter      what all parties agreed on, one file that every node pins
    question     the agreement as bytes
    asking       the three questions of a federation: statistics, gradients, right answers
    node         answers the questions of a round from its own files, and refuses by name
    node_files   what a node keeps on disk
    membership   how a node pins the members, takes over other ones, renews its key
    proof        how a node shows which member it is
    result_files what nodes get back, as files by name
    refusals     the fixed codes that a node answers errors with
    coordinator  the server's side: sessions of the secure sum over any transport
    remote       the coordinator as a cohort of the protocol

``federation.flower`` carries these messages between machines; tests carry them in one process.
"""
