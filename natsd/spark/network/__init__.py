"""Ranges of a stream read from a server, by direct gets or an ordered pull consumer."""
