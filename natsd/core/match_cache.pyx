"""The cache of recent match results, by published subject: at most 1,024, swept down to 256.

- **Admission**: while the cache is less than half full, every subject is admitted. Above that an
  admission filter (the door) remembers hash fragments of the last refused subjects, one per bucket,
  and admits one in eight of the subjects that it sees again. So unique reply subjects fill half of
  the cache once and displace nothing. With ten times more subjects than entries, the subjects do
  not keep evicting each other.
- **Eviction**: a sweep drops entries that were not looked up again, then others, down to 256. An
  entry that stays must be looked up again before the next sweep.
- **Subscribe**: each affected entry gets a new result that also lists the new subscription. For a
  literal subject the entry is looked up. For a wildcard all entries are filtered by *signature*, 8
  bytes each in one array, and the subjects are compared only where the first two tokens can match.
- **Unsubscribe**: the affected entries are dropped; the next lookup of their subjects walks the
  trie.
- Subjects without interest are cached like others, and get new subscriptions like others.

A result that is replaced or dropped is no longer `live`. It is released only in `release`, which
the SubList calls as the last step, because destructors may call back into the SubList.

Source: the seed "SubList" (Cache Strategy).
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy


cdef uint64_t SECOND_HALF = <uint32_t> -1
cdef uint64_t FIRST_HALF = ~SECOND_HALF

cdef struct Sieve:              # a wildcard can match signatures with `signature & mask == wanted`
    uint64_t mask
    uint64_t wanted


cdef uint64_t signature_of(const char* subject, Py_ssize_t length) noexcept nogil:
    """Return the hashes of the first two tokens, 32 bits each; 0 for a token that is missing."""
    cdef TokenCursor cursor = tokens_of(subject, length)
    cdef uint64_t signature = 0
    if next_token(&cursor):
        signature = hash_name(cursor.token, cursor.length) << 32
    if next_token(&cursor):
        signature |= <uint32_t> hash_name(cursor.token, cursor.length)
    return signature


cdef Sieve sieve_of(Subscription sub) noexcept:
    """Return the signature filter of a wildcard subscription."""
    cdef TokenCursor cursor = tokens_of(sub.text, sub.subject_len)
    cdef Sieve sieve = Sieve(0, signature_of(sub.text, sub.subject_len))
    if next_token(&cursor) and not is_wild(&cursor):
        sieve.mask |= FIRST_HALF
    if next_token(&cursor) and not is_wild(&cursor):
        sieve.mask |= SECOND_HALF
    sieve.wanted &= sieve.mask
    return sieve


cdef inline bint is_wild(TokenCursor* cursor) noexcept nogil:
    """Return whether the current token is `*` or `>`."""
    return is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length)


cdef CacheEntry* new_entry(MatchResult result, uint64_t hash) noexcept:
    """Return a new entry that is in no list yet; NULL: out of memory."""
    cdef CacheEntry* entry = <CacheEntry*> malloc(sizeof(CacheEntry) + result.subject_len)
    if entry == NULL:
        return NULL
    entry[0] = CacheEntry(
        subject=Named(hash=hash, length=<uint32_t> result.subject_len, name_at=sizeof(CacheEntry)),
        result=<PyObject*> result, place=0, hit=False,
    )
    memcpy(<char*> entry + sizeof(CacheEntry), result.subject, result.subject_len)
    Py_INCREF(result)
    NATSD_LIVE(live.cache_entries, 1)
    return entry


@cython.final
cdef class MatchCache:
    """The cached match results of one SubList."""

    def __dealloc__(self):
        self.clear()
        self.release()
        free(self.entries)
        free(self.signatures)
        free(self.door)

    cdef bint admits(self, uint64_t hash) noexcept:
        """Return whether a subject that is not cached may be added now."""
        cdef uint32_t* bucket
        cdef uint32_t fragment = <uint32_t> (hash >> 32)
        if self.count < ENTRIES_MAX // 2:
            return True
        bucket = &self.door[hash % DOOR_SIZE]
        self.knocks = self.knocks * 1664525 + 1013904223
        if bucket[0] == fragment:
            return (self.knocks >> 16) % DOOR_OPENS == 0
        if self.knocks >> 31:       # else two alternating subjects of a bucket would never get in
            bucket[0] = fragment
        return False

    cdef int put(self, MatchResult result, uint64_t hash) except -1:
        """Add the result of a subject that is not cached, and sweep if the cache is then full.

        Raises MemoryError.
        """
        cdef CacheEntry* entry
        self._make_room()
        entry = new_entry(result, hash)
        if entry == NULL:
            raise MemoryError
        if table_add(&self.by_subject, &entry.subject) < 0:
            free_entry(entry)
            raise MemoryError
        entry.place = self.count
        self.entries[self.count] = entry
        self.signatures[self.count] = signature_of(result.subject, result.subject_len)
        self.count += 1
        result.live = True
        if self.count > ENTRIES_MAX:
            self._sweep()
        return 0

    cdef int _make_room(self) except -1:
        """Allocate the arrays on first use, so that an account without traffic has none."""
        if self.entries == NULL:
            self.entries = <CacheEntry**> calloc(ENTRIES_MAX + 1, sizeof(CacheEntry*))
        if self.signatures == NULL:
            self.signatures = <uint64_t*> calloc(ENTRIES_MAX + 1, sizeof(uint64_t))
        if self.door == NULL:
            self.door = <uint32_t*> calloc(DOOR_SIZE, sizeof(uint32_t))
        if self.entries == NULL or self.signatures == NULL or self.door == NULL:
            raise MemoryError
        return 0

    cdef void _sweep(self) noexcept:
        """Drop entries down to ENTRIES_SWEPT_TO, unused and old ones first; keep the newest."""
        cdef uint32_t place
        self._drop_oldest(self.count - ENTRIES_SWEPT_TO, False)
        self._drop_oldest(self.count - ENTRIES_SWEPT_TO, True)
        for place in range(self.count):
            self.entries[place].hit = False

    cdef void _drop_oldest(self, uint32_t excess, bint even_hit) noexcept:
        """Drop the oldest `excess` entries; with `even_hit` False, only those without a hit."""
        cdef uint32_t place
        cdef uint32_t kept = 0
        cdef CacheEntry* entry
        for place in range(self.count):
            entry = self.entries[place]
            if excess > 0 and (even_hit or not entry.hit) and place + 1 < self.count:
                excess -= 1
                self._retire(entry)
                continue
            self.entries[kept] = entry
            self.signatures[kept] = self.signatures[place]
            entry.place = kept
            kept += 1
        self.count = kept

    cdef void _drop(self, CacheEntry* entry) noexcept:
        """Drop one entry; the last entry takes its place."""
        cdef uint32_t last = self.count - 1
        self.entries[entry.place] = self.entries[last]
        self.entries[entry.place].place = entry.place
        self.signatures[entry.place] = self.signatures[last]
        self.count = last
        self._retire(entry)

    cdef void _retire(self, CacheEntry* entry) noexcept:
        """Free an entry that was taken out of `entries`; its result waits for `release`."""
        self._end(result_of(entry))
        table_remove(&self.by_subject, &entry.subject)
        free_entry(entry)

    cdef void _end(self, MatchResult result) noexcept:
        """Mark a result as no longer live, and keep a reference to it until `release`."""
        result.live = False
        result.next_retired = self.retired
        self.retired = <PyObject*> result
        Py_INCREF(result)

    cdef void joined(self, Subscription sub) noexcept:
        """Update the results that must list `sub`, after it was added to the trie."""
        cdef CacheEntry* entry
        cdef Sieve sieve
        cdef uint32_t place
        if self.count == 0:
            return
        if subject_is_literal(sub.text, sub.subject_len):
            entry = self._entry_of(sub)
            if entry != NULL:
                self._extend(entry, sub)
            return
        sieve = sieve_of(sub)
        for place in range(self.count, 0, -1):
            if self.signatures[place - 1] & sieve.mask == sieve.wanted:
                entry = self.entries[place - 1]
                if is_matched(entry, sub):
                    self._extend(entry, sub)

    cdef void left(self, Subscription sub) noexcept:
        """Drop the results that list `sub`, before it is removed from the trie."""
        cdef CacheEntry* entry
        cdef Sieve sieve
        cdef uint32_t place
        if self.count == 0:
            return
        if subject_is_literal(sub.text, sub.subject_len):
            entry = self._entry_of(sub)
            if entry != NULL:
                self._drop(entry)
            return
        sieve = sieve_of(sub)
        for place in range(self.count, 0, -1):
            if self.signatures[place - 1] & sieve.mask == sieve.wanted:
                entry = self.entries[place - 1]
                if is_matched(entry, sub):
                    self._drop(entry)

    cdef inline CacheEntry* _entry_of(self, Subscription sub) noexcept:
        """Return the entry of a literal subscription's subject; NULL: it is not cached."""
        cdef uint64_t hash = hash_name(sub.text, sub.subject_len)
        return <CacheEntry*> table_find(&self.by_subject, hash, sub.text, sub.subject_len)

    cdef void _extend(self, CacheEntry* entry, Subscription sub) noexcept:
        """Replace an entry's result by one that also lists `sub`, or drop the entry."""
        cdef MatchResult old = result_of(entry)
        cdef MatchResult new
        try:
            new = old.extended(sub)
        except MemoryError:
            new = None
        if new is None:
            self._drop(entry)
            return
        self._end(old)
        new.live = True
        Py_INCREF(new)
        entry.result = <PyObject*> new
        Py_DECREF(old)

    cdef void clear(self) noexcept:
        """Drop all entries; their results wait for `release`."""
        while self.count:
            self._drop(self.entries[self.count - 1])

    cdef void release(self) noexcept:
        """Release the results that were replaced or dropped.

        This runs destructors, so it must be the last step of an operation.
        """
        cdef PyObject* first
        while self.retired != NULL:
            first = self.retired
            self.retired = (<MatchResult> first).next_retired
            (<MatchResult> first).next_retired = NULL
            Py_DECREF(<object> first)


cdef inline bint is_matched(CacheEntry* entry, Subscription sub) noexcept:
    """Return whether the subscription receives the entry's subject."""
    return subject_matches(name_of(&entry.subject), entry.subject.length, sub.text, sub.subject_len)


cdef void free_entry(CacheEntry* entry) noexcept:
    """Free an entry and release its result."""
    Py_DECREF(result_of(entry))
    free(entry)
    NATSD_LIVE(live.cache_entries, -1)
