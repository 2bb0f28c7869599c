"""Compiled core: subjects, the SubList, the protocol parser, connections and the reactor."""
