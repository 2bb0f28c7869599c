"""Tests of the JetStream API: requests and answers."""
