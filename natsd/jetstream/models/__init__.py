"""Requests, responses, configurations and infos of the JetStream API, as pydantic models."""
