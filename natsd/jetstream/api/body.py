"""Reading of request bodies: what a route's `Body` allows, and the documented errors."""

from natsd.jetstream.api.table import Body, Route
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import (
    InvalidJson,
    decode,
    is_empty_object,
    is_object_or_array,
)


def read_body(route: Route, data: bytes, *, strict: bool) -> Model:
    """Return the body as the route's model. Raises ApiError."""
    match route.body:
        case Body.EMPTY if not is_empty_object(data):
            raise api_error(ErrorId.JSNotEmptyRequestErr)
        case Body.MUST if is_empty_object(data):
            raise api_error(ErrorId.JSBadRequestErr)
        case Body.ANY | Body.EMPTY:
            data = b""
        case Body.MAYBE if not is_object_or_array(data):
            data = b""
    try:
        is_one = route.body is Body.ONE or (route.body is Body.ONE_OR_NONE and bool(data))
        is_strict = strict and route.is_strict
        return decode(route.request, data, strict=is_strict, is_one_value=is_one)
    except InvalidJson as error:
        raise api_error(ErrorId.JSInvalidJSONErr, err=error) from error
