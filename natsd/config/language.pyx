"""The configuration language: a text becomes a tree of maps, lists and values (tree.py).

    file     = entries | "{" entries "}"                    so JSON is a configuration
    entries  = { entry [";" | "," | NEWLINE] }
    entry    = key [":" | "="] value  |  "include" file-name
    key      = "'" … "'"  |  '"' … '"'  |  characters up to a space, ":" or "="
    value    = map | list | quoted | block | number | date | bare
    map      = "{" entries "}"
    list     = "[" { value ["," | NEWLINE] } "]"
    quoted   = "'" raw "'"  |  '"' with escapes \\t \\n \\r \\" \\\\ \\xHH '"'
    block    = "(" lines NEWLINE ")" NEWLINE                the last ) alone on its line
    number   = ["-"] digits ["." digits] | ["-"] digits (k|m|g|t|p|e) [b|i|ib]
    date     = YYYY-MM-DDTHH:MM:SSZ
    bare     = characters up to a space, NEWLINE, ";", ",", "]" or "}", with escapes; it is a
               boolean (true yes on false no off), a variable ($NAME), or a text
    comment  = "#" or "//" up to the end of the line, wherever an entry or item may begin or end

- k is 1000 and kb, ki, kib are 1024, and so on. A number that goes on with other letters, dots or
  colons is a text: 10s, 127.0.0.1:4222.
- A variable is the value of an entry that stands before it in the innermost enclosing map that has
  it, or else a variable of the environment, whose text is parsed as a value. `$2a$…` is a text.
- Of entries with one key the last one counts.
- The language is that of nats-server, with its oddities: a lone "/" between entries is a separator,
  a key ends at a space but not at "{". Unlike there, a whole number may stand directly before "]",
  and what nats-server drops silently is an error: a key without a value, a suffix such as 5kbi.

It is compiled because a file may hold ten thousand users, and a reload reads it as a whole.

Source: nats-server's conf/lex.go and conf/parse.go.
"""

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ

import re
from datetime import datetime, timezone

from natsd.config.tree import ConfigList, ConfigMap, ConfigSyntaxError, Source

include "digest.pyx"

cdef enum:
    DEPTH_MAX = 200
    EOF = 0  # the character after the last one
    NUMBER_LENGTH_MAX = 4000  # Python refuses to convert longer ones

cdef dict BOOLEANS = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False
}
cdef dict POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
cdef dict ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
cdef frozenset SECRETS = frozenset([
    "password", "pass", "token", "key", "ek", "encryption_key", "prev_key", "prev_ek",
    "prev_encryption_key", "seed", "default_sentinel", "srk_password",
])  # keys whose values are not shown in errors
cdef object DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
cdef object INT64_MAX = 2**63 - 1
cdef object INT64_MIN = -2**63


cdef inline bint is_blank(Py_UCS4 c) noexcept:
    return c == u" " or c == u"\t"


cdef inline bint is_newline(Py_UCS4 c) noexcept:
    return c == u"\n" or c == u"\r"


cdef inline bint is_space(Py_UCS4 c) noexcept:
    if c < 128:
        return c == 32 or 9 <= c <= 13
    return c == 0x85 or c == 0xA0 or c.isspace()


cdef inline bint is_digit(Py_UCS4 c) noexcept:
    return u"0" <= c <= u"9"


cdef inline bint ends_number(Py_UCS4 c) noexcept:
    return is_newline(c) or is_blank(c) or c == EOF or c in u"},;]"


cdef inline bint ends_bare(Py_UCS4 c) noexcept:
    return is_newline(c) or is_blank(c) or c == EOF or c in u";,]}"


cdef class Key(str):
    """The key of a map, which knows where it stands."""

    @property
    def position(self):
        """The place of the key, for errors."""
        return self.source.position(self.offset)


