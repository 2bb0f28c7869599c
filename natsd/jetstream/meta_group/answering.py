"""Who answers a request that all servers of a cluster get."""

from enum import Enum


class Unanswered(Exception):
    """No server has answered in time: what was asked for may happen nevertheless."""


class Answering(Enum):
    """Who answers a request."""

    HERE = "this server"
    ELSEWHERE = "another server"
    SOON = "this server perhaps, once the stream is led"
    NOBODY = "there is no leader"
    OFFLINE = "none of the stream's servers is online"
    UNSERVED = "the server whose read replica serves the consumer is not there, as far as is known"
