"""How bytes move: layouts and packing, the message, and the carriers that bring it to a server."""
