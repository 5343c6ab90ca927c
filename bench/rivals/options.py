"""What the commands of this folder share: numbers among their options, and how they end on bad ones."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn


def fail(sentence: str) -> NoReturn:
    print(f"bench/rivals: {sentence}", file=sys.stderr)
    sys.exit(2)


def count(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)
