"""Nothing is cimported from here: see pieces.pyi."""
