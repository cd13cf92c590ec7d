"""Flower as the transport of a federation's messages (the extra ``cslr[flower]``).

    apps           a node's ClientApp: a route for each kind of question, bytes in and out
    transport      the coordinator's transport over a Flower grid, with polling of its own
    executor       runs the installed ``cslr`` on nodes and server, never code that is shipped
    supernode      Flower's SuperNode, with shorter pauses
    certificates   TLS certificates and node keys
    processes      SuperLink, SuperNodes and executors as processes that end together

``executor`` uses private names of Flower, so its version is pinned.
"""
