"""The API on `$JS.API.>`: its subjects, the handlers that answer them, and the order of work."""
