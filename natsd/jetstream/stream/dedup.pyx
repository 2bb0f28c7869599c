"""DuplicateWindow: the message ids of the last minutes, by which a message sent again is known.

    pages    ids in the order of their sequences, and so of their times: the oldest page goes first
             ┌──────────────────────────┬──────┐
             │ 256 × sequence, time, …  │ text ├─▶ the ids' bytes, one behind the other
             └──────────────────────────┴──────┘
    buckets  hash ─▶ ┌────────────────────────┬──────┐
                     │ 7 × 32 bits of a hash, │ more ├─▶ a bucket with the ids that have no room
                     │     number of the id   │      │   here: few buckets have one
                     └────────────────────────┴──────┘

Promise
- An id is found exactly: by hash, then byte by byte. Hashes are seeded, so clients cannot choose
  ids that collide.
- Memory follows the number of ids within the window, down again as well. It grows by one bucket and
  one page at a time (linear hashing): no step takes longer because there are millions of ids.
- A bucket is a cache line: to learn that an id is new, and to add it, usually touches one line of
  memory that is not in the cache.
- No clock is read here: the caller says which ids are too old.
- `forget_above` takes back the ids of messages that a failed commit did not store.

Source: nats-server's `checkMsgId` and `storeMsgId`; Litwin, "Linear Hashing", 1980.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset
from posix.stdlib cimport posix_memalign

from natsd.core.routing cimport wire_bytes
from natsd.store.codec.xxh64 cimport xxh64

import struct

from natsd.store.errors import DamagedEncoding

cdef enum:
    BUCKETS_MIN = 64
    IDS_PER_BUCKET = 3
    TEXT_MIN = 1024
    DECODED_PER_STEP = 512
    DROPPED_PER_ID = 2          # buckets: more than the four for IDS_PER_BUCKET ids at most

ENCODED_ID = struct.Struct("<QqI")  # sequence, time in ns, length of the id that follows


cdef struct Place:              # where the next slot of a chain is written
    IdBucket* bucket
    int at


cdef void put_slot(Place* place, IdSlot slot) noexcept nogil:
    """Write a slot; the chain has room for it."""
    if place.at == BUCKET_SLOTS:
        place.bucket = place.bucket.more
        place.at = 0
    place.bucket.slots[place.at] = slot
    place.at += 1


cdef void cut_chain(Place* place) noexcept nogil:
    """Empty the slots behind the place, and free the buckets there."""
    cdef IdBucket* rest = place.bucket.more
    memset(&place.bucket.slots[place.at], 0, (BUCKET_SLOTS - place.at) * sizeof(IdSlot))
    place.bucket.more = NULL
    free_chain(rest)


cdef void free_chain(IdBucket* chain) noexcept nogil:
    cdef IdBucket* rest
    while chain != NULL:
        rest = chain.more
        free(chain)
        chain = rest


cdef int end_of(IdBucket* chain, Place* place) noexcept nogil:
    """Find the first empty slot of a chain; return the number of empty slots."""
    while chain.more != NULL:
        chain = chain.more
    place.bucket = chain
    place.at = 0
    while place.at < BUCKET_SLOTS and chain.slots[place.at].tag:
        place.at += 1
    return BUCKET_SLOTS - place.at


cdef IdBucket* add_more(IdBucket* bucket) noexcept nogil:
    bucket.more = <IdBucket*> calloc(1, sizeof(IdBucket))
    return bucket.more


cdef class DuplicateWindow:
    def __cinit__(self, uint64_t seed=0):
        self.seed = seed

    def __dealloc__(self):
        self.release()

    cdef void release(self) noexcept nogil:
        cdef uint64_t at
        while self.page_count:
            self.drop_first_page()
        free(self.pages)
        for at in range(self.bucket_count):
            free_chain(self.bucket(at).more)
        for at in range(self.bucket_pages):
            free(self.buckets[at])
        free(self.buckets)
        self.pages = NULL
        self.buckets = NULL
        self.page_room = self.bucket_count = self.bucket_pages = self.mask = 0
        self.head = self.tail
        self.count = 0

    # Ids by number

    cdef SeenId* entry(self, uint64_t number) noexcept nogil:
        return &self.pages[(number >> SEEN_PAGE_BITS) - self.page_base].ids[
            number & (SEEN_PAGE - 1)
        ]

    cdef const char* text_of(self, uint64_t number) noexcept nogil:
        cdef SeenPage* page = self.pages[(number >> SEEN_PAGE_BITS) - self.page_base]
        return page.text + page.ids[number & (SEEN_PAGE - 1)].text_at

    cdef SeenPage* page_for(self, uint64_t number) except NULL:
        """Return the page of the next number; make it if needed."""
        cdef uint64_t place = (number >> SEEN_PAGE_BITS) - self.page_base
        cdef SeenPage** pages
        if self.page_count == 0:
            self.page_base = number >> SEEN_PAGE_BITS
            place = 0
        if place < self.page_count:
            return self.pages[place]
        if self.page_count == self.page_room:
            pages = <SeenPage**> realloc(
                self.pages, max(<uint64_t> 4, 2 * self.page_room) * sizeof(SeenPage*)
            )
            if pages == NULL:
                raise MemoryError()
            self.pages = pages
            self.page_room = max(<uint64_t> 4, 2 * self.page_room)
        self.pages[place] = <SeenPage*> calloc(1, sizeof(SeenPage))
        if self.pages[place] == NULL:
            raise MemoryError()
        self.page_count += 1
        return self.pages[place]

    cdef int add_text(self, SeenPage* page, const char* id, uint32_t length) except -1:
        cdef uint32_t room = page.text_room
        cdef char* text
        if page.text_room - page.text_used < length:
            room = max(<uint32_t> TEXT_MIN, 2 * room, page.text_used + length)
            text = <char*> realloc(page.text, room)
            if text == NULL:
                raise MemoryError()
            page.text = text
            page.text_room = room
        memcpy(page.text + page.text_used, id, length)
        page.text_used += length
        return 0

    cdef void drop_first_page(self) noexcept nogil:
        free(self.pages[0].text)
        free(self.pages[0])
        self.page_count = self.page_count - 1
        self.page_base = self.page_base + 1
        memmove(self.pages, self.pages + 1, self.page_count * sizeof(SeenPage*))

    # Ids by hash

    cdef uint32_t tag_of(self, const char* id, size_t length) noexcept nogil:
        cdef uint32_t tag = <uint32_t> xxh64(<const unsigned char*> id, length, self.seed)
        return tag if tag else 1

    cdef uint64_t number_of(self, IdSlot* slot) noexcept nogil:
        return self.head + <uint32_t> (slot.number - <uint32_t> self.head)

    cdef IdBucket* bucket(self, uint64_t index) noexcept nogil:
        return &self.buckets[index >> BUCKET_PAGE_BITS][index & (BUCKET_PAGE - 1)]

    cdef IdBucket* bucket_of(self, uint32_t tag) noexcept nogil:
        cdef uint64_t index = tag & self.mask
        return self.bucket(index if index < self.bucket_count else tag & (self.mask >> 1))

    cdef IdSlot* look_up(self, uint32_t tag, const char* id, size_t length) noexcept nogil:
        cdef IdBucket* bucket
        cdef uint64_t number
        cdef int at
        if self.bucket_count == 0:
            return NULL
        bucket = self.bucket_of(tag)
        while bucket != NULL:
            for at in range(BUCKET_SLOTS):
                if bucket.slots[at].tag != tag:
                    continue
                number = self.number_of(&bucket.slots[at])
                if (
                    self.entry(number).text_len == length
                    and memcmp(self.text_of(number), id, length) == 0
                ):
                    return &bucket.slots[at]
            bucket = bucket.more
        return NULL

    cdef uint64_t find(self, const char* id, size_t length, int64_t since_ns) noexcept nogil:
        cdef IdSlot* slot
        cdef SeenId* seen
        if self.count == 0:
            return 0
        slot = self.look_up(self.tag_of(id, length), id, length)
        if slot == NULL:
            return 0
        seen = self.entry(self.number_of(slot))
        return seen.sequence if seen.time_ns > since_ns else 0

    cdef void unlist(self, uint64_t number) noexcept nogil:
        cdef SeenId* seen = self.entry(number)
        cdef IdBucket* chain = self.bucket_of(seen.tag)
        cdef IdBucket* bucket = chain
        cdef IdBucket* before
        cdef Place last
        cdef int at = 0
        while bucket.slots[at].tag != seen.tag or bucket.slots[at].number != <uint32_t> number:
            at += 1
            if at == BUCKET_SLOTS:
                bucket, at = bucket.more, 0
        end_of(chain, &last)
        last.at -= 1
        bucket.slots[at] = last.bucket.slots[last.at]
        last.bucket.slots[last.at].tag = 0
        if last.at == 0 and last.bucket != chain:
            before = chain
            while before.more != last.bucket:
                before = before.more
            before.more = NULL
            free(last.bucket)
        seen.is_listed = False
        self.count = self.count - 1
        for _ in range(DROPPED_PER_ID):
            if (
                self.bucket_count <= BUCKETS_MIN
                or 4 * self.count >= IDS_PER_BUCKET * self.bucket_count
                or not self.drop_bucket()
            ):
                break

    cdef int add_page(self) except -1:
        """Have a page for the next bucket, and its slots empty."""
        cdef uint64_t page = self.bucket_count >> BUCKET_PAGE_BITS
        cdef IdBucket** pages
        if page < self.bucket_pages:
            return 0
        pages = <IdBucket**> realloc(self.buckets, (page + 1) * sizeof(IdBucket*))
        if pages == NULL:
            raise MemoryError()
        self.buckets = pages
        if posix_memalign(
            <void**> &pages[page], sizeof(IdBucket), BUCKET_PAGE * sizeof(IdBucket)
        ):
            raise MemoryError()
        memset(pages[page], 0, BUCKET_PAGE * sizeof(IdBucket))
        self.bucket_pages += 1
        return 0

    cdef int add_bucket(self) except -1:
        """Add a bucket; some ids of another bucket move into it."""
        cdef uint64_t index = self.bucket_count
        cdef uint64_t mask = 2 * self.mask + 1 if index > self.mask else self.mask
        cdef IdBucket* bucket
        cdef IdBucket* old
        cdef Place moved
        cdef Place stays
        cdef int at
        self.add_page()
        bucket = old = self.bucket(index & (mask >> 1))
        moved = Place(self.bucket(index), 0)
        stays = Place(bucket, 0)
        if index:
            while old.more != NULL:     # as much room as the other bucket has
                old = old.more
                if add_more(moved.bucket) == NULL:
                    free_chain(self.bucket(index).more)
                    self.bucket(index).more = NULL
                    raise MemoryError()
                moved.bucket = moved.bucket.more
            moved.bucket = self.bucket(index)
        self.mask = mask
        self.bucket_count += 1
        if index == 0:
            return 0
        while bucket != NULL:
            for at in range(BUCKET_SLOTS):
                if bucket.slots[at].tag == 0:
                    break
                put_slot(
                    &moved if bucket.slots[at].tag & mask == index else &stays, bucket.slots[at]
                )
            bucket = bucket.more
        cut_chain(&moved)
        cut_chain(&stays)
        return 0

    cdef bint drop_bucket(self) noexcept nogil:
        cdef uint64_t index = self.bucket_count - 1
        cdef IdBucket* last = self.bucket(index)
        cdef Place end
        cdef int count = 0
        if last.more != NULL:
            return False
        while count < BUCKET_SLOTS and last.slots[count].tag:
            count += 1
        if end_of(self.bucket(index & (self.mask >> 1)), &end) < count:
            if add_more(end.bucket) == NULL:
                return False
        for at in range(count):
            put_slot(&end, last.slots[at])
            last.slots[at].tag = 0
        self.bucket_count = index
        if index == (self.mask + 1) >> 1:
            self.mask = self.mask >> 1
        if index & (BUCKET_PAGE - 1) == 0:
            self.bucket_pages = self.bucket_pages - 1
            free(self.buckets[self.bucket_pages])
        return True

    # Adding and forgetting ids

    cdef int add(
        self, const char* id, size_t length, uint64_t sequence, int64_t time_ns
    ) except -1:
        cdef uint32_t tag = self.tag_of(id, length)
        cdef IdSlot* slot
        cdef SeenId* seen
        cdef SeenPage* page
        cdef Place end
        assert self.head == self.tail or sequence > self.entry(self.tail - 1).sequence
        while IDS_PER_BUCKET * self.bucket_count <= self.count or self.bucket_count < BUCKETS_MIN:
            self.add_bucket()
        slot = self.look_up(tag, id, length)
        if slot != NULL:
            self.unlist(self.number_of(slot))
        page = self.page_for(self.tail)
        self.add_text(page, id, <uint32_t> length)
        if end_of(self.bucket_of(tag), &end) == 0 and add_more(end.bucket) == NULL:
            raise MemoryError()
        put_slot(&end, IdSlot(tag, <uint32_t> self.tail))
        seen = &page.ids[self.tail & (SEEN_PAGE - 1)]
        seen.tag = tag
        seen.sequence = sequence
        seen.time_ns = time_ns
        seen.text_len = <uint32_t> length
        seen.text_at = page.text_used - seen.text_len
        seen.is_listed = True
        self.tail += 1
        self.count += 1
        return 0

    cdef int forget(self, const char* id, size_t length) noexcept nogil:
        cdef IdSlot* slot = self.look_up(self.tag_of(id, length), id, length)
        if slot == NULL:
            return 0
        self.unlist(self.number_of(slot))
        return 1

    cdef bint expire(self, int64_t until_ns, uint64_t most) except -1:
        while self.head < self.tail and self.entry(self.head).time_ns <= until_ns:
            if most == 0:
                return True
            most -= 1
            if self.entry(self.head).is_listed:
                self.unlist(self.head)
            self.head += 1
            if self.head & (SEEN_PAGE - 1) == 0:
                self.drop_first_page()
        if self.head == self.tail:
            self.release()
        return False

    cdef bint forget_above(self, uint64_t sequence, uint64_t most) except -1:
        cdef SeenId* last
        while self.head < self.tail:
            last = self.entry(self.tail - 1)
            if last.sequence <= sequence:
                return False
            if most == 0:
                return True
            most -= 1
            if last.is_listed:
                self.unlist(self.tail - 1)
            self.tail -= 1
            self.pages[self.page_count - 1].text_used = last.text_at
            if self.tail & (SEEN_PAGE - 1) == 0:
                self.page_count -= 1
                free(self.pages[self.page_count].text)
                free(self.pages[self.page_count])
        self.release()
        return False

    cdef int64_t oldest_ns(self) noexcept nogil:
        return self.entry(self.head).time_ns if self.head < self.tail else 0

    # For tests, and for saving the ids across a restart

    def __len__(self):
        """Return the number of ids."""
        return self.count

    def find_id(self, message_id, int64_t since_ns=-1) -> int:
        """Return the sequence of the message with that id; 0: none after `since_ns`."""
        cdef bytes text = wire_bytes(message_id)
        return self.find(text, len(text), since_ns)

    def add_id(self, message_id, uint64_t sequence, int64_t time_ns) -> None:
        """Add an id."""
        cdef bytes text = wire_bytes(message_id)
        self.add(text, len(text), sequence, time_ns)

    def expire_ids(self, int64_t until_ns, uint64_t most=1 << 62) -> bool:
        """Forget ids of `until_ns` or older, `most` at most. True: there are more."""
        return self.expire(until_ns, most)

    def forget_ids_above(self, uint64_t sequence, uint64_t most=1 << 62) -> bool:
        """Forget ids of messages above `sequence`, `most` at most. True: there are more."""
        return self.forget_above(sequence, most)

    def encode(self) -> bytes:
        """Return all ids with their sequences and times, as bytes."""
        return self.encode_some(0, <uint64_t> -1, <uint64_t> -1)[0]

    def encode_some(self, uint64_t number, uint64_t upto, uint64_t most) -> tuple:
        """Return `most` encoded ids, of messages up to `upto`, and the number of the next id.

        The first id has that number or a higher one; 0 is returned if none is left.
        """
        cdef uint64_t end
        cdef SeenId* seen
        cdef list parts = []
        number = max(number, self.head)
        end = number + min(most, self.tail - number) if number < self.tail else number
        while number < end:
            seen = self.entry(number)
            if seen.sequence > upto:
                return b"".join(parts), 0
            if seen.is_listed:
                parts.append(ENCODED_ID.pack(seen.sequence, seen.time_ns, seen.text_len))
                parts.append(self.text_of(number)[:seen.text_len])
            number += 1
        return b"".join(parts), number if number < self.tail else 0

    def decode(self, bytes encoded not None, int64_t since_ns, uint64_t upto, Py_ssize_t at=0):
        """Add, in steps, the ids encoded from offset `at` on.

        Those of messages after `since_ns` and up to sequence `upto` are added. The window must be
        empty. Raises DamagedEncoding; then nothing is added.
        """
        cdef uint64_t number = 0
        assert self.head == self.tail
        try:
            for sequence, time_ns, id in decoded_ids(encoded, at):
                if time_ns > since_ns and sequence <= upto:
                    self.add(id, len(id), sequence, time_ns)
                number += 1
                if number % DECODED_PER_STEP == 0:
                    yield
        except DamagedEncoding:
            self.forget_above(0, <uint64_t> -1)
            raise

    def ids(self) -> list:
        """Return the sequence, the time in ns and the id of each."""
        return list(decoded_ids(self.encode(), 0))

    @property
    def oldest_sequence(self) -> int:
        """Sequence of the oldest message whose id is known; 0: none."""
        return self.entry(self.head).sequence if self.head < self.tail else 0

    @property
    def memory_bytes(self) -> int:
        """Bytes that the window has allocated, without the few buckets that are `more`."""
        cdef uint64_t at
        cdef uint64_t total = self.page_room * sizeof(SeenPage*)
        for at in range(self.page_count):
            total += sizeof(SeenPage) + self.pages[at].text_room
        return total + self.bucket_pages * (sizeof(IdBucket*) + BUCKET_PAGE * sizeof(IdBucket))


def decoded_ids(bytes encoded, Py_ssize_t at):
    """Yield the ids encoded from offset `at` on. Raises DamagedEncoding."""
    cdef object last = 0
    while at < len(encoded):
        if len(encoded) - at < ENCODED_ID.size:
            raise DamagedEncoding("message ids: cut off")
        sequence, time_ns, length = ENCODED_ID.unpack_from(encoded, at)
        at += ENCODED_ID.size
        if length > len(encoded) - at or sequence <= last or length == 0:
            raise DamagedEncoding("message ids: not what was written")
        yield sequence, time_ns, encoded[at:at + length]
        at += length
        last = sequence
