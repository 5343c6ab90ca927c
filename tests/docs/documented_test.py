"""The checks of pages find what they are to find:  documented_test.py DEAR"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import command_reference
import documented_commands
import pages

DEAR = pathlib.Path()


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def page(self, text, name="page.md"):
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        return path

    def blocks(self, text):
        return pages.read_blocks(self.page(text), self.root)


class Blocks(Page):
    def test_know_their_place_language_and_marks(self):
        (block,) = self.blocks("text\n\n<!-- not run: minutes -->\n<!-- numbers vary -->\n\n```sh\nscripts/demo\n```\n")
        self.assertEqual((block.place, block.language, block.lines), ("page.md:6", "sh", ["scripts/demo"]))
        self.assertEqual(block.marks, {"not run": "minutes", "numbers vary": ""})

    def test_have_no_mark_that_other_text_follows(self):
        (block,) = self.blocks("<!-- needs torch -->\nSome text.\n```sh\ndear\n```\n")
        self.assertEqual(block.marks, {})

    def test_that_are_not_closed_are_refused(self):
        with self.assertRaisesRegex(ValueError, "page.md:1"):
            self.blocks("```sh\ndear\n")

    def test_of_a_console_are_commands_with_their_output(self):
        (block,) = self.blocks("```console\n$ one \\\n    two\nout\n\nmore\n$ three\n```\n")
        steps = pages.steps_of(block)
        self.assertEqual([(step.line, step.command, step.output) for step in steps], [(2, "one two", ["out", "", "more"]), (7, "three", [])])

    def test_of_sh_are_a_command_a_line(self):
        (block,) = self.blocks("```sh\n# why\none\n\ntwo\n```\n")
        self.assertEqual([step.command for step in pages.steps_of(block)], ["one", "two"])


class Anchors(Page):
    def test_are_those_of_the_headings(self):
        found = pages.anchors(self.page("# A `b`, c: d\n\n```sh\n# no heading\n```\n\n## Twice\n\n## Twice\n"))
        self.assertEqual(found, {"a-b-c-d", "twice", "twice-1"})

    def test_links_are_found_outside_of_code(self):
        found = pages.links(self.page("[a](b.md#c) `[no](link)`\n```\n[no](link)\n```\n<img src=\"d.svg\">\n"))
        self.assertEqual(found, [(1, "b.md#c"), (5, "d.svg")])


class Commands(Page):
    def errors(self, text, features=()):
        runner = documented_commands.Runner(DEAR, set(features))
        for block in self.blocks(text):
            runner.run_block(block, self.root)
        self.ran = runner.ran
        return "\n".join(runner.errors)

    def test_run_where_the_page_stands_with_dear_first(self):
        self.assertEqual(self.errors("```console\n$ dear --version | head -c4; echo\ndear\n```\n"), "")
        self.assertEqual(self.ran, 1)

    def test_that_print_something_else_are_errors(self):
        self.assertIn("page.md:2", self.errors("```console\n$ echo one\ntwo\n```\n"))
        self.assertIn("+two", self.errors("```console\n$ printf 'one\\ntwo\\n'\none\n```\n"))

    def test_that_fail_are_errors(self):
        self.assertIn("exit code 3", self.errors("```sh\nexit 3\n```\n"))
        self.assertIn("exit code 2", self.errors("```sh\ndear teleport\n```\n"))

    def test_may_leave_out_lines(self):
        text = "```console\n$ seq 1 5\n1\n...\n%s\n```\n"
        self.assertEqual(self.errors(text % "5"), "")
        self.assertNotEqual(self.errors(text % "6"), "")

    def test_may_have_numbers_that_vary(self):
        self.assertEqual(self.errors("<!-- numbers vary -->\n```console\n$ echo '1,024.5 ms   7 %'\n98 ms  2 %\n```\n"), "")
        self.assertNotEqual(self.errors("<!-- numbers vary -->\n```console\n$ echo '10 ms'\n98 MiB\n```\n"), "")

    def test_may_have_times_in_other_units(self):
        self.assertEqual(self.errors("<!-- numbers vary -->\n```console\n$ echo 1.2 s, 3 MiB\n980 ms, 4 MiB\n```\n"), "")

    def test_may_have_digests_that_vary(self):
        text = "<!-- numbers vary -->\n```console\n$ echo parameters: %s\nparameters: %s\n```\n"
        self.assertEqual(self.errors(text % ("0123456789abcdef" * 4, "f" * 64)), "")
        self.assertNotEqual(self.errors(text % ("facade", "f" * 64)), "")

    def test_are_not_run_where_the_page_says_why(self):
        self.assertEqual(self.errors("<!-- not run: it fails -->\n```sh\nexit 3\n```\n"), "")
        self.assertEqual(self.ran, 0)
        self.assertIn("says nothing", self.errors("<!-- not run -->\n```sh\nexit 3\n```\n"))

    def test_run_where_what_they_need_is_built(self):
        text = "<!-- needs torch -->\n```sh\nexit 3\n```\n"
        self.assertEqual(self.errors(text), "")
        self.assertIn("exit code 3", self.errors(text, ["torch"]))

    def test_find_the_files_of_the_page(self):
        self.assertEqual(self.errors("<!-- file: a.json -->\n```json\n{}\n```\n```console\n$ cat a.json\n{}\n```\n"), "")

    def test_are_of_a_language_with_marks_that_are_known(self):
        self.assertIn("language", self.errors("```\nexit 3\n```\n"))
        self.assertIn("unknown mark 'is slow'", self.errors("<!-- is slow -->\n```sh\ntrue\n```\n"))


class Reference(unittest.TestCase):
    HELP = (
        "does things\n"
        "Usage: dear do [OPTIONS] FILE\n\n"
        "Positionals:\n"
        "  FILE                        What to read (required)\n\n"
        "Options:\n"
        "  -h,--help                   Print this help message and exit\n"
        "  -n,--ranks N                Ranks, 1 to\n"
        "                              9 (required)\n"
        "  --policy NAME[,NAME...]     Policies | all\n"
        "  --method NAME               Method: a or b (default: a)\n\n"
        "A footer.\n"
    )

    def test_is_a_table_of_the_help(self):
        text = command_reference.markdown("dear do", self.HELP)
        self.assertIn("Does things.\n\n```text\ndear do [OPTIONS] FILE\n```\n", text)
        for row in (
            "| `FILE` | required | What to read |",
            "| `-n`, `--ranks N` | required | Ranks, 1 to 9 |",
            "| `--policy NAME[,NAME...]` |  | Policies \\| all |",
            "| `--method NAME` | `a` | Method: a or b |",
        ):
            self.assertIn(row + "\n", text)
        self.assertNotIn("--help", text)
        self.assertTrue(text.endswith("A footer.\n"), text)


if __name__ == "__main__":
    DEAR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
