"""Accounts: isolated subject spaces. Every subscription and message belongs to one account."""

from natsd.accounts.account import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Account
from natsd.accounts.directory import AccountDirectory
from natsd.accounts.internal_client import InternalClient, NoRespondersError

__all__ = [
    "GLOBAL_ACCOUNT",
    "SYSTEM_ACCOUNT",
    "Account",
    "AccountDirectory",
    "InternalClient",
    "NoRespondersError",
]
