"""The server of ``benchwright qa serve``: annotators answer the questions of a round, a requester watches and decides."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...curation.artifact import load_artifact
from ...curation.journal import read, writing
from ...curation.lock import Busy
from ...curation.qa.agreement import votes_kappa, worker_table
from ...curation.qa.desk import GOLD_EVERY, Desk, NotPossible
from ...curation.qa.imports import Imported, import_votes, own_salt
from ...curation.qa.mturk import web_address
from ...curation.qa.mturk_results import hash_worker
from ...curation.qa.options import SENSITIVE_ANSWERS, check_options
from ...curation.qa.rounds import Round, add_to_gold_key, addresses_of, asked_rows, gold_key, gold_questions, images_of
from ...curation.qa.served import votes_in
from ...curation.records import JOURNAL
from ...curation.rows import Blob, one_line
from ...curation.store import StoreError
from . import annotate_pages as pages
from .guard import Guard
from .payloads import LARGE_PX, payload_of, picture, picture_type
from .server import files_of_pages, no_such_page, page_of, serve_app
from .table import Refused

_MOST_BODY = 1 << 16
_MOST_FIELDS = 2000
_PICTURES = 32
"""Pictures kept in memory: the next ones are requested before they are shown."""
_AHEAD = 3
BUSY = "another `benchwright qa serve` asks this round of questions: end it first"

Roles = Sequence[str]


@dataclasses.dataclass
class Asking:
    """A round that is being asked by this server.

    Attributes:
        desk: desk of the round, see ``Desk``.
        images: key -> image, or URL of what annotators open to judge it.
        gold: key -> correct class, for all gold questions that were ever asked.
        out: folder of the run.
        salt: salt of the workers' hashes.
        go_on: runs the pipeline, and returns a message on how that ended.
        going: status of that run, shown to the requester.
        shown: annotator -> the question that they see, and since when.
    """

    desk: Desk
    images: Mapping[str, bytes | Blob | str]
    gold: Mapping[str, str]
    out: str
    salt: str
    go_on: Callable[[], str]
    going: str = ""
    shown: dict[str, tuple[str, float]] = dataclasses.field(default_factory=dict[str, tuple[str, float]])
    runs: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.picture = functools.lru_cache(_PICTURES)(self._picture)
        self._found: pages.Found | None = None

    def _picture(self, key: str) -> bytes:
        image = self.images[key]
        if isinstance(image, str):
            raise NotPossible("this question shows a URL, not a picture")
        return picture(payload_of("image", image.read() if isinstance(image, Blob) else image), LARGE_PX)

    def found(self) -> pages.Found:
        """Statistics of the answers so far, computed by the same functions as the import."""
        answers = self.desk.snapshot()
        if self._found is None or self._found.length != answers.length:
            asked, keys = self.desk.asked, {**dict.fromkeys(self.desk.keys), **self.gold}
            votes = votes_in(answers, options=asked.options, salt=self.salt, keys=keys, forms=asked.forms).votes
            table = worker_table(votes, gold=self.gold, background=asked.background).to_pylist()
            rows = {row["worker"]: row for row in table}
            workers = {name: rows.get(hash_worker(name, self.salt), {}) for name in self.desk.people()}
            kappas = {form: votes_kappa(votes, form=form) for form in asked.forms}
            to_decide = len(pages.disagreements(self.desk, answers))
            self._found = pages.Found(answers.length, kappas, workers, to_decide)
        return self._found

    def address(self, key: str) -> str:
        """URL of what annotators open to judge an image; "" if they are shown a picture."""
        image = self.images.get(key, "")
        return image if isinstance(image, str) else ""

    def journal(self) -> str:
        """The file of the answers."""
        return str(Path(self.out) / self.desk.asked.folder / JOURNAL)

    def count(self) -> Imported:
        """Import the votes for the run, as ``benchwright qa import`` of the journal does."""
        return import_votes(self.desk.asked, self.out, [self.journal()], salt=self.salt)

    def run(self) -> None:
        """Continue the run in a thread while the server goes on."""
        if self.runs is not None and self.runs.is_alive():
            raise NotPossible("the run is already in progress")
        self.going = "The run is in progress."
        self.runs = threading.Thread(target=self._go_on, daemon=True)
        self.runs.start()

    def _go_on(self) -> None:
        try:
            self.going = self.go_on()
        except Exception as error:  # any error is shown to the requester, and annotators are not disturbed
            self.going = f"The run ended with an error: {one_line(error, 500)}"


Answering = Callable[["Asking", Request], Response]


def make_app(asking: Asking, *, host: str, port: int, token: str) -> Starlette:
    """The pages of a round, for the requester and for holders of an invitation."""

    def visitor(given: str) -> tuple[str, str] | None:
        return pages.visitor(asking.desk, given, token)

    addresses: list[tuple[str, str, Roles, Answering]] = [
        ("/", "GET", ("requester", "annotator", "guest"), _start),
        ("/join", "GET", ("guest",), lambda asking, request: page_of(pages.join_page("", ""))),
        ("/join", "POST", ("guest",), _join),
        ("/question", "GET", ("annotator",), _question),
        ("/answer", "POST", ("annotator",), _answer),
        ("/undo", "POST", ("annotator",), _undo),
        ("/later", "POST", ("annotator",), _later),
        ("/picture", "GET", ("annotator", "requester"), _seen),
        ("/invite", "POST", ("requester",), _invite),
        ("/remove", "POST", ("requester",), _remove),
        ("/decide", "GET", ("requester",), _to_decide),
        ("/decide", "POST", ("requester",), _decide),
        ("/finish", "POST", ("requester",), _finish),
    ]
    takes = {path: _MOST_BODY for path, method, _, _ in addresses if method == "POST"}
    routes = [Route(path, _for(asking, roles, answer), methods=[method]) for path, method, roles, answer in addresses]
    return Starlette(
        routes=[*files_of_pages("view", "annotate"), *routes],
        middleware=[Middleware(Guard, host=host, port=port, visitor=visitor, takes=takes)],
        exception_handlers={HTTPException: no_such_page},
    )


def _for(asking: Asking, roles: Roles, answer: Answering) -> Any:
    """The answer for visitors with one of these roles, or an error page of one line."""

    def endpoint(request: Request) -> Response:
        try:
            if not {*roles} & {*request.scope["visitors"]}:
                text = f"This page is for the {' or the '.join(roles)}: open the link that you were given."
                return page_of(pages.error_page(text), 403)
            return answer(asking, request)
        except (NotPossible, Refused) as error:
            return page_of(pages.error_page(str(error)), 400)
        except (Busy, StoreError, OSError, ValueError) as error:
            return page_of(pages.error_page(f"Failed: {error}"), 500)

    return endpoint


def _form(request: Request) -> dict[str, list[str]]:
    """The fields of a form."""
    try:
        return parse_qs(request.scope["body"].decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise NotPossible("this form cannot be read: it has too many fields, or is not UTF-8") from None


def _start(asking: Asking, request: Request) -> Response:
    visitors = request.scope["visitors"]
    if "requester" not in visitors:
        return RedirectResponse("/question" if "annotator" in visitors else "/join", 303)
    return page_of(_overview(asking, request))


def _overview(asking: Asking, request: Request, problem: str = "") -> str:
    address = f"{request.url.scheme}://{request.headers['host']}"
    found = asking.found()
    return pages.overview_page(
        asking.desk, found, address=address, going=asking.going, journal=asking.journal(), problem=problem
    )


# ------------------------------------------------------------------------------------------------------------ annotators


def _join(asking: Asking, request: Request) -> Response:
    name = _form(request).get("name", [""])[0].strip()
    try:
        asking.desk.invite(name)
    except NotPossible as error:
        return page_of(pages.join_page(name[:200], f"{error}. Choose another, or open your own link."), 400)
    return RedirectResponse(f"/question?token={asking.desk.token(name)}", 303)


def _next(asking: Asking, request: Request, *, key: str = "", status: int = 200, **more: Any) -> Response:
    """The question for that image, or the next one. A script that inserts it in the page always gets status 200."""
    name = request.scope["visitors"]["annotator"]
    ahead = asking.desk.ahead(name, _AHEAD + 1)
    now = key or next(iter(ahead), "")
    if now and asking.shown.get(name, ("", 0.0))[0] != now:
        asking.shown[name] = (now, time.monotonic())
    return page_of(
        pages.question_page(
            asking.desk, name, now, [each for each in ahead if each != now][:_AHEAD], address=asking.address, **more
        ),
        200 if _in_place(request) else status,
    )


def _in_place(request: Request) -> bool:
    return request.headers.get("x-part") == "main"


def _after(asking: Asking, request: Request, key: str = "") -> Response:
    """The next question: by a redirect, or at once to a script that inserts it in the page."""
    if _in_place(request):
        return _next(asking, request, key=key)
    return RedirectResponse(f"/question?id={asking.desk.id_of(key)}" if key else "/question", 303)


def _question(asking: Asking, request: Request) -> Response:
    shown_id = request.query_params.get("id", "")
    return _next(asking, request, key=asking.desk.key_of(shown_id) if shown_id else "")


def _answer(asking: Asking, request: Request) -> Response:
    name, form, desk = request.scope["visitors"]["annotator"], _form(request), asking.desk
    key = desk.key_of(form.get("id", [""])[0])
    labels, sensitive = _chosen(desk.asked, form)
    chosen = {"chosen": labels, "nothing": "none" in form, "sensitive": sensitive}
    if bool(labels) == ("none" in form):
        text = "Choose an answer" if not labels else "Choose classes, or none of the above: not both"
        return _next(asking, request, key=key, status=400, problem=f"{text}.", **chosen)
    if sensitive is None and "sensitive" in desk.asked.forms:
        return _next(asking, request, key=key, status=400, problem="Answer the second question, too: Yes or No.", **chosen)
    seen, since = asking.shown.get(name, ("", 0.0))
    seconds = round(time.monotonic() - since, 1) if seen == key else None
    try:
        desk.answer(name, key, labels, sensitive, seconds)
    except NotPossible as error:
        return _next(asking, request, status=400, note=f"That answer is not saved: {error}.")
    return _after(asking, request)


def _chosen(asked: Round, form: Mapping[str, Sequence[str]]) -> tuple[list[str], bool | None]:
    """Names of the chosen options, in order, and the answer to the Yes-or-No question."""
    chosen = {*form.get("label", ())}
    labels = [option.name for number, option in enumerate(asked.options) if str(number) in chosen]
    return labels, SENSITIVE_ANSWERS.get(form.get("sensitive", [""])[0])


def _undo(asking: Asking, request: Request) -> Response:
    name = request.scope["visitors"]["annotator"]
    key = asking.desk.key_of(_form(request).get("id", [""])[0])
    asking.desk.undo(name, key)
    return _after(asking, request, key)


def _later(asking: Asking, request: Request) -> Response:
    name = request.scope["visitors"]["annotator"]
    asking.desk.put_off(name, asking.desk.key_of(_form(request).get("id", [""])[0]))
    return _after(asking, request)


def _seen(asking: Asking, request: Request) -> Response:
    data = asking.picture(asking.desk.key_of(request.query_params.get("id", "")))
    return Response(data, media_type=picture_type(data), headers={"cache-control": "private, max-age=3600, immutable"})


# ------------------------------------------------------------------------------------------------------------- requester


def _invite(asking: Asking, request: Request) -> Response:
    try:
        asking.desk.invite(_form(request).get("name", [""])[0].strip())
    except NotPossible as error:
        return page_of(_overview(asking, request, f"{error}."), 400)
    return RedirectResponse("/", 303)


def _remove(asking: Asking, request: Request) -> Response:
    form = _form(request)
    asking.desk.remove(form.get("name", [""])[0], discard="discard" in form)
    return RedirectResponse("/", 303)


def _to_decide(asking: Asking, request: Request) -> Response:
    after = request.query_params.get("after", "")
    at = asking.desk.key_of(after) if after else ""
    return page_of(pages.decide_page(asking.desk, after=at, address=asking.address))


def _decide(asking: Asking, request: Request) -> Response:
    form, desk = _form(request), asking.desk
    key = desk.key_of(form.get("id", [""])[0])
    labels, sensitive = _chosen(desk.asked, form)
    given = labels or None if "none" not in form else []
    if (labels and "none" in form) or (given is None and sensitive is None):
        text = "Choose classes, or none of the above." if "label" in form or "none" in form else "Nothing is chosen."
        return page_of(pages.decide_page(desk, key=key, problem=text, address=asking.address), 400)
    desk.decide(key, given, sensitive)
    return RedirectResponse("/decide", 303)


def _finish(asking: Asking, request: Request) -> Response:
    try:
        asking.count()
        asking.run()
    except (Busy, NotPossible) as error:
        return page_of(_overview(asking, request, f"{error}."), 409)
    return RedirectResponse("/", 303)


# --------------------------------------------------------------------------------------------------------------- serving


@contextlib.contextmanager
def asked_by(
    asked: Round,
    out: str,
    *,
    annotators: Sequence[str] = (),
    gold: str | None = None,
    gold_every: int = GOLD_EVERY,
    go_on: Callable[[], str],
) -> Iterator[Asking]:
    """A round asked by this process and no other; see ``serve``."""
    check_options(asked.options, background=asked.background)
    store, rows = asked_rows(asked, out)
    salt = own_salt(out)
    images: dict[str, bytes | Blob | str] = {**(images_of(asked, rows) if asked.image else addresses_of(asked, rows))}
    golden: dict[str, bytes | Blob | str] = {}
    if gold is not None:
        classes = {*(each.stands_for for each in asked.options), asked.background}
        questions = gold_questions(gold, 1, classes, thumbnails=bool(asked.image))
        keys, right, urls = (questions.table.to_pydict().get(name, []) for name in ("key", "concept", "url"))
        golden = {**(questions.images or {key: web_address(key, url) for key, url in zip(keys, urls, strict=True)})}
        add_to_gold_key(store, asked.folder, dict(zip(keys, right, strict=True)))
    path = Path(out) / asked.folder / JOURNAL
    artifact = load_artifact(store, asked.stage)
    with writing(path, f"{out}: {BUSY}") as journal:
        desk = Desk(
            asked,
            images,
            journal=journal,
            records=read(path),
            gold=list(golden),
            every=gold_every,
            salt=salt,
            version=artifact.digest if artifact else "",
        )
        for name in annotators:
            if name not in desk.answers.invited:
                desk.invite(name)
        yield Asking(desk, {**images, **golden}, gold_key(store, asked.folder), out, salt, go_on)


def serve(
    asked: Round,
    out: str,
    *,
    host: str,
    port: int,
    tell: Callable[[str, str], None],
    go_on: Callable[[], str],
    **whom: Any,
) -> Imported | None:
    """Serve the questions of a round until the process is interrupted; then import the votes for the run.

    Args:
        asked: the round.
        out: local folder of the run.
        host, port: see ``server.serve_app``.
        tell: is called with a name and a link: for the requester, for people who join by themselves, and for each annotator.
        go_on: runs the pipeline, and returns a message on how that ended.
        whom: ``annotators``, names of people to invite if they are not yet; ``gold``, CSV file of questions with known
            answers, see ``rounds.export_questions``; ``gold_every``, one question in this many is a gold question.

    Returns:
        The result of the import; None if nobody has answered.

    Raises:
        Busy: another server is asking this round.
        ValueError: unusable gold questions, damaged answers, ambiguous options, or a name that is not allowed.
        StoreError: there are no rows to ask about yet.
    """
    with asked_by(asked, out, go_on=go_on, **whom) as asking:

        def tell_links(address: str, token: str) -> None:
            for name, link in pages.links(asking.desk, address, token):
                tell(name, link)

        with contextlib.suppress(KeyboardInterrupt):  # the usual end of a server
            serve_app(
                lambda port, token: make_app(asking, host=host, port=port, token=token), host=host, port=port, tell=tell_links
            )
    answers = asking.desk.answers
    counted = any(answers.undone.values()) and (Path(out) / asked.votes_file).exists()  # answers withdrawn since the import
    return asking.count() if counted or any(answers.stands.values()) else None
