"""The results of recent matches, by published subject: at most 1,024, swept to 256.

- **In**: below half of the maximum every subject comes in. Above it there is a door, which
  remembers fragments of the last subjects turned away, one per bucket, and opens for one in eight
  of those it sees again. So unique reply subjects fill half of the cache once and displace nothing;
  and where there are ten times more subjects than entries, they do not spend their time throwing
  each other out.
- **Out**: a sweep drops entries that nobody asked for again, then any others, down to 256. What
  stays has to be asked for again before the next sweep.
- **Join**: an entry's result is replaced by one that also lists the newcomer. An exact subject is
  looked up; a wildcard goes through all entries by *signature*, 8 bytes each in one array, and only
  where the first two tokens can match are the subjects compared.
- **Leave**: the entries concerned are dropped: what remains is asked from the trie, once, if ever.
- Subjects nobody is interested in are cached like others; a newcomer joins them too.

A result that is replaced or dropped ceases to be `live`, and is released only in `release`, which
the SubList calls last: destructors may call back into it.

Seed: 000 (Cache Strategy).
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from natsd.core.match_result cimport MatchResult
from natsd.core.name_table cimport Named, hash_name, name_of, table_add, table_find, table_remove
from natsd.core.subject cimport (
    TokenCursor, is_star, is_tail, next_token, subject_is_literal, subject_matches, tokens_of,
)
from natsd.core.subscription cimport NATSD_LIVE, Subscription, live

cdef uint64_t SECOND_HALF = <uint32_t> -1
cdef uint64_t FIRST_HALF = ~SECOND_HALF

cdef struct Sieve:              # which signatures a wildcard subject can match
    uint64_t mask
    uint64_t wanted


cdef uint64_t signature_of(const char* subject, Py_ssize_t length) noexcept nogil:
    cdef TokenCursor cursor = tokens_of(subject, length)
    cdef uint64_t signature = 0
    if next_token(&cursor):
        signature = hash_name(cursor.token, cursor.length) << 32
    if next_token(&cursor):
        signature |= <uint32_t> hash_name(cursor.token, cursor.length)
    return signature


cdef Sieve sieve_of(Subscription sub) noexcept:
    cdef TokenCursor cursor = tokens_of(sub.text, sub.subject_len)
    cdef Sieve sieve = Sieve(0, signature_of(sub.text, sub.subject_len))
    if next_token(&cursor) and not is_wild(&cursor):
        sieve.mask |= FIRST_HALF
    if next_token(&cursor) and not is_wild(&cursor):
        sieve.mask |= SECOND_HALF
    sieve.wanted &= sieve.mask
    return sieve


cdef inline bint is_wild(TokenCursor* cursor) noexcept nogil:
    return is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length)


cdef CacheEntry* new_entry(MatchResult result, uint64_t hash) noexcept:
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

    def __dealloc__(self):
        self.clear()
        self.release()
        free(self.entries)
        free(self.signatures)
        free(self.door)

    cdef bint admits(self, uint64_t hash) noexcept:
        cdef uint32_t* bucket
        cdef uint32_t fragment = <uint32_t> (hash >> 32)
        if self.count < ENTRIES_MAX // 2:
            return True
        bucket = &self.door[hash % DOOR_SIZE]
        self.knocks = self.knocks * 1664525 + 1013904223
        if bucket[0] == fragment:
            return (self.knocks >> 16) % DOOR_OPENS == 0
        if self.knocks >> 31:       # or else two that alternate would never get in
            bucket[0] = fragment
        return False

    cdef int put(self, MatchResult result, uint64_t hash) except -1:
        """Take in the result of a subject that is not here. Sweeps when full."""
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
        """An account without traffic keeps no cache."""
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
        """Down to ENTRIES_SWEPT_TO: what nobody asked for first, oldest first; the latest stays."""
        cdef uint32_t place
        self._drop_oldest(self.count - ENTRIES_SWEPT_TO, False)
        self._drop_oldest(self.count - ENTRIES_SWEPT_TO, True)
        for place in range(self.count):
            self.entries[place].hit = False

    cdef void _drop_oldest(self, uint32_t excess, bint even_hit) noexcept:
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
        cdef uint32_t last = self.count - 1
        self.entries[entry.place] = self.entries[last]
        self.entries[entry.place].place = entry.place
        self.signatures[entry.place] = self.signatures[last]
        self.count = last
        self._retire(entry)

    cdef void _retire(self, CacheEntry* entry) noexcept:
        """Forget an entry that stands in `entries` no longer; its result waits for `release`."""
        self._end(result_of(entry))
        table_remove(&self.by_subject, &entry.subject)
        free_entry(entry)

    cdef void _end(self, MatchResult result) noexcept:
        result.live = False
        result.next_retired = self.retired
        self.retired = <PyObject*> result
        Py_INCREF(result)

    cdef void joined(self, Subscription sub) noexcept:
        """`sub` is in the trie now: bring the results that must list it up to date."""
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
        """`sub` leaves the trie: drop the results that list it."""
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
        cdef uint64_t hash = hash_name(sub.text, sub.subject_len)
        return <CacheEntry*> table_find(&self.by_subject, hash, sub.text, sub.subject_len)

    cdef void _extend(self, CacheEntry* entry, Subscription sub) noexcept:
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
        while self.count:
            self._drop(self.entries[self.count - 1])

    cdef void release(self) noexcept:
        """Let go of what was replaced or dropped. Runs destructors: only as the last step of an
        operation."""
        cdef PyObject* first
        while self.retired != NULL:
            first = self.retired
            self.retired = (<MatchResult> first).next_retired
            (<MatchResult> first).next_retired = NULL
            Py_DECREF(<object> first)


cdef inline bint is_matched(CacheEntry* entry, Subscription sub) noexcept:
    return subject_matches(name_of(&entry.subject), entry.subject.length, sub.text, sub.subject_len)


cdef void free_entry(CacheEntry* entry) noexcept:
    Py_DECREF(result_of(entry))
    free(entry)
    NATSD_LIVE(live.cache_entries, -1)
