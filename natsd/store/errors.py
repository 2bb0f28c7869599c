"""What a store can say instead of doing what it was asked.

Every error that leaves `natsd.store` is one of these. `text` is what nats-server says in the same
case, where it says something, so that an API answer can carry it on; `str(error)` may say more.

    StoreError
      StoreClosed  StoreReadOnly  StoreFull  StoreUnavailable  StoreInUse
      EncryptionError      KeyMissing  KeyUnexpected  KeyWrong  KeyFileDamaged
      ConsumerError        NoAckPolicy  OldUpdate  InvalidConsumerState  ConsumerStateDamaged
      LimitExceeded        MaximumMessagesExceeded  MaximumBytesExceeded
                           MaximumMessagesPerSubjectExceeded  MaximumMessageSizeExceeded
      MessageNotFound      MessageDamaged
      StoreEOF             past the last message
      BlockFull  BlockSealed  BlockUnreadable
      SequenceMismatch     a given sequence that is not the next one
      TooManyResults  InvalidLimits
      DamagedEncoding      a sequence set, a snapshot or an archive that does not verify
        ForeignArchive     an archive of nats-server's
      ColdBlock            between a log and its store: load that block, then ask again

Source: nats-server's store errors, and "Durability" of the design for StoreFull and StoreReadOnly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from natsd.store.block import MsgBlock


class StoreError(Exception):
    """`str(error)` is `text`, unless more is known."""

    text: ClassVar[str] = "store error"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.text)


class StoreClosed(StoreError):
    """Nothing can be asked of a store that was closed or destroyed."""

    text = "store is closed"


class StoreReadOnly(StoreError):
    """A write or sync failed with EIO: what the disk holds is unknown until it is opened again."""

    text = "store is read-only after a failed write"


class StoreFull(StoreError):
    """No space, descriptor or memory was left for a write: what was appended since the last commit
    is undone; later appends may pass."""

    text = "no space left for the store"


class StoreUnavailable(StoreError):
    """A block cannot be read now, for want of a descriptor or memory; the next try may pass."""

    text = "store cannot be read at the moment"


class StoreInUse(StoreError):
    """Another process holds the store's directory."""

    text = "store is in use by another process"


class EncryptionError(StoreError):
    """A store that cannot be opened with the keys at hand; the text is one line for the user."""

    text = "store cannot be decrypted"


class KeyMissing(EncryptionError):
    """The store is encrypted, and there is no key; or its key file is gone."""


class KeyUnexpected(EncryptionError):
    """A key is given for a store that holds what was never encrypted."""


class KeyWrong(EncryptionError):
    """Neither the key nor the previous one opens the store's key file."""


class KeyFileDamaged(EncryptionError):
    """No copy of the key in the key file verifies."""


class ConsumerError(StoreError):
    """A change that a consumer's state does not allow. The state is as it was."""


class NoAckPolicy(ConsumerError):
    """An ack, or a second delivery, of a consumer that does not track them."""

    text = "ack policy is none"


class OldUpdate(ConsumerError):
    """A whole state that is behind the one it should replace."""

    text = "old update ignored"


class InvalidConsumerState(ConsumerError, ValueError):
    """A whole state that contradicts itself."""

    text = "bad consumer state"


class ConsumerStateDamaged(StoreError):
    """No copy of a consumer's checkpoint verifies; the consumer has to begin anew."""

    text = "consumer state is damaged"


class LimitExceeded(StoreError):
    """An append that a limit forbids. The store is as it was."""


class MaximumMessagesExceeded(LimitExceeded):
    """Discard new, and `max_msgs` are there."""

    text = "maximum messages exceeded"


class MaximumBytesExceeded(LimitExceeded):
    """Discard new, and `max_bytes` would be passed; or a message that alone passes it."""

    text = "maximum bytes exceeded"


class MaximumMessagesPerSubjectExceeded(LimitExceeded):
    """Discard new per subject, and `max_msgs_per_subject` are there."""

    text = "maximum messages per subject exceeded"


class MaximumMessageSizeExceeded(LimitExceeded):
    """Headers and payload together pass `max_msg_size`, or what a record can hold."""

    text = "message size exceeds maximum allowed"


class MessageNotFound(StoreError):
    """No such message: never there, removed, or not for that subject."""

    text = "no message found"


class MessageDamaged(MessageNotFound):
    """It was stored, and what the disk gives back does not verify. It is never served."""

    text = "message damaged"

    def __init__(self, sequence: int, path: str = "", offset: int = 0) -> None:
        where = f" in {path} at byte {offset}" if path else ""
        super().__init__(f"message {sequence} is damaged{where}")
        self.sequence = sequence
        self.path = path
        self.offset = offset


class StoreEOF(StoreError):
    """There is no message at or after the one asked for."""

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
    """Bytes that should be an encoded sequence set or a snapshot, and are not."""

    text = "stream state snapshot is corrupt"


class ForeignArchive(DamagedEncoding):
    """Another server's archive; it may be as whole as can be."""

    text = "the archive was made by nats-server: only archives made by natsd can be restored"


class ColdBlock(StoreError):
    """What a log was asked needs a block that is not in memory. Nothing was done."""

    text = "a block is not in memory"

    def __init__(self, block: MsgBlock) -> None:
        super().__init__(f"block {block.block_id} is not in memory")
        self.block = block


class BlockFull(StoreError):
    """A block's bytes are numbered with 31 bits; the next one has room."""

    text = "block is full"


class BlockSealed(StoreError):
    """The block has reached its size: what comes next goes into another."""

    text = "block is sealed"


class BlockUnreadable(StoreError):
    """Neither the header of a block file nor a commit mark in it verifies, or nothing of it can be
    read: it is left as it is."""

    text = "not a block file, or damaged beyond reading"
