"""Assignment of a round's questions to annotators in the browser: which questions, in which order, and the answers so far.

Each question needs a number of votes. A random draw by seed, annotator and image decides who is asked; if an annotator is
removed, others are asked instead. The order of an annotator's questions is another such draw. Both depend only on the seed,
the names and the answers, so that a restart does not change them.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..journal import Journal
from ..rng import uniform
from .options import text_rule
from .rounds import Round
from .served import Answer, Answers

MOST_ANNOTATORS = 200
LONGEST_NAME = 60
GOLD_EVERY = 20
"""One question in this many is a gold question."""

_SPARE = 1000
"""Number of records allowed per annotator in addition to four per question; stops endless changes of answers."""


class NotPossible(ValueError):
    """A request of an annotator or the requester cannot be fulfilled; the message says why."""


class Desk:
    """A round in progress; safe for concurrent use by the threads of a server.

    Args:
        asked: the round.
        keys: keys of the images that are asked about.
        gold: keys of the gold questions.
        every: one question in this many is a gold question.
        journal: journal, open for writing.
        records: existing records of the journal.
        salt: secret text that makes links unguessable.
        version: digest of the rows that are asked about.
    """

    def __init__(
        self,
        asked: Round,
        keys: Iterable[str],
        *,
        journal: Journal,
        records: Iterable[Mapping[str, Any]] = (),
        gold: Sequence[str] = (),
        every: int = GOLD_EVERY,
        salt: str,
        version: str = "",
    ) -> None:
        self.asked, self.keys, self.gold = asked, list(keys), list(gold)
        self.answers = Answers(records)
        self._journal, self._every = journal, every
        self._secret = hashlib.blake2b(f"{salt}\0{asked.name}".encode(), digest_size=32).digest()
        self._place = {key: place for place, key in enumerate(self.keys)}
        self._ids = {key: self._keyed(f"{version}\0{key}") for key in (*self.keys, *self.gold)}
        self._keys = {shown_id: key for key, shown_id in self._ids.items()}
        self._orders: dict[str, NDArray[np.int64]] = {}
        self._draws: dict[str, NDArray[np.float64]] = {}
        self._later: dict[str, dict[str, None]] = {}
        self._alone = threading.RLock()
        self._recount()

    # ------------------------------------------------------------------------------------------------------ annotators

    def invite(self, name: str) -> None:
        """Add an annotator under a name that is not taken yet."""
        with self._alone:
            taken = {each.casefold() for each in self.answers.invited}
            rule = text_rule(name) or (f"it has more than {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else "")
            if rule:
                raise NotPossible(f"name {name[:LONGEST_NAME]!r}: {rule}")
            if name.casefold() in taken:
                raise NotPossible(f"name {name!r}: it is already taken")
            if len(taken) >= MOST_ANNOTATORS:
                raise NotPossible(f"there are {MOST_ANNOTATORS} annotators already: remove one first")
            self._record({"invited": name})

    def remove(self, name: str, *, discard: bool = False) -> None:
        """Remove an annotator; ``discard``: their answers no longer count."""
        with self._alone:
            if name not in self.answers.invited:
                raise NotPossible(f"there is no annotator {name[:LONGEST_NAME]!r}")
            self._record({"removed": name, "discarded": discard})
            self._recount()

    def people(self) -> list[str]:
        """All annotators who are invited or have answered."""
        with self._alone:
            return [*dict.fromkeys([*self.answers.invited, *filter(None, self.answers.stands)])]

    def token(self, name: str = "") -> str:
        """Token in the link of an annotator; without a name, that of the link by which people choose their own name."""
        return self._keyed(f"{self.answers.invited[name]}\0{name}" if name else "join")

    def bearer(self, token: str) -> str | None:
        """Annotator of a token; "" for that of the link to join; None for an invalid token."""
        with self._alone:
            names, given = ("", *self.answers.invited), token.encode("utf-8", "replace")
            return next((name for name in names if hmac.compare_digest(self.token(name).encode(), given)), None)

    # ------------------------------------------------------------------------------------------------------- questions

    def id_of(self, key: str) -> str:
        """Id of an image in addresses, which does not reveal gold questions."""
        return self._ids[key]

    def key_of(self, shown_id: str) -> str:
        """Key of the image with an id."""
        if shown_id not in self._keys:
            raise NotPossible("this question is no longer open")
        return self._keys[shown_id]

    def ahead(self, name: str, count: int) -> list[str]:
        """The next questions of an annotator; postponed ones come last."""
        with self._alone:
            if name not in self.answers.invited:
                return []
            later, stands = self._later.get(name, {}), self.answers.stands.get(name, {})
            order = self._order(name)
            mine = self._open(name)
            rows = [key for place in order[mine[order]][: count + len(later)] if (key := self.keys[place]) not in later]
            gold = [key for key in self._golden(name) if key not in stands and key not in later]
            asked, golden = int(self._voted_by(name).sum()), sum(key in stands or key in later for key in self.gold)
            found: list[str] = []
            while len(found) < count and rows:
                if gold and asked >= self._gold_place(name, golden):
                    found.append(gold.pop(0))
                    golden += 1
                else:
                    found.append(rows.pop(0))
                    asked += 1
            last = [key for key in later if (key not in stands if key not in self._place else mine[self._place[key]])]
            return (found + last)[:count]

    def left(self, name: str) -> int:
        """Number of questions left for an annotator, without gold questions."""
        with self._alone:
            return int(self._open(name).sum()) if name in self.answers.invited else 0

    def done(self, name: str) -> int:
        """Number of images that an annotator has answered."""
        return int(self._voted_by(name).sum())

    def complete(self) -> int:
        """Number of images that have all their votes."""
        return int((self._count >= self.asked.workers).sum())

    def answer_of(self, name: str, key: str) -> Answer | None:
        """The current answer of an annotator for an image, or else the one that was undone."""
        with self._alone:
            held = (self.answers.stands, self.answers.undone)
            return next((found for each in held if (found := each.get(name, {}).get(key)) is not None), None)

    # --------------------------------------------------------------------------------------------------------- answers

    def answer(self, name: str, key: str, labels: Sequence[str], sensitive: bool | None, seconds: float | None) -> None:
        """Record an answer, or a changed answer. It is on disk when this returns; an unchanged answer is not stored again."""
        with self._alone:
            self._check_invited(name)
            before = self.answers.stands.get(name, {}).get(key)
            if before is not None and (before.labels, before.sensitive) == (list(labels), sensitive):
                return
            if before is None and key in self._place and self._count[self._place[key]] >= self.asked.workers:
                raise NotPossible("others have answered that question in the meantime")
            if self.answers.records.get(name, 0) >= 4 * len(self._ids) + _SPARE:
                raise NotPossible("you have changed your answers too often: ask the requester")
            given = {"labels": list(labels), "sensitive": sensitive, "seconds": seconds}
            self._record({"by": name, "key": key, **given})
            self._mark(name, key, voted=True)

    def last(self, name: str) -> str | None:
        """The image that an annotator answered last; None if there is none."""
        with self._alone:
            return next((key for key in reversed(self.answers.stands.get(name, {})) if key in self._ids), None)

    def undo(self, name: str, key: str) -> None:
        """Undo an answer; no effect if it is already undone."""
        with self._alone:
            self._check_invited(name)
            if key in self.answers.stands.get(name, {}):
                self._record({"by": name, "key": key, "undone": True})
                self._mark(name, key, voted=False)

    def put_off(self, name: str, key: str) -> None:
        """Postpone a question to the end."""
        with self._alone:
            self._check_invited(name)
            later = self._later.setdefault(name, {})
            later.pop(key, None)
            later[key] = None

    def decide(self, key: str, labels: Sequence[str] | None, sensitive: bool | None) -> None:
        """Record the requester's decision, which replaces the votes of an image on the forms that are not None."""
        with self._alone:
            before = self.answers.stands.get("", {}).get(key, Answer(None, None))
            decided = {
                "labels": before.labels if labels is None else list(labels),
                "sensitive": before.sensitive if sensitive is None else sensitive,
            }
            self._record({"by": "", "key": key, **decided, "seconds": None})

    def snapshot(self) -> Answers:
        """A copy of the current answers, which later answers do not change."""
        with self._alone:
            copy = Answers()
            copy.length, copy.invited = self.answers.length, dict(self.answers.invited)
            copy.stands = {name: dict(stands) for name, stands in self.answers.stands.items()}
            return copy

    # ---------------------------------------------------------------------------------------------------------- within

    def _record(self, record: Mapping[str, Any]) -> None:
        self._journal.append(record)
        self.answers.add(record)

    def _check_invited(self, name: str) -> None:
        if name not in self.answers.invited:
            raise NotPossible("you are no longer an annotator of this round")

    def _keyed(self, text: str) -> str:
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16, key=self._secret).hexdigest()

    def _recount(self) -> None:
        self._voted: dict[str, NDArray[np.bool_]] = {}
        self._count = np.zeros(len(self.keys), dtype=np.int64)
        for name, stands in self.answers.stands.items():
            for key in stands if name else ():
                self._mark(name, key, voted=True)

    def _mark(self, name: str, key: str, *, voted: bool) -> None:
        if (place := self._place.get(key)) is not None:
            mine = self._voted_by(name)
            self._count[place] += int(voted) - int(mine[place])
            mine[place] = voted

    def _voted_by(self, name: str) -> NDArray[np.bool_]:
        return self._voted.setdefault(name, np.zeros(len(self.keys), dtype=np.bool_))

    def _open(self, name: str) -> NDArray[np.bool_]:
        """Images that an annotator may answer: fewer others with smaller draws may still answer them than votes are missing."""
        before = np.zeros(len(self.keys), dtype=np.int64)
        for other in self.answers.invited:
            if other != name:
                before += ~self._voted_by(other) & (self._draw(other) < self._draw(name))
        return ~self._voted_by(name) & (before < self.asked.workers - self._count)

    def _draw(self, name: str) -> NDArray[np.float64]:
        return self._random_numbers(self._draws, "qa_seat", name)

    def _order(self, name: str) -> NDArray[np.int64]:
        if name not in self._orders:
            self._orders[name] = np.argsort(self._random_numbers({}, "qa_order", name), kind="stable")
        return self._orders[name]

    def _random_numbers(self, kept: dict[str, NDArray[np.float64]], what: str, name: str) -> NDArray[np.float64]:
        if name not in kept:
            kept[name] = uniform(self.asked.seed, what, (f"{name}\0{key}" for key in self.keys))
        return kept[name]

    def _golden(self, name: str) -> list[str]:
        draws = uniform(self.asked.seed, "qa_gold", (f"{name}\0{key}" for key in self.gold))
        return [self.gold[place] for place in np.argsort(draws, kind="stable")]

    def _gold_place(self, name: str, number: int) -> int:
        """Number of other questions before the gold question with this number of an annotator."""
        (draw,) = uniform(self.asked.seed, "qa_gold_place", [f"{name}\0{number}"])
        return (self._every - 1) * number + int((self._every - 1) * draw)
