"""The commands that change a stream and its consumers, their encoding, and who applies them."""
