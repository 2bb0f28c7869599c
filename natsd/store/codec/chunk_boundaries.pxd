"""An empty declaration file: nothing is cimported from here. See pieces.pyi."""
