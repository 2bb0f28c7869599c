"""Accounts: isolated spaces of subjects; everything a server does, it does in one of them."""

from natsd.accounts.account import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Account
from natsd.accounts.internal_client import InternalClient, NoRespondersError

__all__ = ["GLOBAL_ACCOUNT", "SYSTEM_ACCOUNT", "Account", "InternalClient", "NoRespondersError"]
