"""Sides that did not compute the same are not compared:  verify_test.py"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch
from cases import CASES
from rank import verify
from sides import Side, plain

STEPS = 20


class Verify(unittest.TestCase):
    def trained(self, steps: int = STEPS, batch: int = 8) -> Side:
        case = CASES["mlp"](layers=2, width=16)
        side, samples = plain(case, ""), case.batches(batch, 0)
        for _ in range(steps):
            side.step(samples)
        return side

    def setUp(self):
        self.first = self.trained()
        self.start = torch.cat([one.detach().reshape(-1) for one in self.first.case.make_model().parameters()])

    def refused(self, *sides: Side) -> str:
        with self.assertRaises(SystemExit) as refused:
            verify({f"side {number}": side for number, side in enumerate(sides)}, self.start)
        return str(refused.exception)

    def test_the_same_steps_are_accepted(self):
        found = verify({"one": self.first, "two": self.trained()}, self.start)
        self.assertEqual((found["losses"], found["parameters"]), (0, 0))

    def test_other_samples_are_refused(self):
        self.assertIn("side 1", self.refused(self.first, self.trained(batch=4)))

    def test_other_parameters_are_refused(self):
        other = self.trained()
        with torch.no_grad():
            next(other.model.parameters()).mul_(1 + 1e-3)
        self.assertIn("parameters", self.refused(self.first, other))

    def test_more_steps_are_refused(self):
        self.assertIn("steps", self.refused(self.first, self.trained(STEPS + 1)))

    def test_without_training_there_is_nothing_to_compare(self):
        self.assertIn("moved", self.refused(self.trained(0), self.trained(0)))


if __name__ == "__main__":
    unittest.main()
