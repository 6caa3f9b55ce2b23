"""The addresses of the documentation's pages, for messages: a reader need not have the repository."""

from __future__ import annotations

__all__ = ("doc_page",)


def doc_page(name: str) -> str:
    """The address of a page, such as `how-to/run-workers#logs`, below the documentation's address in the metadata."""
    from importlib.metadata import PackageNotFoundError, metadata  # slow to import, and seldom needed

    try:
        urls = metadata("tenure").get_all("Project-URL") or []
    except PackageNotFoundError:  # the package was copied without its metadata
        urls = []
    base = dict(url.split(", ", 1) for url in urls).get("Documentation")
    if base is None:
        return f"the page {name} of the documentation of tenure"
    path, mark, section = name.partition("#")
    # a host shows files, a site has folders
    return f"{base}/{path}{'.md' if '/tree/' in base else '/'}{mark}{section}"
