/* Large buffers: how the memory of blocks is asked for and given back. */
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

/* Have large pages for a large buffer that will be used again and again, if the kernel has them. */
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

/* Have the pages of a buffer that will be filled soon in one call: a fault for each costs more.
   At most a mebibyte of them, so that nobody waits for it. Where it cannot be, they come by faults. */
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

/* Give back the whole pages of what is read no more of a large buffer, which then takes less time to
   free: a few at a time, rather than tens of thousands at once. */
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
