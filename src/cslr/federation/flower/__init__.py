"""Flower as the carrier of a federation's messages (the extra ``cslr[flower]``).

    apps           ClientApp and ServerApp: one route a question, bytes in and out
    transport      the coordinator's transport over a Flower grid, with polling of its own
    local_grid     the same apps in one process, for tests
    executor       runs the installed ``cslr`` on a node and on the server, never what is shipped
    supernode      Flower's SuperNode, with shorter pauses
    certificates   TLS certificates and node keys
    processes      SuperLink, SuperNodes and executors as processes that end together

Flower's names behind ``executor`` and ``local_grid`` are private to it, so its version is pinned.
"""
