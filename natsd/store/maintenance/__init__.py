"""Work on stored data: caching, compaction, encryption of a plain store, check and repair."""
