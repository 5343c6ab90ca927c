"""What the site is made of, without its tools: readers of headers and docstrings, the navigation, and what two pages say of the
sources:  reference_test.py
"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
import cpp_reference  # noqa: E402
import make_pages  # noqa: E402
import markup  # noqa: E402
import python_reference  # noqa: E402

HEADER = """#pragma once
#include "dear/base/vocabulary/ids.h"

// About the file.

namespace dear {
namespace detail {
struct Hidden {};
}

// How it ended, by
//   name   what
class Result : public Base<int> {
 public:
  // Makes one.
  explicit Result(int value = f({1, 2})) : value_(value), other_{3} { check(); }
  ~Result();

  // The value.
  [[nodiscard]] int value() const { return value_; }
  [[nodiscard]] bool operator==(const Result&) const = default;
  struct Options {
    int count = 1;  // of all
  };

 private:
  friend class Group;
  int value_;  // the first
  int other_ = 0;
};

// Adds, in
// order.
template <typename T>
T add(const std::vector<T>& values, std::function<T(T, T)> how = {});

enum class Kind { one, two };
inline constexpr int kMost = 3;  // at most

}  // namespace dear
"""


class Cpp(unittest.TestCase):
    def setUp(self):
        self.header = cpp_reference.parse(HEADER, "dear/x.h")
        self.declared = {one.name: one for one in self.header.declarations}

    def test_finds_what_a_header_declares(self):
        self.assertEqual([one.name for one in self.header.declarations], ["Result", "add", "Kind", ""])
        self.assertEqual([one.kind for one in self.header.declarations], ["type", "function", "enum", "value"])
        self.assertEqual({one.namespace for one in self.header.declarations}, {"dear"})
        self.assertEqual(self.header.includes, ["dear/base/vocabulary/ids.h"])
        self.assertEqual(self.header.about, ["About the file.", ""])

    def test_takes_the_comment_above_a_declaration(self):
        self.assertEqual(self.declared["Result"].comment, ["How it ended, by", "  name   what"])
        self.assertEqual(self.declared["add"].comment, ["Adds, in", "order."])
        self.assertEqual(self.header.declarations[-1].text, "inline constexpr int kMost = 3;  // at most")

    def test_leaves_out_bodies_and_what_is_private(self):
        members = [one.text for one in self.declared["Result"].members]
        self.assertEqual(members[0], "explicit Result(int value = f({1, 2}));")
        self.assertEqual(members[2], "[[nodiscard]] int value() const;")
        self.assertEqual(len(members), 5)
        self.assertEqual(
            [one.text for one in self.declared["Result"].members[4].members], ["int count = 1;  // of all"]
        )

    def test_every_installed_header_is_read(self):
        headers = cpp_reference.read_headers()
        self.assertEqual(len(headers), len(cpp_reference.public_headers()))
        for header in headers:
            text = (ROOT / header.path).read_text(encoding="utf-8")
            with self.subTest(header=header.path):
                names = {one.name for one in header.declarations}
                self.assertLessEqual(
                    set(re.findall(r"^(?:class|struct|enum class) (\w+)[^;{]*\{", text, re.MULTILINE)), names
                )
                self.assertNotIn("private", [one.text for one in header.declarations])

    def test_says_where_a_header_cannot_be_read(self):
        with self.assertRaisesRegex(cpp_reference.Unreadable, "dear/y.h"):
            cpp_reference.parse("struct A { int b(", "dear/y.h")


class Text(unittest.TestCase):
    def test_names_become_code_and_signs_stay(self):
        self.assertEqual(markup.inline("a * b_c of x < y calls step()"), "a \\* `b_c` of x &lt; y calls `step()`")
        self.assertEqual(
            markup.inline("see docs/faq.md", lambda name: f"../{name}"), "see [`docs/faq.md`](../docs/faq.md)"
        )

    def test_arguments_are_a_list_and_indented_lines_stay(self):
        made = markup.prose(
            ["Does it.", "", "    code = 1", "", "size: of all,", "    in bytes.", "Note: no argument."],
            names={"size"},
            language="python",
        )
        self.assertIn("- `size`: of all, in bytes.", made)
        self.assertIn("code = 1", made)
        self.assertIn("Note: no argument.", made)


class Python(unittest.TestCase):
    def setUp(self):
        self.package = python_reference.Package()

    def test_every_exported_name_is_found_and_told(self):
        with tempfile.TemporaryDirectory() as folder:
            python_reference.write(pathlib.Path(folder))
            text = "".join(page.read_text(encoding="utf-8") for page in pathlib.Path(folder).glob("*.md"))
            index = (pathlib.Path(folder) / "index.md").read_text(encoding="utf-8")
        for name in self.package.exported():
            with self.subTest(name=name):
                self.assertTrue(self.package.find(name, "__init__"))
                self.assertTrue(f"{{#dear.{name}}}" in text or f'id="dear.{name}"' in text)
                told = re.search(rf"^\| \[`dear\.{name}`\]\(\S+\) \| (.*) \|$", index, re.MULTILINE)
                self.assertTrue(told and told[1].strip(), f"dear.{name} has no docstring")

    def test_what_the_binding_says_is_found(self):
        docs = self.package.binding_docs
        self.assertIn("The ranks of a job", docs["", "Group"])
        self.assertIn("without a wait", docs["Group", "abort"])
        self.assertIn("cannot be used", docs["", "ConfigError"])
        self.assertIn("\ntimeout: seconds", docs["", "init"])


class Navigation(unittest.TestCase):
    def test_has_every_page_once(self):
        pages = make_pages.project_pages()
        groups = make_pages.read_navigation((ROOT / "docs/site/navigation.txt").read_text(encoding="utf-8"), pages)
        placed = [page for _, members in groups for page in members if not page.startswith("reference/")]
        self.assertEqual(sorted(placed), pages)

    def test_refuses_a_page_without_a_place(self):
        with self.assertRaisesRegex(make_pages.Misplaced, "docs/new.md: give it a line"):
            make_pages.read_navigation("Start\n  README.md\n", ["README.md", "docs/new.md"])
        with self.assertRaisesRegex(make_pages.Misplaced, "names docs/old.md"):
            make_pages.read_navigation("Start\n  docs/old.md\n", [])


class Pages(unittest.TestCase):
    def test_calls_of_a_gradient_are_in_the_files_named(self):
        page = (ROOT / "docs/reading_the_source.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| \d+ \| `(\w+::[\w:]+)` \| \[[\w.]+\]\(\.\./([\w/.]+)\)", page, re.MULTILINE)
        self.assertGreater(len(rows), 15)
        for call, file in rows:
            with self.subTest(call=call):
                self.assertTrue(f"{call}(" in (ROOT / file).read_text(encoding="utf-8"), f"{call} is not in {file}")

    def test_versions_of_formats_are_those_of_the_sources(self):
        written = {}
        for source in [*ROOT.glob("dear/**/*.cpp"), *ROOT.glob("dear/**/*.h")]:
            for fields in re.findall(
                r"JsonFormat k\w+\s*=?\s*\{\s*(\.name[^}]*)\}", source.read_text(encoding="utf-8")
            ):
                if source.name.endswith("_test.cpp"):
                    continue
                name = re.search(r'\.name = "([\w-]+)"', fields)[1]
                version = int(re.search(r"\.version = (\d+)", fields)[1]) if ".version" in fields else 1
                oldest = int(re.search(r"\.oldest = (\d+)", fields)[1]) if ".oldest" in fields else version
                written[name] = (f"{oldest} to {version}" if oldest < version else str(version), str(version))
        trace = re.search(
            r"constexpr int kVersion = (\d+);", (ROOT / "dear/base/trace/chrome.cpp").read_text(encoding="utf-8")
        )[1]
        written["dear-trace"] = (trace, trace)
        page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
        told = {
            name: (reads, writes)
            for name, reads, writes in re.findall(r"^\| `(dear-[\w-]+)` \| ([\w ]+) \| (\d+) \|", page, re.MULTILINE)
        }
        self.assertEqual(told, written)


if __name__ == "__main__":
    unittest.main()
