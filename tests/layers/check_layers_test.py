"""The check of the layers, on made-up trees."""

import pathlib
import tempfile
import unittest

from check_layers import Tree, read_storeys, uses_in

GOOD = {
    "cmake/storeys.txt": "# bottom up\nbase types text\njobs trace layers\ntools cost command\nstudies paper\nbench\n",
    "cmake/public_headers.txt": "# ids\nbase/types/ids.h\n",
    "examples/e.cpp": "#include <dear/base/types/ids.h>\n",
    "dear/base/types/ids.h": "#pragma once\nclass Ids {\n  friend class Reader;\n};\nclass Reader;\n",
    "dear/base/types/reader.h": "class Reader {\n  int read();\n};\n",
    "dear/base/types/reader.cpp": "int Reader::read() {\n",
    "dear/base/types/CMakeLists.txt": "dear_library(types SOURCES error.cpp)\nadd_library(dear_types_testing STATIC t.cpp)\n",
    "dear/base/types/error.h": "#pragma once\n#include <string>\n",
    "dear/base/text/CMakeLists.txt": "dear_library(text SOURCES t.cpp USES types)\n",
    "dear/jobs/trace/CMakeLists.txt": "dear_library(trace SOURCES trace.cpp USES types)\n",
    "dear/jobs/trace/trace.h": '#include "dear/base/types/error.h"\n',
    "dear/jobs/layers/CMakeLists.txt": "dear_library(layers\n  SOURCES w.cpp\n  USES types_testing\n  LIBRARIES fmt::fmt)\n",
    "dear/jobs/layers/w.h": '#include "dear/jobs/layers/other.h"\n#include "dear/base/types/error.h"\n',
    "dear/tools/cost/CMakeLists.txt": "dear_library(cost SOURCES c.cpp USES layers)\n",
    "dear/tools/cost/ring/c.cpp": '#include "dear/jobs/layers/w.h"\n#include "dear/base/types/error.h"\n',
    "dear/tools/command/CMakeLists.txt": "dear_library(core SOURCES m.cpp USES trace)\ndear_test(t SOURCES t.cpp USES core)\n",
    "dear/tools/command/m.cpp": '#include "dear/jobs/trace/trace.h"\n',
    "studies/paper/CMakeLists.txt": "dear_library(study_paper SOURCES p.cpp USES core)\n",
    "studies/paper/p.cpp": '#include "dear/tools/command/m.h"\n#include "studies/paper/p.h"\n',
    "bench/CMakeLists.txt": "dear_program(b SOURCES b.cpp USES cost)\n",
    "bench/b.cpp": '#include "dear/tools/cost/c.h"\n',
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

    def test_refuses_an_include_of_a_storey_above(self):
        found = violations({"dear/base/types/error.h": '#pragma once\n#include "dear/jobs/trace/trace.h"\n'})
        self.assert_one(found, "dear/base/types/error.h:2", "includes dear/jobs/trace", "not below")
        found = violations({"dear/tools/command/m.cpp": '#include "studies/paper/p.h"\n'})
        self.assert_one(found, "dear/tools/command/m.cpp:1", "includes studies/paper", "not below")

    def test_refuses_an_include_of_a_folder_after_it_in_its_storey(self):
        found = violations({"dear/jobs/trace/trace.h": "#  include <dear/jobs/layers/w.h>\n"})
        self.assert_one(found, "dear/jobs/trace/trace.h:1", "includes dear/jobs/layers", "not below")

    def test_refuses_an_include_of_a_folder_that_is_not_linked(self):
        found = violations({"dear/tools/cost/ring/c.cpp": '#include "dear/jobs/trace/trace.h"\n'})
        self.assert_one(found, "dear/tools/cost/ring/c.cpp:1", "does not use")

    def test_refuses_a_link_to_what_is_not_below(self):
        found = violations({"dear/jobs/trace/CMakeLists.txt": "dear_library(trace SOURCES t.cpp USES types cost)\n"})
        self.assert_one(found, "dear/jobs/trace/CMakeLists.txt", "uses dear/tools/cost")

    def test_holds_tests_to_the_storeys_as_well(self):
        found = violations({"dear/jobs/trace/trace_test.cpp": '#include "dear/tools/cost/c.h"\n'})
        self.assert_one(found, "dear/jobs/trace/trace_test.cpp:1")

    def test_refuses_an_include_of_a_folder_in_no_storey(self):
        found = violations({"dear/tools/cost/ring/c.cpp": '#include "dear/jobs/magic/m.h"\n'})
        self.assert_one(found, "dear/jobs/magic", "in no storey")

    def test_refuses_a_folder_in_no_storey(self):
        self.assert_one(violations({"dear/jobs/magic/m.h": "\n"}), "dear/jobs/magic", "in no storey")
        self.assert_one(violations({"dear/magic/m/m.h": "\n"}), "dear/magic/m", "in no storey")
        self.assert_one(violations({"studies/magic/m.h": "\n"}), "studies/magic", "in no storey")

    def test_refuses_a_friend_in_another_folder(self):
        found = violations({"dear/jobs/trace/trace.h": "class Trace {\n  friend class dear::Reader;\n};\n"})
        self.assert_one(found, "dear/jobs/trace/trace.h:2", "Reader of dear/base/types")

    def test_refuses_a_function_of_a_class_of_another_folder(self):
        found = violations({"dear/jobs/trace/trace.cpp": "\nint Reader::read() {\n"})
        self.assert_one(found, "dear/jobs/trace/trace.cpp:2", "Reader", "dear/base/types")

    def test_refuses_files_over_their_size(self):
        for name, limit in {"dear/tools/cost/a.h": 200, "dear/tools/cost/a.cpp": 400, "dear/tools/cost/a_test.cpp": 600}.items():
            self.assertEqual(violations({name: "//\n" * limit}), [])
            self.assert_one(violations({name: "//\n" * (limit + 1)}), name, f"at most {limit}")

    def test_accepts_a_reason_for_a_size_but_not_an_empty_one(self):
        self.assertEqual(violations({"dear/tools/cost/a.h": "// size: one table\n" + "//\n" * 300}), [])
        self.assert_one(violations({"dear/tools/cost/a.h": "// size:\n" + "\n" * 300}), "dear/tools/cost/a.h")

    def test_refuses_a_public_header_that_is_not_there(self):
        found = violations({"cmake/public_headers.txt": "base/types/ids.h\nbase/types/none.h\n"})
        self.assert_one(found, "cmake/public_headers.txt", "base/types/none.h")

    def test_refuses_an_include_of_what_is_not_installed(self):
        found = violations({"dear/base/types/ids.h": '#include "dear/base/types/error.h"\n'})
        self.assert_one(found, "dear/base/types/ids.h:1", "base/types/error.h", "not installed")
        found = violations({"examples/e.cpp": "\n#include <dear/jobs/layers/w.h>\n"})
        self.assert_one(found, "examples/e.cpp:2", "jobs/layers/w.h")

    def test_refuses_a_folder_over_its_size_without_its_tests(self):
        reason = "// size: made up\n"
        self.assertEqual(violations({"dear/tools/cost/a_test.cpp": reason + "//\n" * 6000}), [])
        self.assertEqual(violations({"dear/tools/cost/testing/a.cpp": reason + "//\n" * 6000}), [])
        self.assert_one(violations({"dear/tools/cost/a.cpp": reason + "//\n" * 6000}), "dear/tools/cost:", "6000")

    def test_refuses_classes_of_more_than_40_methods(self):
        def header(count):
            special = "  Wide();\n  ~Wide();\n  Wide& operator=(const Wide&) = delete;\n"
            data = "  std::function<void(int)> told{};  // f(x)\n  using Act = void (*)(int);\n  enum class Kind { a };\n"
            methods = "".join(f"  [[nodiscard]] const Map<int>& f{i}(int x) const {{ return g(x); }}\n" for i in range(count))
            return f"class Wide {{\n public:\n{special}{data} private:\n{methods}}};\n"

        self.assertEqual(violations({"dear/base/types/wide.h": header(40)}), [])
        found = violations({"dear/base/types/wide.h": header(41)})
        self.assertEqual(len(found), 1)
        self.assertIn("Wide has 41 methods", found[0])

    def test_refuses_names_that_say_nothing(self):
        self.assert_one(violations({"dear/tools/cost/utils/a.h": "\n"}), "dear/tools/cost/utils")
        self.assert_one(violations({"dear/tools/cost/helpers.cpp": "\n"}), "dear/tools/cost/helpers.cpp")
        self.assert_one(violations({"tests/common/a.py": "\n"}), "tests/common")

    def test_refuses_words_that_are_gone(self):
        found = violations({"dear/jobs/trace/trace.cpp": "\n// as RollCall does\n"})
        self.assert_one(found, "dear/jobs/trace/trace.cpp:2", "'RollCall'")

    def test_reads_storeys_and_links(self):
        self.assertEqual(read_storeys("# x\na\nb c d # e\n"), [("a", []), ("b", ["c", "d"])])
        self.assertEqual(uses_in("# dear_library(x USES no)\ndear_library(x SOURCES s USES a b LIBRARIES l)"), {"a", "b"})


if __name__ == "__main__":
    unittest.main()
