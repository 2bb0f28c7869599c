"""Operations on the runs and bits of one page, which sequence_page.pxd draws."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    WORDS = PAGE_SIZE >> 6
    CAPACITY_FIRST = 6          # 32 bytes with the Page head


cdef extern from *:
    """
    #define natsd_ones(word) ((uint32_t)__builtin_popcountll(word))
    #define natsd_lowest(word) ((uint32_t)__builtin_ctzll(word))
    #define natsd_highest(word) ((uint32_t)(63 - __builtin_clzll(word)))
    """
    uint32_t natsd_ones(uint64_t word) noexcept nogil
    uint32_t natsd_lowest(uint64_t word) noexcept nogil
    uint32_t natsd_highest(uint64_t word) noexcept nogil


cdef inline Run* runs_of(const Entry* entry, uint32_t* count) noexcept nogil:
    if kind_of(entry) == RUNS:
        count[0] = entry.body.page.count
        return <Run*> (entry.body.page + 1)
    count[0] = kind_of(entry)
    return <Run*> entry.body.runs


cdef inline uint64_t* words_of(const Entry* entry) noexcept nogil:
    return <uint64_t*> (entry.body.page + 1)


cdef inline void set_kind(Entry* entry, uint32_t kind) noexcept nogil:
    entry.key = (entry.key & ~<uint64_t> 0xffff) | kind


cdef inline uint32_t length_of(Run run) noexcept nogil:
    return <uint32_t> run.last - run.first + 1


cdef inline uint32_t first_ending_from(
    const Run* runs, uint32_t count, uint32_t place
) noexcept nogil:
    """Return the index of the first run whose `last` is >= place; `count`: none."""
    cdef uint32_t low = 0, middle
    while low < count:
        middle = (low + count) >> 1
        if runs[middle].last < place:
            low = middle + 1
        else:
            count = middle
    return low


cdef inline uint64_t mask_between(uint32_t first, uint32_t last) noexcept nogil:
    """Return a word with the bits first..last set."""
    return (~<uint64_t> 0 >> (63 - (last - first))) << first


# Reading

cdef uint32_t page_size(const Entry* entry) noexcept nogil:
    cdef uint32_t kind = kind_of(entry)
    if kind >= RUNS:
        return entry.body.page.size
    if kind == ONE:
        return length_of(entry.body.runs[0])
    return length_of(entry.body.runs[0]) + length_of(entry.body.runs[1])


cdef bint page_contains(const Entry* entry, uint32_t place) noexcept nogil:
    cdef uint32_t count, at
    cdef Run* runs
    if kind_of(entry) == BITMAP:
        return (words_of(entry)[place >> 6] >> (place & 63)) & 1
    runs = runs_of(entry, &count)
    at = first_ending_from(runs, count, place)
    return at < count and runs[at].first <= place


cdef inline uint32_t next_bit(const uint64_t* words, uint32_t place, uint64_t flip) noexcept nogil:
    """Return the first set bit >= place after each word is xored with `flip`; PAGE_SIZE: none."""
    cdef uint32_t at = place >> 6
    cdef uint64_t word
    if place >= PAGE_SIZE:
        return PAGE_SIZE
    word = (words[at] ^ flip) & (~<uint64_t> 0 << (place & 63))
    while word == 0:
        at += 1
        if at == WORDS:
            return PAGE_SIZE
        word = words[at] ^ flip
    return (at << 6) + natsd_lowest(word)


cdef uint32_t page_next_present(const Entry* entry, uint32_t place) noexcept nogil:
    cdef uint32_t count, at
    cdef Run* runs
    if kind_of(entry) == BITMAP:
        return next_bit(words_of(entry), place, 0)
    runs = runs_of(entry, &count)
    at = first_ending_from(runs, count, place)
    if at == count:
        return PAGE_SIZE
    return runs[at].first if runs[at].first > place else place


cdef uint32_t page_next_absent(const Entry* entry, uint32_t place) noexcept nogil:
    cdef uint32_t count, at
    cdef Run* runs
    if kind_of(entry) == BITMAP:
        return next_bit(words_of(entry), place, ~<uint64_t> 0)
    runs = runs_of(entry, &count)
    at = first_ending_from(runs, count, place)
    if at == count or runs[at].first > place:
        return place
    return <uint32_t> runs[at].last + 1


cdef uint32_t page_absent_before(const Entry* entry, uint32_t place) noexcept nogil:
    cdef uint32_t count, at
    cdef uint64_t word
    cdef uint64_t* words
    cdef Run* runs
    if kind_of(entry) == BITMAP:
        words = words_of(entry)
        at = place >> 6
        word = ~words[at] & mask_between(0, place & 63)
        while word == 0:
            if at == 0:
                return 0
            at -= 1
            word = ~words[at]
        return (at << 6) + natsd_highest(word) + 1
    runs = runs_of(entry, &count)
    at = first_ending_from(runs, count, place)
    return place + 1 if at == count or runs[at].first > place else runs[at].first


cdef uint32_t page_rank(const Entry* entry, uint32_t through) noexcept nogil:
    """Return how many of the places 0..through are present."""
    cdef uint32_t count, at, found = 0
    cdef Run* runs
    cdef uint64_t* words
    if kind_of(entry) == BITMAP:
        words = words_of(entry)
        for at in range(through >> 6):
            found += natsd_ones(words[at])
        return found + natsd_ones(words[through >> 6] & mask_between(0, through & 63))
    runs = runs_of(entry, &count)
    for at in range(count):
        if runs[at].first > through:
            break
        found += min(<uint32_t> runs[at].last, through) - runs[at].first + 1
    return found


# Runs

cdef int make_room(Entry* entry, uint32_t count) noexcept nogil:
    """Make room for `count` runs, on the heap if necessary; return 0, or -1: out of memory."""
    cdef uint32_t kind = kind_of(entry), capacity = CAPACITY_FIRST
    cdef Page* page
    if count <= 2 and kind <= TWO or kind == RUNS and count <= entry.body.page.capacity:
        return 0
    while capacity < count:
        capacity *= 2
    page = <Page*> realloc(
        entry.body.page if kind == RUNS else NULL, sizeof(Page) + capacity * sizeof(Run)
    )
    if page == NULL:
        return -1
    if kind != RUNS:
        page.size = page_size(entry)
        page.count = kind
        memcpy(page + 1, entry.body.runs, sizeof(entry.body.runs))
        set_kind(entry, RUNS)
    page.capacity = capacity
    entry.body.page = page
    return 0


cdef int to_bitmap(Entry* entry) noexcept nogil:
    cdef uint32_t count, at
    cdef Run* runs = runs_of(entry, &count)
    cdef Page* old = entry.body.page if kind_of(entry) == RUNS else NULL
    cdef Entry made
    made.body.page = <Page*> calloc(1, sizeof(Page) + (PAGE_SIZE >> 3))
    if made.body.page == NULL:
        return -1
    for at in range(count):
        set_bits(&made, runs[at].first, runs[at].last)
    free(old)
    entry.body = made.body
    set_kind(entry, BITMAP)
    return 0


cdef void put_runs(
    Entry* entry, uint32_t at, uint32_t upto, const Run* replacement, uint32_t added
) noexcept nogil:
    """Replace the runs at..upto-1 by `added` others.

    There must be room; the caller updates `size`.
    """
    cdef uint32_t count
    cdef Run* runs = runs_of(entry, &count)
    memmove(&runs[at + added], &runs[upto], (count - upto) * sizeof(Run))
    memcpy(&runs[at], replacement, added * sizeof(Run))
    count = count + added - (upto - at)
    if kind_of(entry) == RUNS:
        entry.body.page.count = count
    else:
        set_kind(entry, count)


cdef int add_run(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    cdef uint32_t count, at, upto
    cdef int added
    cdef Run joined
    cdef Run* runs = runs_of(entry, &count)
    at = first_ending_from(runs, count, first - 1 if first > 0 else 0)
    upto = at
    joined = Run(first=first, last=last)
    added = last - first + 1
    while upto < count and runs[upto].first <= last + 1:
        added -= length_of(runs[upto])
        joined.first = min(joined.first, runs[upto].first)
        joined.last = max(joined.last, runs[upto].last)
        upto += 1
    added += length_of(joined) - (last - first + 1)
    if upto == at and make_room(entry, count + 1) < 0:
        return -1
    put_runs(entry, at, upto, &joined, 1)
    if kind_of(entry) == RUNS:
        entry.body.page.size += added
    return added


cdef int discard_run(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    cdef uint32_t count, at, upto, kept = 0
    cdef int removed = 0
    cdef Run rest[2]
    cdef Run* runs = runs_of(entry, &count)
    at = upto = first_ending_from(runs, count, first)
    while upto < count and runs[upto].first <= last:
        removed += min(<uint32_t> runs[upto].last, last) + 1
        removed -= max(<uint32_t> runs[upto].first, first)
        upto += 1
    if upto == at:
        return 0
    if runs[at].first < first:
        rest[kept] = Run(first=runs[at].first, last=first - 1)
        kept += 1
    if runs[upto - 1].last > last:
        rest[kept] = Run(first=last + 1, last=runs[upto - 1].last)
        kept += 1
    if kept > upto - at and make_room(entry, count + 1) < 0:
        return -1
    put_runs(entry, at, upto, rest, kept)
    if kind_of(entry) == RUNS:
        entry.body.page.size -= removed
    return removed


# Bits

cdef int set_bits(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    cdef uint64_t* words = words_of(entry)
    cdef uint32_t at
    cdef uint64_t mask
    cdef int added = 0
    for at in range(first >> 6, (last >> 6) + 1):
        mask = mask_between(first & 63 if at == first >> 6 else 0,
                            last & 63 if at == last >> 6 else 63)
        added += natsd_ones(mask & ~words[at])
        words[at] |= mask
    entry.body.page.size += added
    return added


cdef int clear_bits(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    cdef uint64_t* words = words_of(entry)
    cdef uint32_t at
    cdef uint64_t mask
    cdef int removed = 0
    for at in range(first >> 6, (last >> 6) + 1):
        mask = mask_between(first & 63 if at == first >> 6 else 0,
                            last & 63 if at == last >> 6 else 63)
        removed += natsd_ones(mask & words[at])
        words[at] &= ~mask
    entry.body.page.size -= removed
    return removed


# Changing

cdef inline bint is_crowded(const Entry* entry) noexcept nogil:
    return kind_of(entry) == RUNS and entry.body.page.count == RUNS_MAX


cdef int page_add(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    assert first <= last < PAGE_SIZE and kind_of(entry) != FULL
    if is_crowded(entry) and to_bitmap(entry) < 0:
        return -1
    return set_bits(entry, first, last) if kind_of(entry) == BITMAP else add_run(entry, first, last)


cdef int page_discard(Entry* entry, uint32_t first, uint32_t last) noexcept nogil:
    assert first <= last < PAGE_SIZE and kind_of(entry) != FULL
    if is_crowded(entry) and to_bitmap(entry) < 0:
        return -1
    if kind_of(entry) == BITMAP:
        return clear_bits(entry, first, last)
    return discard_run(entry, first, last)


cdef int page_copy(Entry* to, const Entry* entry) noexcept nogil:
    cdef size_t size = page_bytes(entry)
    to[0] = entry[0]
    if size == 0:
        return 0
    to.body.page = <Page*> malloc(size)
    if to.body.page == NULL:
        return -1
    memcpy(to.body.page, entry.body.page, size)
    return 0


cdef int page_copy_as_bits(Entry* to, const Entry* entry) noexcept nogil:
    if page_copy(to, entry) < 0:
        return -1
    if kind_of(to) != BITMAP and to_bitmap(to) < 0:
        page_free(to)
        return -1
    return 0


cdef void page_free(Entry* entry) noexcept nogil:
    if kind_of(entry) >= RUNS:
        free(entry.body.page)


cdef size_t page_bytes(const Entry* entry) noexcept nogil:
    """Return the bytes that the entry holds on the heap."""
    if kind_of(entry) == RUNS:
        return sizeof(Page) + <size_t> entry.body.page.capacity * sizeof(Run)
    return sizeof(Page) + (PAGE_SIZE >> 3) if kind_of(entry) == BITMAP else 0
