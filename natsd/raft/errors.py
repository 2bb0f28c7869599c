"""Refusals of a node."""


class RaftError(Exception):
    """What was asked for is not done; nothing has changed."""


class NotLeaderError(RaftError):
    """The member does not lead its group."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"the leader is member {leader}" if leader else "there is no leader")
        self.leader = leader
        """Member that leads as far as this member knows; NOBODY: it knows of none."""


class ProposalDroppedError(RaftError):
    """The leader takes no proposals now: it hands over, or its log is full."""


class MembershipError(RaftError):
    """The change of members is not safe, or not now."""


class TransferError(RaftError):
    """The leadership cannot go to that member now."""
