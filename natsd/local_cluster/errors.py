"""What can go wrong with a cluster on this machine; each text is one line for the user."""


class LocalClusterError(Exception):
    """A request cannot be carried out, or a server has not done what it should."""