cdef class Parser:
    """Parses one text, once."""

    def __init__(self, str text, str name, read_included, environment, references=frozenset()):
        """Parse `text`, called `name` in errors.

        `read_included` returns the map of an included file. `references` are the variables of the
        environment that are being parsed.
        """
        self.text = text.replace("\0", "\ufffd")
        self.kind = PyUnicode_KIND(self.text)
        self.characters = PyUnicode_DATA(self.text)
        self.length = len(text)
        self.at = 0
        self.depth = 0
        self.source = Source(name, self.text)
        self.read_included = read_included
        self.environment = environment
        self.references = references
        self.scopes = []
        self.warnings = []
        self.keys = []

    def parse(self):
        """Return the map of the whole text. Raises ConfigSyntaxError."""
        cdef object tree = ConfigMap()
        cdef Py_ssize_t began
        self.scopes.append(tree)
        while True:
            self.skip_between(is_top=True)
            began = self.at
            if self.peek() == EOF:
                return tree
            if self.peek() == u"{":
                self.at += 1
                self.braces(tree, began)
            elif self.peek() == u"}" and self.is_trailing_brace():
                self.warn(began, "} without {")
                return tree
            else:
                self.entry(tree, EOF)

    cdef Py_UCS4 peek(self) noexcept:
        if self.at < self.length:
            return PyUnicode_READ(self.kind, self.characters, self.at)
        return EOF

    cdef Py_UCS4 peek_next(self) noexcept:
        if self.at + 1 < self.length:
            return PyUnicode_READ(self.kind, self.characters, self.at + 1)
        return EOF

    cdef object error(self, Py_ssize_t offset, str what):
        return ConfigSyntaxError(what, self.source.position(offset))

    cdef object unexpected(self, str expected):
        """Return the error that something else than `expected` stands here."""
        cdef Py_UCS4 c = self.peek()
        if c == EOF:
            return self.error(self.at, f"expected {expected}, but the file ends")
        shown = "a new line" if is_newline(c) else repr(chr(c))
        return self.error(self.at, f"expected {expected}, but got {shown}")

    cdef void warn(self, Py_ssize_t offset, str what):
        self.warnings.append((self.source.position(offset), what))

    cdef bint is_trailing_brace(self):
        """Return whether only a brace and spaces follow up to the end."""
        return not self.text[self.at + 1:].strip()

    cdef bint skip_comment(self) noexcept:
        """Skip a comment that begins here, up to the end of the line; return whether one did."""
        if self.peek() != u"#" and not (self.peek() == u"/" and self.peek_next() == u"/"):
            return False
        while self.peek() != EOF and not is_newline(self.peek()):
            self.at += 1
        return True

    cdef void skip_between(self, bint is_top):
        """Skip spaces and comments where an entry or an item may begin."""
        while True:
            if is_space(self.peek()):
                self.at += 1
            elif self.peek() == u"/" and self.peek_next() != u"/":
                if is_top:
                    raise self.unexpected("a key, a value or a comment")
                self.at += 1
            elif not self.skip_comment():
                return

    cdef object braces(self, object tree, Py_ssize_t began):
        """Parse the entries between braces around a whole file, up to the closing brace."""
        while True:
            self.skip_between(is_top=True)
            if self.peek() == u"}":
                self.at += 1
                return
            if self.peek() == EOF:
                self.warn(began, "{ is not closed by }")
                return
            if self.peek() == u"{":
                self.at += 1
                self.braces(tree, self.at - 1)
            else:
                self.entry(tree, u"}")

    cdef object entry(self, object tree, Py_UCS4 close):
        """Parse one entry, or an include, into the map, and what ends it.

        `close` is the bracket that ends the map; EOF: the map is the whole file.
        """
        cdef object key = self.key()
        if key is None:
            self.merge(tree)
        else:
            self.keys.append(key)
            value = self.value(is_in_list=False)
            self.keys.pop()
            if key in tree:
                self.warn(key.offset, f"{str(key)!r} is given before; only this value counts")
                del tree[key]
            tree[key] = value
        self.end_entry(close)

    cdef object end_entry(self, Py_UCS4 close):
        """Skip up to the next entry. The closing brace is left, unless there is none (`close`)."""
        cdef Py_UCS4 c
        while True:
            c = self.peek()
            if is_blank(c):
                self.at += 1
            elif self.skip_comment():
                pass
            elif c == u"/" and self.depth == 0:
                self.at += 1
            elif is_newline(c) or c == u";" or c == u"," or c == u"/":
                self.at += 1
                return
            elif c == u"}":
                self.at += close == EOF
                return
            elif c == EOF and (close == EOF or self.depth):
                return
            else:
                raise self.unexpected("a new line, a comma or a comment after the value")

    cdef object key(self):
        """Return the key that begins here; None: it is the word `include` without a separator."""
        cdef Py_UCS4 c = self.peek()
        cdef Py_ssize_t began
        if c == u"=" or c == u":":
            raise self.error(self.at, f"unexpected key separator {chr(c)!r}: a key is missing")
        if c == u'"' or c == u"'":
            began = self.enter_quotes("key")
            key = self.made_key(began)
            self.at += 1
        else:
            began = self.at
            self.at += 1
            while not is_space(self.peek()) and self.peek() not in u"=:" and self.peek() != EOF:
                self.at += 1
            key = self.made_key(began)
            if is_space(self.peek()) and key.lower() == "include":
                return None
        while is_space(self.peek()):
            self.at += 1
        if self.peek() == u"=" or self.peek() == u":":
            self.at += 1
            while self.depth and is_space(self.peek()):
                self.at += 1
        elif self.peek() == EOF:
            raise self.error(began, f"config is invalid: the key {str(key)!r} has no value")
        return key

    cdef Py_ssize_t enter_quotes(self, str what) except -1:
        """Go to the quote that closes the one here; return where the text between them begins."""
        cdef Py_UCS4 quote = self.peek()
        cdef Py_ssize_t began = self.at + 1
        self.at = began
        while self.peek() != quote:
            if self.peek() == EOF:
                raise self.error(began - 1, f"the quote of this {what} is not closed")
            self.at += 1
        return began

    cdef object made_key(self, Py_ssize_t began):
        cdef Key key = Key.__new__(Key, self.text[began:self.at])
        key.source = self.source
        key.offset = began
        return key

    cdef object merge(self, object tree):
        """Parse the file name of an include, and put the entries of that file into the map."""
        cdef Py_UCS4 c
        cdef Py_ssize_t began
        while is_blank(self.peek()):
            self.at += 1
        c = self.peek()
        if c == u"'" or c == u'"':
            began = self.enter_quotes("include")
            name = self.text[began:self.at]
            self.at += 1
        else:
            began = self.at
            if is_digit(c) or is_newline(c) or c == EOF or c in u"[{(-\\":
                raise self.unexpected("the name of a file to include")
            while not (is_newline(self.peek()) or is_blank(self.peek())
                       or self.peek() in u";}'" or self.peek() == EOF):
                self.at += 1
            name = self.text[began:self.at]
            if self.peek() == u"'":
                self.at += 1
        try:
            included = self.read_included(name)
        except ConfigSyntaxError:
            raise
        except ValueError as error:
            raise self.error(began, str(error)) from None
        for key, value in included.items():
            tree.pop(key, None)
            tree[key] = value

    cdef object value(self, bint is_in_list):
        """Return the value that begins here."""
        cdef Py_UCS4 c
        while is_blank(self.peek()):
            self.at += 1
        c = self.peek()
        if c == u"{":
            return self.map()
        if c == u"[":
            return self.items()
        if c == u'"':
            return self.double_quoted()
        if c == u"'":
            return self.single_quoted()
        if c == u"(":
            return self.block()
        if c == u"-" or is_digit(c):
            return self.number()
        if c == u".":
            raise self.error(self.at, "floats must start with a digit; quote a text")
        if is_newline(c) or c == u"}" or (c == u"," and self.depth):
            raise self.unexpected("a value")
        return self.bare(self.at)

    cdef object enter(self):
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.error(self.at, f"more than {DEPTH_MAX} maps and lists in one another")

    cdef object map(self):
        cdef Py_ssize_t began = self.at
        cdef object tree = ConfigMap()
        self.enter()
        self.scopes.append(tree)
        self.at += 1
        while True:
            self.skip_between(is_top=False)
            if self.peek() == u"}":
                self.at += 1
                self.scopes.pop()
                self.depth -= 1
                return tree
            if self.peek() == EOF:
                raise self.error(began, "this { is not closed by }")
            if self.peek() == u"]":
                raise self.error(self.at, "unexpected ] in a map")
            self.entry(tree, u"}")

    cdef object items(self):
        cdef Py_ssize_t began = self.at
        cdef list offsets = []
        cdef object items = ConfigList()
        self.enter()
        self.at += 1
        while True:
            self.skip_between(is_top=True)
            if self.peek() == u"]":
                break
            if self.peek() == EOF:
                raise self.error(began, "this [ is not closed by ]")
            if self.peek() == u",":
                raise self.unexpected("an item of the list")
            offsets.append(self.at)
            items.append(self.value(is_in_list=True))
            if self.end_item(began):
                break
        self.at += 1
        self.depth -= 1
        items.source = self.source
        items.offsets = offsets
        return items

    cdef bint end_item(self, Py_ssize_t began) except -1:
        """Skip up to the next item; return whether the list ends here, at the bracket."""
        cdef Py_UCS4 c
        while True:
            c = self.peek()
            if is_blank(c):
                self.at += 1
            elif self.skip_comment():
                pass
            elif is_newline(c) or c == u"," or c == u"/":
                self.at += 1
                return False
            elif c == u"]":
                return True
            elif c == EOF:
                raise self.error(began, "this [ is not closed by ]")
            else:
                raise self.unexpected("a comma, a new line or ] after the item")

    cdef object single_quoted(self):
        cdef Py_ssize_t began = self.at, end
        end = self.text.find(u"'", began + 1)
        if end < 0:
            raise self.error(began, "this quote is not closed")
        self.at = end + 1
        return self.text[began + 1:end]

    cdef object double_quoted(self):
        cdef Py_ssize_t began = self.at, start
        cdef Py_UCS4 c
        cdef list parts = []
        self.at += 1
        start = self.at
        while True:
            c = self.peek()
            if c == u'"':
                text = self.text[start:self.at]
                self.at += 1
                return self.joined([*parts, text]) if parts else text
            if c == EOF:
                raise self.error(began, "this quote is not closed")
            if c == u"\\":
                parts.append(self.text[start:self.at])
                parts.append(self.escape())
                start = self.at
            else:
                self.at += 1

    cdef object escape(self):
        """Return the text of the escape that begins here; a byte above 127 is a bytes object."""
        cdef Py_ssize_t began = self.at
        letter = self.text[began + 1:began + 2]
        if letter == "x":
            digits = self.text[began + 2:began + 4]
            try:
                if len(digits) != 2 or not digits.isascii() or not digits.isalnum():
                    raise ValueError
                byte = int(digits, 16)
            except ValueError:
                raise self.error(
                    began, f"expected two hexadecimal digits after \\x, but got {digits!r}"
                ) from None
            self.at += 4
            return chr(byte) if byte < 128 else bytes([byte])
        if letter not in ESCAPES:
            raise self.error(
                began, f"invalid escape character {letter!r}; quote the text in ' to use no"
                " escapes, or write one of \\xXX \\t \\n \\r \\\" \\\\"
            )
        self.at += 2
        return ESCAPES[letter]

    cdef object joined(self, list parts):
        """Return the parts as one text; escaped bytes together are UTF-8."""
        if all(isinstance(part, str) for part in parts):
            return "".join(parts)
        raw = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        return raw.decode(errors="replace")

    cdef object block(self):
        """Return the text of the lines up to a line that is only a closing parenthesis."""
        cdef Py_ssize_t began = self.at, end = self.at, after
        while True:
            end = self.text.find(u"\n)", end)
            if end < 0:
                raise self.error(began, "this ( is not closed by a line that is only )")
            after = end + 2
            if after == self.length or self.text[after] == u"\n":
                break
            end += 1
        self.at = after
        return self.text[began + 1:end + 1]

    cdef object number(self):
        """Return the number, the date, or the text that begins with a digit or a minus."""
        cdef Py_ssize_t began = self.at, digits
        cdef bint is_negative = self.peek() == u"-"
        self.at += is_negative
        if not is_digit(self.peek()):
            raise self.unexpected("a digit after the minus (quote a text)")
        while is_digit(self.peek()):
            self.at += 1
        digits = self.at
        if self.peek() == u".":
            return self.fraction(began)
        if self.peek() == u"-" and not is_negative:
            return self.date(began)
        if self.peek() != EOF and self.peek() in u"kKmMgGtTpPeE":
            self.at += 1
            while self.peek() != EOF and self.peek() in u"bBiI":
                self.at += 1
            if self.peek() == u"]" or not (ends_number(self.peek()) or is_digit(self.peek())):
                return self.bare(began)
            return self.whole(began, digits)
        if not is_negative and not ends_number(self.peek()):
            self.at += 1
            return self.bare(began)
        return self.whole(began, digits)

    cdef object whole(self, Py_ssize_t began, Py_ssize_t digits):
        """Return the whole number, times what its suffix means."""
        suffix = self.text[digits:self.at].lower()
        if digits - began > NUMBER_LENGTH_MAX:
            raise self.error(began, "this number is out of range")
        number = int(self.text[began:digits])
        if suffix:
            if suffix[1:] not in ("", "b", "i", "ib"):
                raise self.error(digits, f"no such suffix: {suffix!r}")
            number *= (1024 if suffix[1:] else 1000) ** <object>POWERS[suffix[0]]
        if not INT64_MIN <= number <= INT64_MAX:
            raise self.error(began, "this integer is out of the range of 64 bits")
        return number

    cdef object fraction(self, Py_ssize_t began):
        """Return a float, or the text of an address that has more than one dot."""
        self.at += 1
        if not is_digit(self.peek()):
            raise self.unexpected("a digit after the dot (quote a text)")
        while is_digit(self.peek()):
            self.at += 1
        if self.peek() == u".":
            while is_digit(self.peek()) or (self.peek() != EOF and self.peek() in u".:-"):
                self.at += 1
            return self.text[began:self.at]
        number = float(self.text[began:self.at])
        if number in (float("inf"), float("-inf")):
            raise self.error(began, "this float is out of the range")
        return number

    cdef object date(self, Py_ssize_t began):
        text = self.text[began:began + 20]
        try:
            if DATE.fullmatch(text) is None:
                raise ValueError
            moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            raise self.error(
                began, "expected a date such as 2026-01-02T15:04:05Z (quote a text)"
            ) from None
        self.at = began + 20
        return moment.replace(tzinfo=timezone.utc)

    cdef object bare(self, Py_ssize_t began):
        """Return the boolean, the value of the variable, or the text without quotes."""
        cdef Py_ssize_t start = began
        cdef list parts = []
        cdef Py_UCS4 c
        while True:
            c = self.peek()
            if ends_bare(c) or c == u"'":
                break
            if c == u"\\":
                parts.append(self.text[start:self.at])
                parts.append(self.escape())
                start = self.at
            else:
                self.at += 1
        text = self.text[start:self.at]
        if c == u"'":
            self.at += 1
        if parts:
            return self.joined([*parts, text])
        if c != u"'":
            if len(text) <= 5 and (boolean := BOOLEANS.get(text.lower())) is not None:
                return boolean
            if text.startswith("$"):
                return self.variable(text[1:], began)
        return text

    cdef object variable(self, str name, Py_ssize_t began):
        """Return what the variable stands for."""
        if name.startswith("2a$"):
            return f"${name}"
        for scope in reversed(self.scopes):
            if name in scope:
                for key in scope:
                    if key == name:
                        key.is_variable = True
                return scope[name]
        if name in self.references:
            raise self.error(began, f"variable reference cycle for {name!r}")
        text = self.environment.get(name)
        is_secret = any(key.lower() in SECRETS for key in self.keys)
        if text is None and is_secret:
            raise self.error(
                began, "variable reference can not be found (quote a text that begins with $)"
            )
        if text is None:
            raise self.error(
                began, f"variable reference for {name!r} can not be found{self.similar(name)}"
            )
        cdef Parser parser = Parser(
            f"pk={text}", f"environment variable {name}", self.read_included, self.environment,
            self.references | {name},
        )
        try:
            found = parser.parse()
        except ConfigSyntaxError as error:
            reason = "its text is not a value" if is_secret else error
            raise self.error(
                began, f"variable reference for {name!r} could not be parsed: {reason}"
            ) from None
        if "pk" not in found:
            raise self.error(began, f"variable reference for {name!r} can not be found")
        return found["pk"]

    cdef str similar(self, str name):
        """Return a hint at a variable of a similar name."""
        from difflib import get_close_matches

        names = {str(key) for scope in self.scopes for key in scope}
        found = get_close_matches(name, [*sorted(names), *self.environment], 1)
        if found:
            return f"; did you mean ${found[0]}?"
        return "; it is neither a key before this place nor in the environment"
