"""The check of the layers, on made-up trees."""

import pathlib
import tempfile
import unittest

from check_layers import Tree, read_ladder, uses_in

GOOD = {
    "cmake/ladder.txt": "# bottom up\n0 base\n1 trace workload\n2 cost\n8 cli bench\n",
    "cmake/public_headers.txt": "# ids\nbase/ids.h\n",
    "examples/e.cpp": "#include <dear/base/ids.h>\n",
    "dear/base/ids.h": "#pragma once\n",
    "dear/base/CMakeLists.txt": "dear_library(base SOURCES error.cpp)\n",
    "dear/base/error.h": "#pragma once\n#include <string>\n",
    "dear/trace/CMakeLists.txt": "dear_library(trace SOURCES trace.cpp USES base)\n",
    "dear/trace/trace.h": '#include "dear/base/error.h"\n',
    "dear/workload/CMakeLists.txt": "dear_library(workload\n  SOURCES w.cpp\n  USES base\n  LIBRARIES fmt::fmt)\n",
    "dear/workload/w.h": '#include "dear/workload/other.h"\n#include "dear/base/error.h"\n',
    "dear/cost/CMakeLists.txt": "dear_library(cost SOURCES c.cpp USES workload)\n",
    "dear/cost/ring/c.cpp": '#include "dear/workload/w.h"\n#include "dear/base/error.h"\n',
    "dear/cli/CMakeLists.txt": "dear_library(cli_core SOURCES m.cpp USES trace)\ndear_test(t SOURCES t.cpp USES cli_core)\n",
    "dear/cli/m.cpp": '#include "dear/trace/trace.h"\n',
    "bench/CMakeLists.txt": "dear_program(b SOURCES b.cpp USES cost)\n",
    "bench/b.cpp": '#include "dear/cost/c.h"\n',
}


def violations(changes=None):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **(changes or {})}.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(Tree(folder).violations())


class CheckLayers(unittest.TestCase):
    def assert_one(self, found, *parts):
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_accepts_a_good_tree(self):
        self.assertEqual(violations(), [])

    def test_refuses_an_include_of_a_higher_line(self):
        found = violations({"dear/base/error.h": '#pragma once\n#include "dear/trace/trace.h"\n'})
        self.assert_one(found, "dear/base/error.h:2", "base includes trace", "lower line")

    def test_refuses_an_include_of_the_same_line(self):
        found = violations({"dear/trace/trace.h": '#  include <dear/workload/w.h>\n'})
        self.assert_one(found, "dear/trace/trace.h:1", "trace includes workload", "lower line")
        found = violations({"bench/b.cpp": '#include "dear/cli/m.h"\n'})
        self.assert_one(found, "bench/b.cpp:1", "bench includes cli")

    def test_refuses_an_include_of_a_folder_that_is_not_linked(self):
        found = violations({"dear/cost/ring/c.cpp": '#include "dear/trace/trace.h"\n'})
        self.assert_one(found, "dear/cost/ring/c.cpp:1", "does not use")

    def test_refuses_a_link_to_a_higher_line(self):
        found = violations({"dear/trace/CMakeLists.txt": "dear_library(trace SOURCES t.cpp USES base cost)\n"})
        self.assert_one(found, "dear/trace/CMakeLists.txt", "uses cost")

    def test_holds_tests_to_the_ladder_as_well(self):
        found = violations({"dear/trace/trace_test.cpp": '#include "dear/cost/c.h"\n'})
        self.assert_one(found, "dear/trace/trace_test.cpp:1")

    def test_refuses_an_include_of_a_folder_off_the_ladder(self):
        found = violations({"dear/cost/ring/c.cpp": '#include "dear/magic/m.h"\n'})
        self.assert_one(found, "dear/magic", "not on the ladder")

    def test_refuses_a_folder_off_the_ladder(self):
        self.assert_one(violations({"dear/magic/m.h": "\n"}), "dear/magic", "not on the ladder")

    def test_refuses_files_over_their_size(self):
        for name, limit in {"dear/cost/a.h": 200, "dear/cost/a.cpp": 400, "dear/cost/a_test.cpp": 600}.items():
            self.assertEqual(violations({name: "//\n" * limit}), [])
            self.assert_one(violations({name: "//\n" * (limit + 1)}), name, f"at most {limit}")

    def test_accepts_a_reason_for_a_size_but_not_an_empty_one(self):
        self.assertEqual(violations({"dear/cost/a.h": "// size: one table\n" + "//\n" * 300}), [])
        self.assert_one(violations({"dear/cost/a.h": "// size:\n" + "\n" * 300}), "dear/cost/a.h")

    def test_refuses_a_public_header_that_is_not_there(self):
        found = violations({"cmake/public_headers.txt": "base/ids.h\nbase/none.h\n"})
        self.assert_one(found, "cmake/public_headers.txt", "base/none.h")

    def test_refuses_an_include_of_what_is_not_installed(self):
        found = violations({"dear/base/ids.h": '#include "dear/base/error.h"\n'})
        self.assert_one(found, "dear/base/ids.h:1", "base/error.h", "not installed")
        found = violations({"examples/e.cpp": "\n#include <dear/workload/w.h>\n"})
        self.assert_one(found, "examples/e.cpp:2", "workload/w.h")

    def test_refuses_a_folder_over_its_size_without_its_tests(self):
        reason = "// size: made up\n"
        self.assertEqual(violations({"dear/cost/a_test.cpp": reason + "//\n" * 6000}), [])
        self.assertEqual(violations({"dear/cost/testing/a.cpp": reason + "//\n" * 6000}), [])
        self.assert_one(violations({"dear/cost/a.cpp": reason + "//\n" * 6000}), "dear/cost:", "6000")

    def test_refuses_names_that_say_nothing(self):
        self.assert_one(violations({"dear/cost/utils/a.h": "\n"}), "dear/cost/utils")
        self.assert_one(violations({"dear/cost/helpers.cpp": "\n"}), "dear/cost/helpers.cpp")
        self.assert_one(violations({"tests/common/a.py": "\n"}), "tests/common")

    def test_reads_the_ladder_and_links(self):
        self.assertEqual(read_ladder("# x\n0 a\n1 b c # d\n"), {"a": 0, "b": 1, "c": 1})
        self.assertEqual(uses_in("# dear_library(x USES no)\ndear_library(x SOURCES s USES a b LIBRARIES l)"), {"a", "b"})


if __name__ == "__main__":
    unittest.main()
