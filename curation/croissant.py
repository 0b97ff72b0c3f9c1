"""Metadata of a published dataset in the Croissant format (MLCommons, 1.0): JSON-LD that describes its files and index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "samplingRate": "cr:samplingRate",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
    "examples": {"@id": "cr:examples", "@type": "@json"},
}

_LICENCE = "https://spdx.org/licenses/"


def croissant_json(
    *,
    name: str,
    description: str,
    licence: str,
    citation: str,
    digest: str,
    table: pa.Table,
    columns: Mapping[str, str],
    files: Mapping[str, Mapping[str, Any]],
) -> bytes:
    """Content of ``croissant.json``.

    Args:
        name: name of the dataset, one line.
        description: prose.
        licence: SPDX identifier, or ``other``.
        citation: BibTeX or text.
        digest: content digest.
        table: content of ``index.parquet``.
        columns: column -> its meaning, one line.
        files: name -> ``size`` in bytes and ``sha256``, including ``index.parquet``.

    >>> table = pa.table({"key": ["a"], "label": [3]})
    >>> file = {"index.parquet": {"size": 1, "sha256": "0" * 64}}
    >>> facts = {"name": "T", "description": "", "licence": "MIT", "citation": "", "digest": "ab", "columns": {}, "files": file}
    >>> described = json.loads(croissant_json(table=table, **facts))
    >>> [(field["name"], field["dataType"]) for field in described["recordSet"][0]["field"]]
    [('key', 'sc:Text'), ('label', 'sc:Integer')]
    """
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"samples/{field.name}",
            "name": field.name,
            **({"description": columns[field.name]} if columns.get(field.name) else {}),
            "dataType": _type(field.type),
            **({"repeated": True} if pa.types.is_list(field.type) else {}),
            "source": {"fileObject": {"@id": "index.parquet"}, "extract": {"column": field.name}},
        }
        for field in table.schema
    ]
    held = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        "license": "see the card" if licence == "other" else f"{_LICENCE}{licence}",
        **({"citeAs": citation} if citation else {}),
        "url": f"urn:benchwright:{digest}",
        "version": f"1.0.0+{digest[:12]}",
        "distribution": [_file(each, facts) for each, facts in sorted(files.items())],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "samples", "name": "samples", "field": fields}],
    }
    return f"{json.dumps(held, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


_FORMATS = {
    "tar": "application/x-tar",
    "csv": "text/csv",
    "parquet": "application/x-parquet",
    "npy": "application/octet-stream",
    "md": "text/markdown",
}


def _file(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{facts['size']} B",
        "encodingFormat": _FORMATS.get(name.rpartition(".")[2], "application/octet-stream"),
        "sha256": facts["sha256"],
    }


def _type(kind: pa.DataType) -> str:
    value = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_boolean(value):
        return "sc:Boolean"
    if pa.types.is_integer(value):
        return "sc:Integer"
    if pa.types.is_floating(value):
        return "sc:Float"
    return "sc:DateTime" if pa.types.is_temporal(value) else "sc:Text"
