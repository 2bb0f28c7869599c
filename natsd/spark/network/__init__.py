"""Reads of stream ranges from a server, by direct gets or by an ordered pull consumer."""
