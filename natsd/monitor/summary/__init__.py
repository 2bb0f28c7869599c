"""The summary of a server: the one answer from which the dashboard and `natsd top` are drawn."""
