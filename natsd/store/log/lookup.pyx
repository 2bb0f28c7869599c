"""Lookups in a log: the first or the last message of a subject, the next one that a filter matches.

    of one subject              find_slot, find_slot_back, exact_first, exact_last
    all that a filter matches   next_match

Promise
- A lookup that needs a block which is not in memory answers NEEDS_BLOCK, with the block in the
  log's `wanted`; the caller loads it and asks again.
- `next_match` makes a Python object only when it collects the few subjects that a filter matches,
  which is rare. It works for some 100 us at most: then it answers PENDING, and the log's
  `resume_at` says where to continue.
- Blocks without any of the wanted slots are skipped.

search.pyx has the searches that take longer, in slices.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.block.blocks cimport (
    COLD, FOUND, Found, MsgBlock, OFFSET_MASK, index_seek, index_sequence,
)
from natsd.store.codec.records cimport RecordView
from natsd.store.log.slots cimport natsd_slot_back, natsd_slot_from
from natsd.store.log.subjects cimport (
    FEW_SLOTS, Filter, Matches, SlotMarks, Subject, is_exact, sequence_in,
)

cdef enum:
    LINEAR_MAX = 4_096          # messages looked at before the subject index is searched
    LINEAR_MIN = 64             # the same, if the matching subjects are known to be few
    NARROWED_PATTERNS_MAX = 1024    # patterns of a filter that are followed to collect its slots
    LOOKS_MAX = 32_768          # looks in one call of `next_match`; these cost some too:
    VERDICT_LOOKS = 32          # looks that a subject without a verdict costs
    BLOCK_LOOKS = 16            # looks that a skipped block costs


cdef inline bint is_live(uint32_t offset) noexcept nogil:
    return 0 < offset <= OFFSET_MASK


cdef Outcome find_slot(
    MessageLog log, uint32_t slot, uint64_t sequence, uint64_t upto, uint64_t* found
) except? NEEDS_BLOCK:
    """Find the first live message of that slot in sequence..upto."""
    cdef uint32_t at, place, end
    cdef MsgBlock block
    sequence = max(sequence, log.edges.first)
    upto = min(upto, log.edges.last)
    if sequence > upto or log.blocks.count == 0:
        return GONE
    for at in range(log.blocks.place_of(sequence), log.blocks.count):
        if log.blocks.bases[at] > upto:
            break
        if not log.blocks.may_have(at, slot):
            continue
        block = log.blocks.at(at)
        if not block.has_arrays:
            log.wanted = block
            return NEEDS_BLOCK
        place = <uint32_t> index_seek(&block.index, sequence)
        end = block.index.count
        while True:
            place = natsd_slot_from(block.index.slots, place, end, slot)
            if place == end:
                break
            if is_live(block.index.offsets[place]):
                found[0] = index_sequence(&block.index, place)
                return DONE if found[0] <= upto else GONE
            place += 1
    return GONE


cdef Outcome find_slot_back(
    MessageLog log, uint32_t slot, uint64_t sequence, uint64_t downto, uint64_t* found
) except? NEEDS_BLOCK:
    """Find the last live message of that slot in downto..sequence."""
    cdef uint32_t end, at
    cdef MsgBlock block
    sequence = min(sequence, log.edges.last)
    downto = max(downto, log.edges.first)
    if sequence < downto or log.blocks.count == 0:
        return GONE
    at = log.blocks.place_of(sequence) + 1
    while at > 0:
        at -= 1
        if not log.blocks.may_have(at, slot):
            if log.blocks.bases[at] <= downto:
                break
            continue
        block = log.blocks.at(at)
        if not block.has_arrays:
            log.wanted = block
            return NEEDS_BLOCK
        end = <uint32_t> index_seek(&block.index, sequence + 1)
        while True:
            end = natsd_slot_back(block.index.slots, 0, end, slot)
            if end == 0:
                break
            end -= 1
            if is_live(block.index.offsets[end]):
                found[0] = index_sequence(&block.index, end)
                return DONE if found[0] >= downto else GONE
        if log.blocks.bases[at] <= downto:
            break
    return GONE


cdef Outcome exact_first(MessageLog log, int64_t slot, uint64_t* found) except? NEEDS_BLOCK:
    """Find the first message of a subject that has messages."""
    cdef Subject* record = log.subjects.record(slot)
    cdef Outcome outcome
    found[0] = record.first
    if is_exact(record.first):
        return DONE
    outcome = find_slot(
        log, <uint32_t> slot, sequence_in(record.first), sequence_in(record.last), found
    )
    if outcome == DONE:
        log.subjects.set_first(slot, found[0])
    return outcome


cdef Outcome exact_last(MessageLog log, int64_t slot, uint64_t* found) except? NEEDS_BLOCK:
    """Find the last message of a subject that has messages."""
    cdef Subject* record = log.subjects.record(slot)
    cdef Outcome outcome
    found[0] = record.last
    if is_exact(record.last):
        return DONE
    outcome = find_slot_back(
        log, <uint32_t> slot, sequence_in(record.last), sequence_in(record.first), found
    )
    if outcome == DONE:
        log.subjects.set_last(slot, found[0])
    return outcome


cdef Outcome next_match(
    MessageLog log, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
) except? NEEDS_BLOCK:
    cdef Outcome outcome
    cdef SlotMarks few
    sequence = log.resume_at = max(sequence, log.edges.first)
    upto = min(upto, log.edges.last)
    if sequence > upto or log.blocks.count == 0:
        return GONE
    if wanted.is_everything:
        return DONE if log.next_live(sequence, found) and found[0] <= upto else GONE
    if wanted.is_literal:
        return next_of_subject(log, wanted, sequence, upto, found)
    few = few_slots(log, wanted)
    outcome = look_at_all(
        log, wanted, None, sequence, upto, LINEAR_MAX if few is None else LINEAR_MIN, found
    )
    if outcome != PENDING:
        return outcome
    if few is None:
        few = collect_slots(log, wanted)
    if few is not None and not narrow_range(log, few, &log.resume_at, &upto):
        return GONE
    return look_at_all(log, wanted, few, log.resume_at, upto, LOOKS_MAX, found)


cdef Outcome next_of_subject(
    MessageLog log, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
) except? NEEDS_BLOCK:
    """Find the next message of the filter's only subject, between the bounds in its record."""
    cdef int64_t slot = log.subjects.find(wanted.each.text, wanted.each.length)
    cdef Subject* record
    if slot < 0 or log.subjects.record(slot).count == 0:
        return GONE
    record = log.subjects.record(slot)
    if is_exact(record.first) and record.first >= sequence:
        found[0] = record.first
        return DONE if record.first <= upto else GONE
    return find_slot(
        log, <uint32_t> slot, max(sequence, sequence_in(record.first)),
        min(upto, sequence_in(record.last)), found,
    )


