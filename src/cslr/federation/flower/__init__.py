"""Flower as the carrier of a federation's messages (the extra ``cslr[flower]``).

    apps           a node's ClientApp: one route a question, bytes in and out
    transport      the coordinator's transport over a Flower grid, with polling of its own
    executor       runs the installed ``cslr`` on a node and on the server, never what is shipped
    supernode      Flower's SuperNode, with shorter pauses
    certificates   TLS certificates and node keys
    processes      SuperLink, SuperNodes and executors as processes that end together

Flower's names behind ``executor`` are private to it, so its version is pinned.
"""
