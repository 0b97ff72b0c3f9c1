"""Settings of the sources of the CLEAR pipeline."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ...curation.stages.fetch import FetchLimits, FetchPace
from ...datasets.yfcc100m.fields import EXTRA
from ..config import Location
from ..feature_sets import checked_names

_STRICT = ConfigDict(extra="forbid")


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("a digest has 64 digits from 0 to f")
    return text


@dataclass(frozen=True, config=_STRICT)
class FolderSource:
    """A folder of images.

    Attributes:
        root: the folder, read recursively.
        dates_csv: CSV file with columns ``file``, ``date_taken`` and labels; by default dates are those of EXIF.
        name: name of the source, in the index and the card.
    """

    kind: Literal["folder"]
    root: Location
    dates_csv: Location | None = None
    name: str = "folder"


@dataclass(frozen=True, config=_STRICT)
class TarSource:
    """A folder of tars of images.

    Attributes:
        root: the folder.
        form: ``webdataset`` if samples have ``.json`` files with their images.
        name: name of the source, in the index and the card.
    """

    kind: Literal["tars"]
    root: Location
    form: Literal["plain", "webdataset"] = "plain"
    name: str = "tars"


@dataclass(frozen=True, config=_STRICT)
class DrawnSource:
    """Pictures drawn from the seed, each in the colour that its class names: for trying things without any file.

    Attributes:
        count: number of pictures.
    """

    kind: Literal["drawn"]
    count: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=_STRICT)
class DownloadLimits:
    """Where downloads may lead, see ``FetchLimits``; how many bytes a file may have is for ``Images`` to say, of any source.

    Attributes:
        max_redirects: redirects that are followed.
        allow_private_hosts: whether addresses of the local network may be fetched.
        gone_urls: patterns of addresses to which a server redirects where a picture is gone.
        disallowed_directives: words of the header ``X-Robots-Tag`` by which a server says that a picture is not to be taken;
            an empty list: the header is not looked at.
        robots_agent: name of a user agent whose directives hold, too; those without a name always hold.
    """

    max_redirects: Annotated[int, Field(ge=0)] = FetchLimits.max_redirects
    allow_private_hosts: bool = FetchLimits.allow_private_hosts
    gone_urls: tuple[str, ...] = FetchLimits.gone_urls
    disallowed_directives: tuple[str, ...] = FetchLimits.disallowed_directives
    robots_agent: str = FetchLimits.robots_agent


@dataclass(frozen=True, config=_STRICT)
class YfccSource:
    """YFCC100M: metadata in one of its forms; images downloaded, or read from a folder.

    Attributes:
        metadata: file or folder of the metadata.
        images_root: folder of the images; by default they are downloaded.
        images_path: of an image in it, with the columns ``key`` and ``extension``.
        licences: those that are taken; all by default.
        extra: further columns of the metadata, such as ``title`` and ``user_tags``, for the index of the shards.
        limits: of downloads.
        pace: of downloads.
    """

    kind: Literal["yfcc100m"]
    metadata: Location
    images_root: Location | None = None
    images_path: str = "{key}.{extension}"
    licences: list[str] | None = None
    extra: list[Literal[EXTRA]] = Field(default_factory=list)  # pyright: ignore[reportInvalidTypeForm]  # names of columns
    limits: DownloadLimits = Field(default_factory=DownloadLimits)
    pace: FetchPace = Field(default_factory=FetchPace)


@dataclass(frozen=True, config=_STRICT)
class ReleaseSource:
    """A release of CLEAR, whole or in part: labels, buckets and splits are those of its lists.

    Attributes:
        root: folder of the release.
        features: types of the release's own vectors, such as ``moco_b0``: each becomes a feature set of this name.
        published: digests of the authors' archive, stated by whoever holds it: ``dataset``, and any of ``features``. The report
            of a run with the published counts prints its own. Where they are the run's, the paper's figures stand beside it.
        images: whether to take the images; without them the lists and the features suffice.
        buckets, classes: those to take; all by default.
        test_share: names the folder of the splits, ``testset_ratio_0.3``.
    """

    kind: Literal["release"]
    root: Location
    features: Annotated[list[str], AfterValidator(checked_names)] = Field(default_factory=list[str])
    published: dict[str, Annotated[str, AfterValidator(_digest)]] = Field(default_factory=dict[str, str])
    images: bool = True
    buckets: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    classes: Annotated[list[str], Field(min_length=1)] | None = None
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3


@dataclass(frozen=True, config=_STRICT)
class LabelledSource:
    """Dated photos whose classes are known: nothing is retrieved, and nobody is asked.

    Attributes:
        root: folder of the photos; the topmost folder of a path is the class.
        csv: file with the path of each photo in ``root``, its date, and its class where it has such a column; else dates are
            those of EXIF.
        path_column, label_column, date_column: their names in it; of the class by default "label", where there is one. A column
            ``date_uploaded`` is an upload time.
        background: class that comes first among the labels, or "".
        name: of the source.
    """

    kind: Literal["labelled"]
    root: Location
    csv: Location | None = None
    path_column: str = "path"
    label_column: str | None = None
    date_column: str = "date"
    background: str = ""
    name: str = "labelled"
