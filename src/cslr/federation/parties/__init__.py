"""A federation across machines, without the network: what nodes and server do with messages.

    charter      what all parties agreed on, one file that every node pins
    question     the agreement as bytes
    asking       the three questions of a federation: statistics, gradients, right answers
    node         checks the questions of a round and answers them from its own files
    node_files   what a node keeps on disk
    membership   how a node pins the members, accepts changes of them, renews its key
    proof        how a node proves which member it is
    result_files what nodes get back, as files by name
    refusals     the fixed codes that a node answers errors with
    coordinator  the server's side: sessions of the secure sum over any transport
    remote       the coordinator as a cohort of the protocol

``federation.flower`` carries these messages between machines; tests carry them in one process.
"""
