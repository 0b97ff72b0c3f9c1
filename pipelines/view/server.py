"""The server of ``benchwright view``: addresses, answers, and the socket that it listens on."""

from __future__ import annotations

import asyncio
import errno
import functools
import hmac
import io
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pyarrow.csv
import pyarrow.parquet as pq
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...curation.artifact import load_run
from ...curation.package_data import package_text
from ...curation.store import Store, StoreError
from ...eval.report.html import style
from ..errors import WrongUse
from . import comparison, pages, payloads, row_page, similarity
from .cache import Cache
from .guard import Guard
from .query import Refused
from .run_view import NotThere, ShownRun, row_address
from .table import MOST_DOWNLOADED, Database

_CHOICES = 64
"""Number of options in a choice for which the style sheet has rules."""
_SLOWEST_S = 10.0
"""A connection that has not sent its request after this time is closed."""
_MOST_AT_ONCE = 64
_LARGEST_HEAD = 16384

Handler = Callable[[ShownRun, Request], Response]


def make_app(out: str, other: str | None = None, *, host: str, port: int, token: str) -> Starlette:
    """The pages of a run, and of a second run to compare, for holders of the token."""
    database = Database()
    first = ShownRun(out, "", database, compared=other is not None)
    second = ShownRun(other, "/other", database, compared=True, pictures=first.pictures) if other is not None else None

    def compare(request: Request) -> Response:
        if second is None:
            raise NotThere("no other run: `benchwright view OUT OTHER` shows two")
        return page_of(comparison.compare_page(first, second, request.query_params.get("stage", "")))

    routes = [
        *files_of_pages("view"),
        _script("map", package_text(__package__, "map.js")),
        Route("/compare", _guarded(first, compare)),
        Route(_PICTURE, functools.partial(_take_picture, first), methods=["POST"]),
        *_routes(first),
        *([Mount("/other", routes=_routes(second))] if second else []),
    ]

    def visitor(given: str) -> tuple[str, str] | None:
        return ("", "") if hmac.compare_digest(given.encode(), token.encode()) else None

    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, port=port, visitor=visitor, takes={_PICTURE: similarity.MOST_PICTURE_BYTES})],
        exception_handlers={HTTPException: no_such_page},
    )


_PICTURE = "/picture"
_KEPT = {"cache-control": "private, max-age=60"}


def files_of_pages(*names: str) -> list[Route]:
    """Routes of the style sheet and the scripts."""
    css = "\n".join([style(_CHOICES), *(package_text(__package__, f"{name}.css") for name in names)])
    sheet = Route(f"/{names[-1]}.css", lambda _: Response(css, media_type="text/css", headers=_KEPT))
    return [sheet, *(_script(name, package_text(__package__, f"{name}.js")) for name in names)]


def _script(name: str, source: str) -> Route:
    return Route(f"/{name}.js", lambda _: Response(source, media_type="text/javascript", headers=_KEPT))


def _routes(run: ShownRun) -> list[Route]:
    answers: dict[str, Handler] = {
        "/": lambda run, request: page_of(pages.plan_page(run)),
        "/stage/{stage}": lambda run, request: page_of(pages.stage_page(run, request.path_params["stage"], _asked(request))),
        "/stage/{stage}/rejects": lambda run, request: page_of(
            pages.stage_page(run, request.path_params["stage"], _asked(request), rejected=True)
        ),
        "/stage/{stage}/row": lambda run, request: page_of(row_page.row_page(run, request.path_params["stage"], _key(request))),
        "/stage/{stage}/at": lambda run, request: _row_at(run, request),
        "/stage/{stage}/groups": lambda run, request: page_of(
            pages.groups_page(run, request.path_params["stage"], dict(request.query_params))
        ),
        "/stage/{stage}/map": _map,
        "/stage/{stage}/payload": _payload,
        "/picture/{digest}": _sent_picture,
        "/stage/{stage}/rows.{form}": _download,
        "/rejects": lambda run, request: page_of(pages.rejects_page(run)),
        "/results": lambda run, request: page_of(pages.results_page(run)),
    }

    def endpoint(answer: Handler) -> Any:
        return _guarded(run, lambda request: answer(run, request))

    return [Route(path, endpoint(answer)) for path, answer in answers.items()]


