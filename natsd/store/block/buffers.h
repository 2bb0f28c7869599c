/* Large buffers: how the store allocates and returns the memory of blocks. */
#ifndef NATSD_BUFFERS_H
#define NATSD_BUFFERS_H

#include <stddef.h>
#include <stdint.h>
#ifdef __linux__
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#endif

#define NATSD_LARGE_BYTES (1 << 20)
#define NATSD_PAGE_BYTES 4096

/* Ask the kernel to back a large buffer that is used again and again with huge pages.
   Does nothing below NATSD_LARGE_BYTES, or where the kernel has no huge pages. */
static inline void natsd_prefer_huge_pages(unsigned char* data, size_t size) {
#ifdef MADV_HUGEPAGE
    uintptr_t start = ((uintptr_t)data + NATSD_PAGE_BYTES - 1) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    if (size >= NATSD_LARGE_BYTES) madvise((void*)start, end - start, MADV_HUGEPAGE);
#else
    (void)data;
    (void)size;
#endif
}

/* Fault in the pages of a buffer that will be filled soon, in one call: a page fault for each page
   costs more. At most the first NATSD_LARGE_BYTES (1 MiB) are populated, so that the call stays
   short. Where the kernel cannot do it, the pages come by page faults as usual. */
static inline void natsd_populate(unsigned char* data, size_t size) {
#ifdef __linux__
    uintptr_t start = ((uintptr_t)data + NATSD_PAGE_BYTES - 1) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    if (end > start + NATSD_LARGE_BYTES) end = start + NATSD_LARGE_BYTES;
    if (end > start) madvise((void*)start, end - start, MADV_POPULATE_WRITE);
#else
    (void)data;
    (void)size;
#endif
}

/* Return the whole pages of a part of a large buffer that is not read any more to the kernel.
   Freeing the buffer then takes less time: its pages go a few at a time instead of tens of
   thousands at once. */
static inline void natsd_give_back_pages(char* data, size_t size) {
#ifdef __linux__
    uintptr_t start = ((uintptr_t)data + NATSD_PAGE_BYTES - 1) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(uintptr_t)(NATSD_PAGE_BYTES - 1);
    if (end > start) madvise((void*)start, end - start, MADV_DONTNEED);
#else
    (void)data;
    (void)size;
#endif
}

#endif
