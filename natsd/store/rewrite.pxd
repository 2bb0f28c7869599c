"""For Python only, see rewrite.pyi: one call rewrites a whole block."""