def _guarded(run: ShownRun, answer: Callable[[Request], Response]) -> Any:
    """The answer, or an error page of one line."""

    def endpoint(request: Request) -> Response:
        try:
            return answer(request)
        except NotThere as error:
            return page_of(pages.error_page(run, str(error)), 404)
        except Refused as error:
            return page_of(pages.error_page(run, str(error)), 400)
        except (StoreError, OSError, ValueError) as error:
            return _damaged(run, error)

    return endpoint


def _damaged(run: ShownRun, error: Exception) -> Response:
    """An error page for unreadable files of the run; plain text if its record is unreadable, since no page can be made then."""
    try:
        return page_of(pages.error_page(run, str(error)), 500)
    except StoreError as worse:
        return Response(f"{worse}\n", 500, media_type="text/plain")


def no_such_page(request: Request, error: Exception) -> Response:
    """The answer for addresses without a page."""
    return Response("no such page\n", 404, media_type="text/plain")


def page_of(html: str, status: int = 200) -> Response:
    """A page, or one that says why there is none."""
    return Response(html, status, media_type="text/html")


def _asked(request: Request) -> list[tuple[str, str]]:
    return request.query_params.multi_items()


def _key(request: Request) -> str:
    if "key" not in request.query_params:
        raise Refused("which row? the address names no key")
    return request.query_params["key"]


def _payload(run: ShownRun, request: Request) -> Response:
    asked, stage = request.query_params, request.path_params["stage"]
    form, light = asked.get("form", "file"), _light(asked.get("light", ""))
    artifact = run.artifact(stage)
    key = (run.out, artifact and artifact.digest, stage, _key(request), asked.get("name", ""), form, *light)
    if artifact is not None and (data := _pictures.get(key)) is not None:
        return _picture(data)
    found = run.payload(stage, _key(request), asked.get("name", ""))
    if form in ("thumb", "large") and found.seen:
        side_px = payloads.THUMB_PX if form == "thumb" else payloads.LARGE_PX
        try:
            return _picture(_pictures.keep(key, payloads.picture(found, side_px, light)))
        except Refused:
            return _picture(payloads.unseen())
    if form == "motion" and found.kind == "skeleton":
        return JSONResponse(payloads.motion(found))
    if form == "clip" and found.kind in ("clip", "sound"):
        return _stretch(found.data or b"", request.headers.get("range", ""), payloads.media_type(found.data or b""))
    if form != "file":
        raise Refused(f"form = {form[:40]!r}: this payload is {found.kind}")
    data = found.data
    if data is None:
        memory = io.BytesIO()
        payloads.save_npy(memory, found)
        data = memory.getvalue()
    return Response(data, media_type="application/octet-stream", headers=_saved(f"{_key(request)}.{found.name}"))


def _picture(data: bytes) -> Response:
    return Response(data, media_type=payloads.picture_type(data), headers=_KEPT)


_pictures: Cache[bytes] = Cache(1 << 26, len)
"""Pictures sent recently: the content of a stage with a given digest never changes."""


def _row_at(run: ShownRun, request: Request) -> Response:
    stage = request.path_params["stage"]
    key = similarity.key_at(run, stage, request.query_params.get("number", ""))
    return RedirectResponse(row_address(run, stage, key), 303)


def _map(run: ShownRun, request: Request) -> Response:
    data = similarity.map_data(run, request.path_params["stage"], _asked(request))
    return Response(data, media_type="application/octet-stream")


def _take_picture(run: ShownRun, request: Request) -> Response:
    """Take a picture to search for similar rows; it is held only in memory."""
    try:
        return JSONResponse({"picture": similarity.keep_picture(run, request.scope["body"])})
    except Refused as error:
        return JSONResponse({"message": str(error)}, 400)


def _sent_picture(run: ShownRun, request: Request) -> Response:
    data = similarity.kept_picture(run, request.path_params["digest"])
    return Response(payloads.picture(payloads.Payload("picture", "picture", data), payloads.THUMB_PX), media_type="image/jpeg")


