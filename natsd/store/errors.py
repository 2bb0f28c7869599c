"""The errors that a store raises.

Every error that leaves `natsd.store` is one of these. `text` is nats-server's text for the same
case, if it has one, so that an API answer can pass it on; `str(error)` may say more.

    StoreError
      StoreClosed  StoreReadOnly  StoreFull  StoreUnavailable  StoreInUse
      EncryptionError      KeyMissing  KeyUnexpected  KeyWrong  KeyFileDamaged
      ConsumerError        NoAckPolicy  OldUpdate  InvalidConsumerState  ConsumerStateDamaged
      LimitExceeded        MaximumMessagesExceeded  MaximumBytesExceeded
                           MaximumMessagesPerSubjectExceeded  MaximumMessageSizeExceeded
      MessageNotFound      MessageDamaged
      StoreEOF             past the last message
      BlockFull  BlockUnreadable
      SequenceMismatch     a given sequence that is not above the last one
      TooManyResults  InvalidLimits
      DamagedEncoding      a sequence set, a snapshot or a snapshot that does not verify
        ForeignSnapshot     a snapshot that nats-server made
      ColdBlock            between a log and its store (block/cold_block.py)

Source: nats-server's store errors (`ErrStoreClosed` and the following ones in server/store.go);
docs/store.md for StoreFull and StoreReadOnly.
"""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    """The base of all store errors; `str(error)` is `text`, unless more is known."""

    text: ClassVar[str] = "store error"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.text)


class StoreClosed(StoreError):
    """A call on a store that was closed or destroyed."""

    text = "store is closed"


class StoreReadOnly(StoreError):
    """A write or sync failed with EIO; the store must be opened again.

    Until then it is unknown what the disk holds.
    """

    text = "store is read-only after a failed write"


class StoreFull(StoreError):
    """A write found no space, descriptor or memory.

    All appends since the last commit are undone; later appends may succeed.
    """

    text = "no space left for the store"


class StoreUnavailable(StoreError):
    """A block cannot be read now, since a descriptor or memory is lacking; retrying may help."""

    text = "store cannot be read at the moment"


class StoreInUse(StoreError):
    """Another process holds the store's directory."""

    text = "store is in use by another process"


class EncryptionError(StoreError):
    """A store that cannot be opened with the given keys; the text is one line for the user."""

    text = "store cannot be decrypted"


class KeyMissing(EncryptionError):
    """The store is encrypted, and no key is given or its key file is gone."""


class KeyUnexpected(EncryptionError):
    """A key is given for a store with data that was never encrypted."""


class KeyWrong(EncryptionError):
    """Neither the key nor the previous one opens the store's key file."""


class KeyFileDamaged(EncryptionError):
    """No copy of the key in the key file verifies."""


class ConsumerError(StoreError):
    """A change that a consumer's state does not allow; the state is unchanged."""


class NoAckPolicy(ConsumerError):
    """An ack or a redelivery for a consumer that does not track acks."""

    text = "ack policy is none"


class OldUpdate(ConsumerError):
    """A whole state that is older than the one it should replace."""

    text = "old update ignored"


class InvalidConsumerState(ConsumerError, ValueError):
    """A whole state that contradicts itself."""

    text = "bad consumer state"


class ConsumerStateDamaged(StoreError):
    """No copy of a consumer's checkpoint verifies; the consumer has to begin anew."""

    text = "consumer state is damaged"


class LimitExceeded(StoreError):
    """An append that a limit forbids; the store is unchanged."""


class MaximumMessagesExceeded(LimitExceeded):
    """With discard new: the stream has `max_msgs` messages already."""

    text = "maximum messages exceeded"


class MaximumBytesExceeded(LimitExceeded):
    """With discard new: the stream would exceed `max_bytes`; or one message alone exceeds it."""

    text = "maximum bytes exceeded"


class MaximumMessagesPerSubjectExceeded(LimitExceeded):
    """With discard new per subject: the subject has `max_msgs_per_subject` messages already."""

    text = "maximum messages per subject exceeded"


class MaximumMessageSizeExceeded(LimitExceeded):
    """Headers and payload together exceed `max_msg_size` or the size of a record."""

    text = "message size exceeds maximum allowed"


class MessageNotFound(StoreError):
    """No such message: it never existed, was removed, or has another subject."""

    text = "no message found"


class MessageDamaged(MessageNotFound):
    """A stored message whose bytes on disk do not verify; it is never served."""

    text = "message damaged"

    def __init__(self, sequence: int, path: str = "", offset: int = 0) -> None:
        where = f" in {path} at byte {offset}" if path else ""
        super().__init__(f"message {sequence} is damaged{where}")
        self.sequence = sequence
        self.path = path
        self.offset = offset


class StoreEOF(StoreError):
    """No message exists at or after the requested sequence."""

    text = "stream store EOF"


class SequenceMismatch(StoreError):
    """A given sequence that is not above the last one."""

    text = "expected sequence does not match store"


class TooManyResults(StoreError):
    """More matches than the caller allowed."""

    text = "too many matching results for request"


class InvalidLimits(StoreError, ValueError):
    """Limits that contradict each other or the store's contents."""

    text = "invalid limits"


class DamagedEncoding(StoreError, ValueError):
    """Bytes that are no valid sequence set, snapshot or snapshot."""

    text = "stream state snapshot is corrupt"


class ForeignSnapshot(DamagedEncoding):
    """A snapshot that nats-server made, where only natsd's own can be read."""

    text = "the snapshot was made by nats-server: only a restore can read it"


class BlockFull(StoreError):
    """A block cannot grow, since its offsets have 31 bits; the next block has room."""

    text = "block is full"


class BlockUnreadable(StoreError):
    """A block file that cannot be read at all; it is left unchanged.

    Either neither its header nor any commit mark in it verifies, or the disk returns none of its
    bytes.
    """

    text = "not a block file, or damaged beyond reading"
