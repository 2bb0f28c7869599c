"""One stream: its heart, what a publish becomes in it, and who looks after it."""
