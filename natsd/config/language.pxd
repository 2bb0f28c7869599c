cimport cython


@cython.final
@cython.no_gc  # as cheap as can be: a file may have a hundred thousand
cdef class Key(str):
    cdef public object source      # Source of the text in which the key stands
    cdef public Py_ssize_t offset  # in that text
    cdef public bint is_variable   # a value refers to it, so it need not be the name of an option


@cython.final
cdef class Parser:
    cdef str text
    cdef int kind                  # bytes of a character of the text
    cdef void* characters          # of the text
    cdef Py_ssize_t length, at
    cdef int depth                 # maps and lists around the place
    cdef object source             # of the text, for positions
    cdef object read_included      # function that parses an included file
    cdef object environment
    cdef object references         # variables of the environment that are being parsed
    cdef list scopes               # maps around the place, the innermost last
    cdef readonly list warnings    # positions and texts
    cdef list keys                 # of the values around the place, the innermost last

    cdef Py_UCS4 peek(self) noexcept
    cdef Py_UCS4 peek_next(self) noexcept
    cdef object error(self, Py_ssize_t offset, str what)
    cdef object unexpected(self, str expected)
    cdef void warn(self, Py_ssize_t offset, str what)
    cdef bint is_trailing_brace(self)
    cdef bint skip_comment(self) noexcept
    cdef void skip_between(self, bint is_top)
    cdef object braces(self, object tree, Py_ssize_t began)
    cdef object entry(self, object tree, Py_UCS4 close)
    cdef object end_entry(self, Py_UCS4 close)
    cdef object key(self)
    cdef Py_ssize_t enter_quotes(self, str what) except -1
    cdef object made_key(self, Py_ssize_t began)
    cdef object merge(self, object tree)
    cdef object value(self, bint is_in_list)
    cdef object enter(self)
    cdef object map(self)
    cdef object items(self)
    cdef bint end_item(self, Py_ssize_t began) except -1
    cdef object single_quoted(self)
    cdef object double_quoted(self)
    cdef object escape(self)
    cdef object joined(self, list parts)
    cdef object block(self)
    cdef object number(self)
    cdef object whole(self, Py_ssize_t began, Py_ssize_t digits)
    cdef object fraction(self, Py_ssize_t began)
    cdef object date(self, Py_ssize_t began)
    cdef object bare(self, Py_ssize_t began)
    cdef object variable(self, str name, Py_ssize_t began)
    cdef str similar(self, str name)
