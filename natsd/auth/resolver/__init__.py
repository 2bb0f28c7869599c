"""Resolvers: where the JWTs of accounts come from."""
