"""A federation across machines as commands see it: founding, joining, serving, running a node.

source          what is declared and what is public, as one file
founding        `cslr federation init`: plan, agreement, charter
joining         `cslr federation join`: a node's identity, and what it pins
node_rows       a node's own rows, embedded
node_figures    what a node measures on its own test rows
serving         the server: learn every task, send the result back
server_machine  its SuperLink and its run      node_machine  a node's SuperNode and executor
trial           all of it on one machine
"""
