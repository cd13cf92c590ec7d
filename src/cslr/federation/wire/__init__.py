"""How a client's answer travels: identities, streams, and what a server keeps of it."""
