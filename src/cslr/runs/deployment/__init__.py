"""A federation across machines as commands see it: founding, joining, serving, running a node.

source      what is declared about rows and what is public, as one file
founding    `cslr federation init`: plan, agreement, charter
joining     `cslr federation join`: a node's keys, and what it pins
node_rows   a node's own rows, embedded
serving     the server: learn every task, send the result back
"""
