"""Sections: a map of a configuration file, or of a program, becomes a dataclass of settings.

- The fields of the class are settings (settings.py). Their names match in any case, and some have
  other names too; none of these is the name of another setting of the class.
- All mistakes of a section are found at once, each with its position.

It is compiled because each user is a section, and a reload reads ten thousand of them.
"""

cimport cython

from collections.abc import Mapping

from natsd.config.settings import (
    OptionsError,
    locate,
    raise_together,
    read,
    read_text,
    settings_of,
    unknown_field,
)

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object, object, object) except -1  # frozen or not


@cython.final
cdef class Reader:
    """Reads the values of one setting."""

    cdef object setting
    cdef object default
    cdef bint is_text              # every text is a value of the setting, and nothing else is

    cdef object convert(self, object value):
        """Return a value in the type of the setting. Raises OptionsError."""
        return value if self.is_text and isinstance(value, str) else read(self.setting, value)


cdef dict READERS = {}             # class: its readers by the names of the settings
cdef dict NOTHING = {}


cdef dict readers_of(object kind):
    """Return the readers of a class, in the order of its fields."""
    cdef dict readers
    cdef Reader reader
    readers = READERS.get(kind)
    if readers is None:
        readers = READERS[kind] = {}
        for name, setting in settings_of(kind).items():
            reader = readers[name] = Reader()
            reader.setting = setting
            reader.default = setting.default
            reader.is_text = setting.metadata["kind"].read is read_text
    return readers


def section_of(kind, given, *, aliases=NOTHING, defaults=NOTHING):
    """Return a section of the class `kind`, made from a mapping with names in any case.

    `aliases` maps other names to settings; `defaults` are values for missing settings. Raises
    OptionsError.
    """
    cdef dict readers, settings
    cdef list errors = None
    cdef Reader reader
    if isinstance(given, kind):
        return given
    if not isinstance(given, (dict, Mapping)):
        raise OptionsError("must be a mapping of settings")
    readers = readers_of(kind)
    settings = {}
    for spelling, value in given.items():
        try:
            name = spelling if spelling in readers else name_of(spelling, aliases)
            reader = readers.get(name)
            if reader is None:
                if getattr(spelling, "is_variable", False):
                    continue
                raise unknown_field(str(spelling), readers, aliases)
            if name in settings:
                raise OptionsError(f"{name} is given twice", setting=name)
            settings[name] = reader.convert(value)
        except OptionsError as error:
            if errors is None:
                errors = []
            errors.append(error.at(spelling))
    if errors is not None:
        raise_together(errors)
    if defaults:
        settings = {**defaults, **settings}
    return made(kind, readers, settings, given, aliases)


cdef object name_of(object spelling, object aliases):
    """Return the name of the setting that a name in a mapping stands for."""
    name = spelling.lower() if isinstance(spelling, str) else str(spelling)
    return aliases.get(name, name)


cdef object made(object kind, dict readers, dict settings, object given, object aliases):
    """Return a section of settings that have been read from `given`. Raises OptionsError."""
    section = object.__new__(kind)
    for name, reader in readers.items():
        PyObject_GenericSetAttr(section, name, settings.get(name, (<Reader>reader).default))
    try:
        section.check()
    except OptionsError as error:
        locate(error, given, aliases)
        raise
    return section
