"""Names of folders above an archive that look like something else to a part that reads them."""

from __future__ import annotations

#: By what it is: a folder's name.
WORKS: dict[str, str] = {
    "space": "two words",
    "space at its ends": " spaced ",
    "umlaut": "größe",
    "umlaut in two parts": "gro\u0308ße",
    "CJK": "日本語",
    "emoji": "🚀",
    "right to left": "\u202eabc",
    "no width": "a\u200bb",
    "fragment": "a#b",
    "query": "a?b=1&c=2",
    "encoded": "p%20q",
    "per cent": "100%",
    "semicolon": "a;b",
    "comma": "a,b",
    "colon": "co:lon",
    "scheme": "s3:b",
    "brackets": "[prod]",
    "braces": "{eu,us}",
    "star": "st*r",
    "backslash": "back\\slash",
    "single quote": "it's",
    "double quotes": '"quoted"',
    "variable": "$HOME",
    "command": "`id`",
    "dash": "-rf",
    "dot": ".hidden",
    "underscore": "_under",
    "dot at the end": "trailing.",
    "dots": "...",
    "tilde": "~root",
    "plus": "a+b",
    "at": "user@host",
    "partition": "topic=other",
    "date": "date=2020-01-01",
    "signs": "a|b>c<d!^(e)",
    "newline": "new\nline",
    "carriage return": "a\rb",
    "tab": "tab\tbed",
    "control": "a\x01b",
    "long": "x" * 255,
    "long in bytes": "é" * 127,
}

#: Several of them in one name, for tests that take too long for each.
TOGETHER: dict[str, str] = {
    "patterns and URLs": "[p] {a,b} st*r? #1 ?x=1&y=2 p%20q",
    "colon and backslash": "co:lon \\back\\slash $HOME 'it\"s'",
    "not ASCII": "gro\u0308ße größe 日本語 🚀",
}

#: By what it is: what stands in front of the archive's own folder, and a part of the refusal.
REFUSED: dict[str, tuple[str, str]] = {
    "NUL": ("/data/a\0b", r"'\\0'"),
    "no UTF-8": ("/data/a\udcffb", r"'/data/a\\udcffb/a': .*unicode"),
    "a URL": ("/data/http://b", "'://' in its path"),
    "above": ("/data/x/../b", r"'\.\.' in it"),
    "too long a name": ("/data/" + "x" * 256, "too long: .* longest name 256"),
    "too long in bytes": ("/data/" + "é" * 128, "too long: .* longest name 256"),
    "too long a path": ("/data" + "/x" * 2000, "too long: 4,0.. bytes"),
    "Spark's own": ("/data/_spark_metadata", "'_spark_metadata' in it"),
    "template": ("/data/{{ ds }}", "has the template"),
    "relative": ("data/b", "an absolute path"),
    "two slashes in a store": ("s3://b//x", "'//' in its path"),
    "nothing": ("", "at least 1 character"),
}
