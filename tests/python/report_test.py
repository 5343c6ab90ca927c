"""dear.report(): the page of runs in a notebook and as a file."""

import html
import json
import os
import tempfile
import unittest

import torch

import dear


def data_of(report):
    return json.loads(report.html.split('id="data">')[1].split("</script>")[0])


class Report(unittest.TestCase):
    def simulation(self):
        return dear.simulate("resnet50", cluster="10gbe-64", policy=["wfbp", "dear"])

    def test_of_a_simulation_has_its_cases(self):
        simulation = self.simulation()
        runs = data_of(dear.report(simulation))["runs"]
        self.assertEqual(len(runs), 2)
        for run, case in zip(runs, simulation, strict=True):
            self.assertIn(case.policy, run["name"])
            self.assertEqual(run["results"][0]["iteration_seconds"], case.iteration_seconds)
            self.assertAlmostEqual(run["trace"]["summary"]["iteration_seconds"], case.iteration_seconds, delta=1e-8)

    def test_of_a_model_has_its_steps(self):
        net = torch.nn.Linear(4, 2)
        model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.1), record_trace=True)
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
        (run,) = data_of(dear.report(mine=model, title="A <title>"))["runs"]
        self.assertEqual((run["name"], run["trace"]["summary"]["iterations"]), ("mine", 3))

    def test_is_shown_in_a_frame_and_saved_as_it_is(self):
        report = dear.report(self.simulation())
        frame = report._repr_html_()
        self.assertEqual(html.unescape(frame.split('srcdoc="')[1].split('"')[0]), report.html)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            report.save(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), report.html)

    def test_refuses_what_it_cannot_show(self):
        for sources in ((), (3,), ("missing.json",)):
            with self.assertRaises(dear.ConfigError):
                dear.report(*sources)


if __name__ == "__main__":
    unittest.main()
