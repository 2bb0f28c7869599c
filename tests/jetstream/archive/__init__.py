"""Archives of streams."""
