"""DuplicateWindow: the message ids of the last minutes, by which a message sent again is known.

    pages    ids in the order of their sequences, and so of their times: the oldest page goes first
             ┌──────────────────────────┬──────┐
             │ 256 × hash, sequence, …  │ text ├─▶ the ids' bytes, one behind the other
             └──────────────────────────┴──────┘
    buckets  hash ─▶ the last id with it ─▶ the one before it …, by number

Promise
- An id is found exactly: by hash, then byte by byte. Hashes are seeded, so clients cannot choose
  ids that collide.
- Memory follows the number of ids within the window, down again as well. It grows by one bucket and
  one page at a time (linear hashing): no step takes longer because there are millions of ids.
- No clock is read here: the caller says which ids are too old.
- `forget_above` takes back the ids of messages that a failed commit did not store.

Source: nats-server's `checkMsgId` and `storeMsgId`; Litwin, "Linear Hashing", 1980.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove

from natsd.core.routing cimport wire_bytes
from natsd.store.codec.xxh64 cimport xxh64

import struct

from natsd.store.errors import DamagedEncoding

cdef enum:
    BUCKETS_MIN = 64
    TEXT_MIN = 1024
    DROPPED_PER_ID = 5          # buckets: more than the four that each id may have at most

ENCODED_ID = struct.Struct("<QqI")  # sequence, time in ns, length of the id that follows


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

    cdef uint64_t* bucket_of(self, uint64_t hash) noexcept nogil:
        cdef uint64_t bucket = hash & self.mask
        if bucket >= self.bucket_count:
            bucket = hash & (self.mask >> 1)
        return &self.buckets[bucket >> BUCKET_PAGE_BITS][bucket & (BUCKET_PAGE - 1)]

    cdef SeenId* look_up(
        self, uint64_t hash, const char* id, size_t length, uint64_t* number
    ) noexcept nogil:
        cdef uint64_t at
        cdef SeenId* seen
        if self.bucket_count == 0:
            return NULL
        at = self.bucket_of(hash)[0]
        while at:
            seen = self.entry(at - 1)
            if (
                seen.hash == hash and seen.text_len == length
                and memcmp(self.text_of(at - 1), id, length) == 0
            ):
                number[0] = at - 1
                return seen
            at = seen.next
        return NULL

    cdef uint64_t find(self, const char* id, size_t length, int64_t since_ns) noexcept nogil:
        cdef uint64_t number = 0
        cdef SeenId* seen
        if self.count == 0:
            return 0
        seen = self.look_up(
            xxh64(<const unsigned char*> id, length, self.seed), id, length, &number
        )
        return seen.sequence if seen != NULL and seen.time_ns > since_ns else 0

    cdef void unlist(self, uint64_t number) noexcept nogil:
        cdef SeenId* seen = self.entry(number)
        cdef uint64_t* at = self.bucket_of(seen.hash)
        while at[0] != number + 1:
            at = &self.entry(at[0] - 1).next
        at[0] = seen.next
        seen.is_listed = False
        self.count = self.count - 1
        for _ in range(DROPPED_PER_ID):
            if self.bucket_count <= BUCKETS_MIN or self.count >= self.bucket_count // 4:
                break
            self.drop_bucket()

    cdef int add_bucket(self) except -1:
        """Add a bucket; some ids of another bucket move into it."""
        cdef uint64_t bucket = self.bucket_count, at, rest
        cdef uint64_t page = bucket >> BUCKET_PAGE_BITS
        cdef uint64_t** pages
        cdef uint64_t* moved
        cdef uint64_t* stays
        if page == self.bucket_pages:
            pages = <uint64_t**> realloc(self.buckets, (page + 1) * sizeof(uint64_t*))
            if pages == NULL:
                raise MemoryError()
            self.buckets = pages
            pages[page] = <uint64_t*> calloc(BUCKET_PAGE, sizeof(uint64_t))
            if pages[page] == NULL:
                raise MemoryError()
            self.bucket_pages += 1
        if bucket > self.mask:
            self.mask = 2 * self.mask + 1
        self.bucket_count += 1
        moved = &self.buckets[page][bucket & (BUCKET_PAGE - 1)]
        if bucket == 0:
            return 0
        at = bucket & (self.mask >> 1)
        stays = &self.buckets[at >> BUCKET_PAGE_BITS][at & (BUCKET_PAGE - 1)]
        rest = stays[0]
        while rest:
            at = rest
            rest = self.entry(at - 1).next
            if self.entry(at - 1).hash & self.mask == bucket:
                stays[0] = rest
                self.entry(at - 1).next = moved[0]
                moved[0] = at
            else:
                stays = &self.entry(at - 1).next
        return 0

    cdef void drop_bucket(self) noexcept nogil:
        """Remove the last bucket; its ids move back to the bucket they came from."""
        cdef uint64_t bucket = self.bucket_count - 1
        cdef uint64_t* last = &self.buckets[bucket >> BUCKET_PAGE_BITS][bucket & (BUCKET_PAGE - 1)]
        cdef uint64_t other = bucket & (self.mask >> 1)
        cdef uint64_t* end = &self.buckets[other >> BUCKET_PAGE_BITS][other & (BUCKET_PAGE - 1)]
        while end[0]:
            end = &self.entry(end[0] - 1).next
        end[0] = last[0]
        last[0] = 0
        self.bucket_count = bucket
        if bucket == (self.mask + 1) >> 1:
            self.mask = self.mask >> 1
        if bucket & (BUCKET_PAGE - 1) == 0:
            self.bucket_pages = self.bucket_pages - 1
            free(self.buckets[self.bucket_pages])

    # Adding and forgetting ids

    cdef int add(
        self, const char* id, size_t length, uint64_t sequence, int64_t time_ns
    ) except -1:
        cdef uint64_t hash = xxh64(<const unsigned char*> id, length, self.seed)
        cdef uint64_t number = 0
        cdef uint64_t* bucket
        cdef SeenId* seen
        cdef SeenPage* page
        assert self.head == self.tail or sequence > self.entry(self.tail - 1).sequence
        while self.bucket_count <= max(self.count, <uint64_t> BUCKETS_MIN):
            self.add_bucket()
        if self.look_up(hash, id, length, &number) != NULL:
            self.unlist(number)
        page = self.page_for(self.tail)
        self.add_text(page, id, <uint32_t> length)
        seen = &page.ids[self.tail & (SEEN_PAGE - 1)]
        bucket = self.bucket_of(hash)
        seen.hash = hash
        seen.sequence = sequence
        seen.time_ns = time_ns
        seen.text_len = <uint32_t> length
        seen.text_at = page.text_used - seen.text_len
        seen.is_listed = True
        seen.next = bucket[0]
        self.tail += 1
        bucket[0] = self.tail
        self.count += 1
        return 0

    cdef int forget(self, const char* id, size_t length) noexcept nogil:
        cdef uint64_t number = 0
        cdef uint64_t hash = xxh64(<const unsigned char*> id, length, self.seed)
        if self.look_up(hash, id, length, &number) == NULL:
            return 0
        self.unlist(number)
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
        cdef uint64_t number
        cdef SeenId* seen
        cdef list parts = []
        for number in range(self.head, self.tail):
            seen = self.entry(number)
            if seen.is_listed:
                parts.append(ENCODED_ID.pack(seen.sequence, seen.time_ns, seen.text_len))
                parts.append(self.text_of(number)[:seen.text_len])
        return b"".join(parts)

    def decode(self, bytes encoded not None, int64_t since_ns, uint64_t upto) -> None:
        """Add encoded ids of messages after `since_ns` and up to sequence `upto`.

        The window must be empty. Raises DamagedEncoding; then nothing is added.
        """
        assert self.head == self.tail
        for sequence, time_ns, id in decoded_ids(encoded):
            if time_ns > since_ns and sequence <= upto:
                self.add(id, len(id), sequence, time_ns)

    @property
    def memory_bytes(self) -> int:
        """Bytes that the window has allocated."""
        cdef uint64_t at
        cdef uint64_t total = self.page_room * sizeof(SeenPage*)
        for at in range(self.page_count):
            total += sizeof(SeenPage) + self.pages[at].text_room
        return total + self.bucket_pages * (sizeof(uint64_t*) + BUCKET_PAGE * sizeof(uint64_t))


cdef list decoded_ids(bytes encoded):
    cdef Py_ssize_t at = 0
    cdef object last = 0
    cdef list ids = []
    while at < len(encoded):
        if len(encoded) - at < ENCODED_ID.size:
            raise DamagedEncoding("message ids: cut off")
        sequence, time_ns, length = ENCODED_ID.unpack_from(encoded, at)
        at += ENCODED_ID.size
        if length > len(encoded) - at or sequence <= last or length == 0:
            raise DamagedEncoding("message ids: not what was written")
        ids.append((sequence, time_ns, encoded[at:at + length]))
        at += length
        last = sequence
    return ids
