"""Tests of the API's models."""
