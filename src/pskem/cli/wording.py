"""Messages of the library in words of the command line: ``n_blocks=9`` becomes --n-blocks 9."""

from __future__ import annotations

import re

import click

#: A value as Python writes it: quoted, in brackets, or one word without the full stop behind it.
VALUE = r"'[^']*'|\[[^\]]*\]|\.\.\.|[\w.+-]*\w"
#: What None is called on the command line.
NONE = {"block_weights": "equal", "priors": "frequencies"}
#: The same, where messages list what is accepted.
ACCEPTED = {
    "None (all blocks alike)": "equal (all blocks alike)",
    "must be None (all cores), a positive": "must be left out (all cores), or a positive",
}


def in_options(text: str, command: click.Command) -> str:
    """The text with the options of a command in place of parameters of the same names."""
    options = {str(p.name): p for p in command.params if isinstance(p, click.Option)}
    if not options:
        return text
    for phrase, ours in ACCEPTED.items():
        text = text.replace(phrase, ours)
    # Names in quotes, in longer names and in names of files are something else.
    name = rf"(?<![\w'\"./-])(?P<name>{'|'.join(options)})"
    pattern = rf"{name}(?:=(?P<value>{VALUE})|(?![\w'\"=(/-]|\.\w))"
    return re.sub(pattern, lambda match: _written(match, options[match["name"]]), text)


def _written(match: re.Match[str], option: click.Option) -> str:
    name, value = match["name"], match["value"]
    long = next(flag for flag in option.opts if flag.startswith("--"))
    if value is None:  # a name alone, which may be an ordinary word
        return long if "_" in name or name == "tol" else name
    if option.is_flag:
        return {"True": long, "False": "".join(option.secondary_opts)}.get(value) or match[0]
    plain = NONE.get(name, value) if value == "None" else value.strip("'[]").replace(", ", ",")
    return f"{long} {plain}"
