from __future__ import annotations

from collections.abc import Iterable

from ._samples import Sample

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(samples: Iterable[Sample]) -> str:
    """The figures as text in the format of Prometheus (version 0.0.4), for an HTTP server of your own.

    The content type is `text/plain; version=0.0.4; charset=utf-8`.
    """
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, family in families.items():
        full = f"tenure_{name}_total" if family[0].kind == "counter" else f"tenure_{name}"
        lines += (f"# HELP {full} {family[0].help}", f"# TYPE {full} {family[0].kind}")
        for sample in family:
            labels = ",".join(f'{key}="{value.translate(_ESCAPED)}"' for key, value in sample.labels.items())
            value = int(sample.value) if float(sample.value).is_integer() else sample.value
            lines.append(f"{full}{{{labels}}} {value}" if labels else f"{full} {value}")
    return "".join(f"{line}\n" for line in lines)
