"""The API on `$JS.API.>`: which subject asks for what, who answers it, and in what order."""
