"""Every setting of the server, in one place."""

from natsd.config.options import Options, make_options
from natsd.config.settings import OptionsError

__all__ = ["Options", "OptionsError", "make_options"]
