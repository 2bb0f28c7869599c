"""An empty declaration file: nothing is cimported from here. See rewrite.pyi."""
