"""The subject mappings of an account: from the subject of a publish to the subject it is routed by.

    orders.*   80 %  ─▶  v1.orders.$1          one mapping: a source, and weighted destinations
               20 %  ─▶  v2.orders.$1

Promise
- A source without wildcards that equals the subject decides; otherwise the first source with
  wildcards that matches. There is no second mapping of the result.
- Weights below 100 in all leave a rest: those messages keep their subject, or are lost if the
  source is among its own destinations (loss on purpose, for tests).
- What a subject is mapped to is remembered, unless weights or `{{random()}}` decide. So a publisher
  that repeats its subjects pays a hash and two comparisons.

Source: ADR-30; nats-server's `selectMappedSubject` (server/accounts.go), which asks the sources in
their order without preferring exact ones.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp


cdef class SubjectMemo:
    """What recent subjects are mapped to: one entry for each of REMEMBERED hash values."""

    def __cinit__(self):
        self.subjects = [None] * REMEMBERED
        self.results = [None] * REMEMBERED

    cdef bytes find(self, const char* subject, Py_ssize_t length, uint64_t hash):
        """Return the result for a subject; None: it is not remembered."""
        cdef Py_ssize_t at = <Py_ssize_t> (hash & (REMEMBERED - 1))
        cdef bytes known = <bytes> self.subjects[at]
        if (
            known is None or PyBytes_GET_SIZE(known) != length
            or memcmp(PyBytes_AS_STRING(known), subject, length) != 0
        ):
            return None
        return <bytes> self.results[at]

    cdef int keep(self, bytes subject, uint64_t hash, bytes result) except -1:
        """Remember a result in place of that of another subject."""
        cdef Py_ssize_t at = <Py_ssize_t> (hash & (REMEMBERED - 1))
        self.subjects[at] = subject
        self.results[at] = result
        return 0


cdef class WeightedDestinations:
    """One mapping: a source and its destinations."""

    def __init__(self, str source not None, list destinations not None):
        """`destinations` are pairs of a destination, None for the subject itself, and a weight.

        The weights are at most 100 together; if they are less, the rest of the messages is lost.
        Raises InvalidMapping.
        """
        cdef SubjectTransform transform
        ceiling = 0
        self.source = wire_bytes(source)
        self.transforms = []
        self.ceilings = []
        self.is_fixed = len(destinations) == 0 or destinations[0][1] == 100
        for destination, weight in destinations:
            transform = None if destination is None else SubjectTransform(source, destination)
            if transform is not None and transform.is_random:
                self.is_fixed = False
            ceiling += weight
            self.transforms.append(transform)
            self.ceilings.append(ceiling)
        if ceiling > 100:
            raise ValueError("total weight needs to be <= 100")

    cdef bytes map(self, bytes subject, uint32_t draw):
        """Return what a subject that the source matches is mapped to; empty: it is lost."""
        cdef SubjectTransform transform
        cdef const char* out = NULL
        cdef Py_ssize_t length = 0
        cdef Py_ssize_t at
        for at in range(len(self.ceilings)):
            if draw < <uint32_t> self.ceilings[at]:
                transform = self.transforms[at]
                if transform is None:
                    return subject
                if transform.apply(
                    PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), &out, &length
                ):
                    return out[:length]
                return transform.map_words(subject) or subject
        return b""


cdef class SubjectMappings:
    """The mappings of one account."""

    def __init__(self, list mappings not None):
        cdef WeightedDestinations mapping
        import secrets    # few accounts have mappings

        self.mappings = mappings
        self.exact = {}
        self.wild = []
        self.memo = SubjectMemo()
        self.random_state = secrets.randbits(63) | 1
        for mapping in mappings:
            if subject_is_literal(mapping.source, len(mapping.source)):
                self.exact[mapping.source] = mapping
            else:
                self.wild.append(mapping)

    cdef bytes map(self, const char* subject, Py_ssize_t length):
        """Return what a subject is mapped to (see subject_mappings.pxd)."""
        cdef uint64_t hash = hash_name(subject, length)
        cdef bytes result = self.memo.find(subject, length, hash)
        cdef bytes name
        cdef WeightedDestinations mapping
        if result is None:
            name = subject[:length]
            mapping = self.find(name)
            result = name if mapping is None else mapping.map(name, self.draw())
            if mapping is None or mapping.is_fixed:
                self.memo.keep(name, hash, result)
        if PyBytes_GET_SIZE(result) == length and (
            memcmp(PyBytes_AS_STRING(result), subject, length) == 0
        ):
            return None
        return result

    cdef WeightedDestinations find(self, bytes subject):
        """Return the mapping that decides over a subject; None: there is none."""
        cdef WeightedDestinations mapping = self.exact.get(subject)
        if mapping is not None:
            return mapping
        for mapping in self.wild:
            if subject_matches(
                subject, len(subject), mapping.source, len(mapping.source)
            ):
                return mapping
        return None

    cdef uint32_t draw(self) noexcept:
        """Return a random number from 0 to 99."""
        cdef uint64_t state = self.random_state
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        self.random_state = state
        return <uint32_t> ((state >> 33) % 100)

    def mapped(self, subject) -> str | None:
        """Return what a subject is mapped to; None: itself; empty: the message is lost."""
        cdef bytes name = wire_bytes(subject)
        cdef bytes result = self.map(name, len(name))
        return None if result is None else wire_text(result, len(result))
