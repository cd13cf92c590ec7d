"""Clients' answers as signed messages: identities, encoding, transfer and the server's inbox."""
