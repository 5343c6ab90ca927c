"""What MkDocs is told beside mkdocs.json: anchors are those that GitHub makes, so that links lead to headings on both."""

import re

import markdown.extensions.toc


def slug(text: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def unique(name: str, names: set, *_) -> str:
    """As markdown.extensions.toc.unique(), with a hyphen before the number, from 1."""
    made, count = name, 0
    while made in names or not made:
        count += 1
        made = f"{name}-{count}"
    names.add(made)
    return made


def on_config(config):
    config.mdx_configs["toc"]["slugify"] = slug
    markdown.extensions.toc.unique = unique
    return config
