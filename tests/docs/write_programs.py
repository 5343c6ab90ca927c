"""Writes the C++ of README.md and docs/*.md as one source that CMake compiles:  write_programs.py SOURCE

Each block of cpp becomes a function, with the names of documented.h (a model, a loader, a criterion, ...) in sight; its
#include lines go to the top. main() calls those that are not marked `<!-- not run: REASON -->`. A block with a main() of
its own is refused: it belongs into examples/.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages


def main() -> None:
    includes, functions, calls = [], [], []
    for page in pages.commanded_pages():
        for block in pages.read_blocks(page):
            if block.language != "cpp":
                continue
            if re.search(r"\bint main\(", block.text):
                sys.exit(f"{block.place}: a whole program belongs into examples/, where it is compiled")
            name = re.sub(r"\W", "_", f"{page.stem}_{block.line}")
            includes += [line for line in block.lines if line.startswith("#include")]
            body = "\n".join("" if line.startswith("#include") else line for line in block.lines)
            functions.append(f'[[maybe_unused]] void {name}() {{\n  using namespace documented;\n#line {block.line + 1} "{block.page}"\n{body}\n}}\n')
            if "not run" not in block.marks:
                calls.append(f'  documented::run("{block.place}", {name});')
    if not calls:
        sys.exit("no block of cpp was found in README.md and docs/*.md")
    text = "\n".join(["// Written by tests/docs/write_programs.py.", *dict.fromkeys(includes), '#include "documented.h"', "", "namespace {", *functions,
                      "}  // namespace", "", "int main() {", *calls, "  return documented::result();", "}", ""])
    target = pathlib.Path(sys.argv[1])
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
