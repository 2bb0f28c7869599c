/* Zeroed memory for segments. Pages of a large segment are allocated as they are touched, as huge
 * pages where the system has them: lookups touch all of a large trie, and so its page table. */
#ifndef NATSD_TRIE_SEGMENTS_H
#define NATSD_TRIE_SEGMENTS_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SEGMENT_MAPPED_BYTES ((size_t)1 << 20)  /* from this size on mapped, else from the heap */
#define SEGMENT_HUGE_BYTES ((size_t)4 << 20)    /* from this size on in huge pages */

static inline void *segment_take(size_t size) {
    if (size < SEGMENT_MAPPED_BYTES)
        return calloc(1, size);
    void *segment = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (segment == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (size >= SEGMENT_HUGE_BYTES)
        (void)madvise(segment, size, MADV_HUGEPAGE);
#endif
    return segment;
}

static inline void segment_give(void *segment, size_t size) {
    if (size < SEGMENT_MAPPED_BYTES)
        free(segment);
    else
        munmap(segment, size);
}

#endif
