"""Operator mode: accounts and users are JWTs, which operators, accounts and their keys sign."""
