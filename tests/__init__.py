"""natsd's tests: a directory is the room of the same name; `source` is about the source itself."""
