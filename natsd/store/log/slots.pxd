"""Search of the slots of a block, sixteen at a time; a slot has four bytes."""

from libc.stdint cimport uint32_t


cdef extern from *:
    """
    #ifndef NATSD_SLOTS_H
    #define NATSD_SLOTS_H
    #include <stdint.h>

    /* A fixed inner loop without a branch: compilers turn it into vector compares. */
    static inline int natsd_sixteen_have(const uint32_t *slots, uint32_t slot) {
        uint32_t hit = 0;
        for (int each = 0; each < 16; each++) hit |= slots[each] == slot;
        return hit != 0;
    }

    static inline uint32_t natsd_slot_from(
        const uint32_t *slots, uint32_t at, uint32_t end, uint32_t slot
    ) {
        while (at + 16 <= end && !natsd_sixteen_have(slots + at, slot)) at += 16;
        while (at < end && slots[at] != slot) at++;
        return at;
    }

    static inline uint32_t natsd_slot_back(
        const uint32_t *slots, uint32_t begin, uint32_t end, uint32_t slot
    ) {
        while (begin + 16 <= end && !natsd_sixteen_have(slots + end - 16, slot)) end -= 16;
        while (end > begin && slots[end - 1] != slot) end--;
        return end;
    }
    #endif
    """
    # Return the first place in at..end-1 with that slot; `end`: none.
    uint32_t natsd_slot_from(
        const uint32_t* slots, uint32_t at, uint32_t end, uint32_t slot
    ) noexcept nogil
    # Return one more than the last place in begin..end-1 with that slot; `begin`: none.
    uint32_t natsd_slot_back(
        const uint32_t* slots, uint32_t begin, uint32_t end, uint32_t slot
    ) noexcept nogil
