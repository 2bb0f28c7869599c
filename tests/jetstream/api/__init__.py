"""Tests of the API: requests in, answers out."""
