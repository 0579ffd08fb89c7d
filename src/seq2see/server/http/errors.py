"""Errors of both servers: what is wrong, which part of the request caused it, and what to do about it."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from seq2see.errors import UserError


class ApiError(HTTPException):
    """An error response; `location` is the part of the request that caused it."""

    def __init__(
        self, status: int, message: str, hint: str = "", location: str = "", retry_after: int | None = None
    ) -> None:
        super().__init__(status, message, {} if retry_after is None else {"retry-after": str(retry_after)})
        self.status, self.message, self.hint, self.location = status, message, hint, location


Respond = Callable[[ApiError, str], Response]  # an error in the form of an API; the string is the path of the request


def add_error_handlers(app: Starlette, respond: Respond, invalid: Callable[[dict[str, Any]], ApiError]) -> None:
    """Answers all errors with `respond`; `invalid` words the first problem that pydantic finds in a request."""

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            error = invalid(error.errors()[0])
        elif isinstance(error, UserError):
            error = ApiError(422, str(error))
        elif isinstance(error, HTTPException) and not isinstance(error, ApiError):
            headers, error = error.headers, ApiError(error.status_code, error.detail)
            error.headers = headers
        assert isinstance(error, ApiError)
        return respond(error, request.url.path)

    for kind in (HTTPException, RequestValidationError, UserError):
        app.add_exception_handler(kind, handle)


def suggest(word: str, known: Iterable[str], listing: str) -> str:
    """Returns a hint: the closest known word, or else the endpoint that lists them all, since there may be hundreds."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"see {listing} for the known names"
