"""JWTs of NATS: tokens that operators, accounts and servers sign with their nkeys."""