cdef Outcome look_at_all(
    MessageLog log, Filter wanted, SlotMarks few, uint64_t sequence, uint64_t upto, int64_t looks,
    uint64_t* found,
) except? NEEDS_BLOCK:
    """Look at message after message until one matches.

    A message matches if its slot is in `few`, or, if that is None, if the filter matches its
    subject. PENDING: `looks` are used up.
    """
    cdef MsgBlock block
    cdef uint32_t at = log.blocks.place_of(sequence)
    cdef Outcome outcome
    while at < log.blocks.count and log.blocks.bases[at] <= upto:
        log.resume_at = max(sequence, log.blocks.bases[at])
        if looks <= 0:
            return PENDING
        looks -= BLOCK_LOOKS
        if few is None or log.blocks.may_have_any(at, few):
            block = log.blocks.at(at)
            if not block.has_arrays:
                log.wanted = block
                return NEEDS_BLOCK
            outcome = look_into(log, block, wanted, few, upto, &looks, found)
            if outcome != GONE:
                return outcome
        at += 1
    return GONE


cdef Outcome look_into(
    MessageLog log, MsgBlock block, Filter wanted, SlotMarks few, uint64_t upto, int64_t* looks,
    uint64_t* found,
) except? NEEDS_BLOCK:
    """Look at one block's messages from `resume_at` on; GONE: none up to `upto` matches."""
    cdef uint32_t place = <uint32_t> index_seek(&block.index, log.resume_at)
    cdef uint32_t end = <uint32_t> index_seek(&block.index, upto + 1)
    cdef int verdict
    while place < end:
        if looks[0] <= 0:
            log.resume_at = index_sequence(&block.index, place)
            return PENDING
        looks[0] -= 1
        if is_live(block.index.offsets[place]):
            if few is not None:
                verdict = few.has(block.index.slots[place])
            else:
                verdict = wanted.known(log.subjects, block.index.slots[place])
                if verdict < 0:
                    looks[0] -= VERDICT_LOOKS
                    verdict = ask_filter(log, block, wanted, place)
                    if verdict < 0:
                        return NEEDS_BLOCK
            if verdict:
                found[0] = index_sequence(&block.index, place)
                return DONE
        place += 1
    return GONE


cdef int ask_filter(MessageLog log, MsgBlock block, Filter wanted, uint32_t place) except? -1:
    """Return the filter's verdict on a new subject; -1: the subject's name is not in memory."""
    cdef uint64_t sequence = index_sequence(&block.index, place)
    cdef uint32_t slot = block.index.slots[place]
    cdef RecordView view
    cdef bint verdict
    cdef Found answer = block.view(sequence, &view)
    if answer == COLD:
        log.wanted = block
        log.resume_at = sequence
        return -1
    if answer != FOUND:
        return 0
    verdict = wanted.matches(view.subject, view.subject_len)
    wanted.learn(log.subjects, slot, verdict)
    return verdict


cdef SlotMarks few_slots(MessageLog log, Filter wanted):
    """Return the slots that the filter matches, if they are known and few; else None."""
    if wanted.arrivals != log.subjects.arrivals:
        return None
    return wanted.few


cdef SlotMarks collect_slots(MessageLog log, Filter wanted):
    """Collect the slots that the filter matches; None: the slots or the patterns are many.

    The result is valid until a subject gets its first message.
    """
    cdef SlotMarks few = SlotMarks()
    cdef Matches matches
    cdef int64_t slot = 0
    cdef bint is_all = False
    if wanted.arrivals == log.subjects.arrivals:
        return wanted.few
    matches = Matches(log.subjects, wanted)
    try:
        while few.marked < FEW_SLOTS and matches.pattern <= NARROWED_PATTERNS_MAX:
            slot = matches.next()
            if slot >= 0:
                few.mark(<uint32_t> slot)
            elif matches.pattern == wanted.count:
                is_all = True
                break
    finally:
        matches.pause()
    wanted.few = few if is_all else None
    wanted.arrivals = log.subjects.arrivals
    return wanted.few


cdef bint narrow_range(MessageLog log, SlotMarks few, uint64_t* sequence, uint64_t* upto) noexcept:
    """Narrow a range to where those slots can have messages; return whether any is left."""
    cdef uint64_t low = ~<uint64_t> 0, high = 0
    cdef uint32_t at
    cdef Subject* record
    for at in range(few.marked):
        record = log.subjects.record(few.few[at])
        if record.count and sequence_in(record.last) >= sequence[0]:
            low = min(low, sequence_in(record.first))
            high = max(high, sequence_in(record.last))
    sequence[0] = max(sequence[0], low)
    upto[0] = min(upto[0], high)
    return sequence[0] <= upto[0]
