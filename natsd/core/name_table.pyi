"""C functions only; nothing in this module is visible from Python."""
