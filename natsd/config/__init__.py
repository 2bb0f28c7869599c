"""All settings of the server."""

from natsd.config.options import Options, make_options
from natsd.config.settings import OptionsError

__all__ = ["Options", "OptionsError", "make_options"]
