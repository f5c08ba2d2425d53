"""Run folders in an S3-compatible store, copied into a folder here.

polars reads tables there, too, but says of no object how large it is, so nothing could be bounded.
`obstore` lists sizes first. Where the store is, and the credentials, are in the usual variables:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, ...
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from vtax.compare.saved import RESULTS
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records, samples
from vtax.core.formats.folder import JOURNAL, RECORD, SAMPLES
from vtax.core.units import format_bytes

SCHEME = "s3://"
LIMITS = {
    RECORD: records.MAX_BYTES,
    RESULTS: records.MAX_BYTES,
    SAMPLES: samples.MAX_BYTES,
    JOURNAL: samples.MAX_BYTES,
}
"""The files of a run folder that are copied, and the most bytes of each."""
MOST_OBJECTS = 10_000_000
AT_ONCE = 16
ANSWER = timedelta(seconds=20)
"""Time for the store to answer, with all tries."""
_BLOCK = 8 << 20

Sizes = Mapping[str, int]
"""The size of each file of a run folder, by its name."""


def copied(url: str, to: Path, *, with_samples: bool) -> Iterator[tuple[str, Path | VtaxError]]:
    """The URL of each run folder below `url`, and where it is now or why it could not be copied.

    Without `with_samples`, samples are copied only of runs that have no saved results. Raises
    MisuseError for a URL without a bucket, VtaxError when the store cannot be listed.
    """
    store, root = _store(url)
    from obstore.exceptions import BaseError

    try:
        folders = _folders(store.list())
    except (BaseError, OSError, ValueError) as error:
        raise VtaxError(f"cannot list {url}: {_reason(error)}", "check AWS_* variables") from None

    def one(numbered: tuple[int, str]) -> tuple[str, Path | VtaxError]:
        number, prefix = numbered
        name = f"{root}/{prefix}".rstrip("/")
        target = to / str(number)
        try:
            _copy(store, prefix, folders[prefix], target, name, with_samples)
        except VtaxError as error:
            return name, error
        except (BaseError, OSError, ValueError) as error:
            return name, VtaxError(f"cannot copy {name}: {_reason(error)}")
        return name, target

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield from threads.map(one, enumerate(sorted(folders)))


def _store(url: str) -> tuple[Any, str]:
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise MisuseError(f"{url} names no bucket", "write s3://BUCKET/PREFIX")
    try:
        from obstore.store import S3Store
    except ImportError:
        raise VtaxError("reading from S3 takes obstore", "pip install 'vtax[s3]'") from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    prefix = prefix.strip("/")
    store = S3Store(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": endpoint.startswith("http://"), "connect_timeout": ANSWER},
        retry_config={"max_retries": 3, "retry_timeout": ANSWER},
    )
    return store, f"{SCHEME}{bucket}/{prefix}".rstrip("/")


def _folders(pages: Iterable[Iterable[Mapping[str, Any]]]) -> Mapping[str, Sizes]:
    """The run folders among all objects."""
    found: dict[str, dict[str, int]] = {}
    seen = 0
    for page in pages:
        for each in page:
            seen += 1
            path = PurePosixPath(each["path"])
            if path.name in LIMITS:
                prefix = "" if path.parent == PurePosixPath() else f"{path.parent}"
                found.setdefault(prefix, {})[path.name] = each["size"]
        if seen > MOST_OBJECTS:
            raise ValueError(f"it has more than {MOST_OBJECTS} objects; name a longer prefix")
    return {prefix: sizes for prefix, sizes in found.items() if RECORD in sizes}


def _copy(
    store: Any, prefix: str, sizes: Sizes, target: Path, shown: str, with_samples: bool
) -> None:
    target.mkdir()
    wanted = {RECORD, RESULTS}
    if with_samples or RESULTS not in sizes:
        wanted |= {SAMPLES if SAMPLES in sizes else JOURNAL}
    for name in wanted & sizes.keys():
        if sizes[name] > LIMITS[name]:
            raise VtaxError(f"{shown}/{name} is larger than {format_bytes(LIMITS[name])}: refused")
        left = LIMITS[name]
        with (target / name).open("wb") as file:
            for block in store.get(f"{prefix}/{name}".lstrip("/")).stream(min_chunk_size=_BLOCK):
                left -= len(block)
                if left < 0:
                    raise VtaxError(f"{shown}/{name} grew while it was read: refused")
                file.write(block)


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
