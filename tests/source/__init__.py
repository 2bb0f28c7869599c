"""The source is under test: layers, lengths, banned calls, open ends, what is packaged."""
