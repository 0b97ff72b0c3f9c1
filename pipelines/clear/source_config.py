"""Settings of the sources of the CLEAR pipeline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ...curation.stages.fetch_settings import FetchLimits, FetchPace
from ...datasets.yfcc100m.fields import EXTRA
from ..config import Digest, Location
from ..feature_sets import checked_names
from ..settings_type import settings_type


@settings_type
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


@settings_type
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


@settings_type
class DrawnSource:
    """Pictures generated from the seed, each in the colour of its class: no file is needed.

    Attributes:
        count: number of pictures.
    """

    kind: Literal["drawn"]
    count: Annotated[int, Field(ge=1)]


@settings_type
class DownloadLimits:
    """Which downloads are allowed, see ``FetchLimits``. File sizes are limited by ``Images``, for every source.

    Attributes:
        max_redirects: maximum number of redirects to follow.
        allow_private_hosts: whether addresses of the local network may be fetched.
        gone_urls: patterns of the addresses to which servers redirect requests for removed pictures.
        disallowed_directives: words in the header ``X-Robots-Tag`` that forbid taking a picture; empty: the header is ignored.
        robots_agent: name of a user agent whose directives are obeyed as well; those without a name always are.
    """

    max_redirects: Annotated[int, Field(ge=0)] = FetchLimits.max_redirects
    allow_private_hosts: bool = FetchLimits.allow_private_hosts
    gone_urls: tuple[str, ...] = FetchLimits.gone_urls
    disallowed_directives: tuple[str, ...] = FetchLimits.disallowed_directives
    robots_agent: str = FetchLimits.robots_agent


@settings_type
class YfccSource:
    """YFCC100M: metadata in one of its forms; images downloaded, or read from a folder.

    Attributes:
        metadata: file or folder of the metadata.
        first_lines: lines of the metadata, from the first, whose photos are listed and fetched; by default all. Not of SQLite.
        images_root: folder of the images; by default they are downloaded.
        images_path: path of an image in it, with the columns ``key`` and ``extension`` in braces.
        licences: licences to accept; by default all.
        extra: further columns of the metadata, such as ``title`` and ``user_tags``, for the index of the shards.
        limits: limits of downloads.
        pace: rates and retries of downloads.
    """

    kind: Literal["yfcc100m"]
    metadata: Location
    first_lines: Annotated[int, Field(ge=1)] | None = None
    images_root: Location | None = None
    images_path: str = "{key}.{extension}"
    licences: list[str] | None = None
    extra: list[Literal[EXTRA]] = Field(default_factory=list)  # pyright: ignore[reportInvalidTypeForm]  # names of columns
    limits: DownloadLimits = Field(default_factory=DownloadLimits)
    pace: FetchPace = Field(default_factory=FetchPace)


@settings_type
class ReleaseSource:
    """A release of CLEAR, whole or in part: labels, buckets and splits are those of its lists.

    Attributes:
        root: folder of the release.
        features: types of the release's own vectors, such as ``moco_b0``: each becomes a feature set of this name.
        published: digests of the authors' archive, for those who have it: ``dataset``, and any of ``features``. A run with the
            published counts prints its own in the report; if they match, the paper's figures are shown next to the results.
        images: whether to take the images; without them, only the lists and features are needed.
        buckets, classes: which ones to take; by default all.
        test_share: selects the folder of the splits, such as ``testset_ratio_0.3``.
    """

    kind: Literal["release"]
    root: Location
    features: Annotated[list[str], AfterValidator(checked_names)] = Field(default_factory=list[str])
    published: dict[str, Digest] = Field(default_factory=dict[str, str])
    images: bool = True
    buckets: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    classes: Annotated[list[str], Field(min_length=1)] | None = None
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3


@settings_type
class LabelledSource:
    """Dated photos whose classes are known: there is no retrieval, and there are no annotators.

    Attributes:
        root: folder of the photos; the top-level folder of a path is the class.
        csv: file with the path of each photo in ``root``, its date and, optionally, its class; by default dates are those of
            EXIF.
        path_column, label_column, date_column: name of this column in ``csv``; for the class by default "label", if there is
            such a column. A column ``date_uploaded`` is the upload time.
        background: class that gets the first label, or "".
        name: name of the source, in the index and the card.
    """

    kind: Literal["labelled"]
    root: Location
    csv: Location | None = None
    path_column: str = "path"
    label_column: str | None = None
    date_column: str = "date"
    background: str = ""
    name: str = "labelled"
