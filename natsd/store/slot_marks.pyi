"""C only: nothing here is visible from Python."""