def _light(text: str) -> list[float]:
    try:
        values = [float(each) for each in text.split(",")] if text and len(text) < 200 else []
    except ValueError:
        raise Refused(f"light = {text[:80]!r}: three numbers with commas between them") from None
    return values if all(0 < each < 1e9 for each in values) else []


def _stretch(data: bytes, wanted: str, kind: str) -> Response:
    """A file, or the range of it that a player requests."""
    start, _, stop = wanted.removeprefix("bytes=").partition("-")
    if not (wanted.startswith("bytes=") and _is_place(start) and (_is_place(stop) or not stop)):
        return Response(data, media_type=kind, headers={"accept-ranges": "bytes"})
    first, last = int(start), min(int(stop or len(data) - 1), len(data) - 1)
    if first > last:
        return Response(status_code=416, headers={"content-range": f"bytes */{len(data)}"})
    headers = {"accept-ranges": "bytes", "content-range": f"bytes {first}-{last}/{len(data)}"}
    return Response(data[first : last + 1], 206, headers, kind)


def _is_place(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _download(run: ShownRun, request: Request) -> Response:
    stage, form = request.path_params["stage"], request.path_params["form"]
    if form not in ("csv", "parquet"):
        raise NotThere(f"no form {form[:40]!r}: csv or parquet")
    rows, query = similarity.view_of(run, stage, _asked(request))
    found = rows.download(query, rows.plain)
    memory = io.BytesIO()
    if form == "parquet":
        pq.write_table(found, memory)
    else:
        pyarrow.csv.write_csv(pages.for_csv(found), memory)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/vnd.apache.parquet"
    headers = {**_saved(f"{stage}.{form}"), "x-rows": str(found.num_rows), "x-most-rows": str(MOST_DOWNLOADED)}
    return Response(memory.getvalue(), media_type=kind, headers=headers)


def _saved(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name.replace('/', '_')[:150], safe='')}"}


# -------------------------------------------------------------------------------------------------------------- serving


class _Impatient(H11Protocol):
    """Closes connections whose first or next request does not arrive in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = asyncio.get_running_loop().call_later(_SLOWEST_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._waits():
            self._late.cancel()
        elif self._late.cancelled() or self._late.when() < self.loop.time():
            self._late = self.loop.call_later(_SLOWEST_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def _waits(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        if self._waits():
            self.transport.close()


def serve(out: str, other: str | None, *, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        out: local folder of a run.
        other: local folder of another run, to compare; or None.
        host, port: where to listen; port 0 for any free port.
        tell: is called with the link, which contains the token.

    Raises:
        WrongUse: the port is taken, or the host is not an address of this machine.
        StoreError: a folder does not hold a run.
    """
    for each in filter(None, (out, other)):
        load_run(Store(each))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # only local weights of encoders are used: nothing is fetched
    serve_app(
        lambda port, token: make_app(out, other, host=host, port=port, token=token),
        host=host,
        port=port,
        tell=lambda address, token: tell(f"{address}/?token={token}"),
    )


def serve_app(app_of: Callable[[int, str], Starlette], *, host: str, port: int, tell: Callable[[str, str], None]) -> None:
    """Serve an application until the process is interrupted.

    Args:
        app_of: makes the application, from the port and the token of its owner.
        host, port: where to listen; port 0 for any free port.
        tell: is called with the address of the server and the token, before any request is answered.

    Raises:
        WrongUse: the port is taken, or the host is not an address of this machine.
    """
    listening = _listening(host, port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = app_of(port, token)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    tell(f"http://{f'[{shown}]' if ':' in shown else shown}:{port}", token)
    with listening:
        uvicorn.Server(config_of(app)).run(sockets=[listening])


def config_of(app: Starlette) -> uvicorn.Config:
    """Configuration of uvicorn: limits on what one client can request, and no log output."""
    return uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_AT_ONCE,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        timeout_graceful_shutdown=2,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_MOST_AT_ONCE)  # before the link is printed, so that it works at once
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise WrongUse(f"port {port} of {host} is taken: name another with --port, or --port 0 for any") from None
        raise WrongUse(
            f"{host}, port {port}: {(error.strerror or str(error)).lower()}: name another --host or --port"
        ) from None
    return listening
