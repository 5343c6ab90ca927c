"""What programs link of tuning and of K-FAC:  linking_test.py NM PROGRAM CONTROL

PROGRAM names its buckets and runs; CONTROL tunes, and has K-FAC. Both link all of DeAR statically.
"""

import subprocess
import sys
import unittest

NM, PROGRAM, CONTROL = sys.argv[1:4]
OF_TUNING = ("dear::sim::", "dear::tune::", "dear::tuning::")
OF_KFAC = ("dear::methods::kfac::", "dear::systems::kfac::")


def found_in(file: str, namespaces: tuple[str, ...] = OF_TUNING) -> set[str]:
    """The namespaces of which the file defines a symbol, or names one."""
    symbols = subprocess.run([NM, "--demangle", file], check=True, capture_output=True, text=True).stdout
    return {namespace for namespace in namespaces if namespace in symbols}


class Linking(unittest.TestCase):
    def test_a_program_that_names_its_buckets_has_neither_simulator_nor_tuner(self) -> None:
        self.assertEqual(found_in(PROGRAM), set())

    def test_a_program_that_tunes_has_both(self) -> None:
        self.assertEqual(found_in(CONTROL), set(OF_TUNING))

    def test_a_program_without_kfac_has_none_of_it(self) -> None:
        self.assertEqual(found_in(PROGRAM, OF_KFAC), set())
        self.assertEqual(found_in(CONTROL, OF_KFAC), set(OF_KFAC))

    def test_the_program_trains(self) -> None:
        subprocess.run([PROGRAM], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
