"""tools/bench-against with stand-ins for the benchmark programs, which write the figures that a test gives them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench-against"

# Writes the next of a list of times, and begins again at its end.
STAND_IN = """#!{python}
import json, pathlib, sys
state = pathlib.Path(__file__).with_suffix(".state")
turn = int(state.read_text()) if state.exists() else 0
state.write_text(str(turn + 1))
times = {times}
out = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--benchmark_out="))
runs = [{{"name": "hot_key/" + name + "/threads:1", "run_type": "iteration", "cpu_time": t[turn % len(t)]}}
        for name, t in times.items() if t]
runs += [{{"name": "hot_key/" + name, "run_type": "iteration", "error_occurred": True, "error_message": "no device"}}
         for name, t in times.items() if not t]
pathlib.Path(out).write_text(json.dumps({{"benchmarks": runs}}))
sys.exit({status})
"""


class BenchAgainst(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, side: str, times: dict[str, list[float]], status: int = 0) -> None:
        path = self.folder / side / "hit_bench"
        path.parent.mkdir()
        path.write_text(STAND_IN.format(python=sys.executable, times=json.dumps(times), status=status))
        path.chmod(0o755)

    def compare(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOL), str(self.folder / "before"), str(self.folder / "after"), "hit"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_fails_if_a_figure_is_slower_in_every_round(self) -> None:
        self.program("before", {"kiln": [10, 10.1, 9.9]})
        self.program("after", {"kiln": [11, 11.1, 10.9]})
        done = self.compare()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"hot_key/kiln/threads:1 cpu_time .* 1\.10\d \[.*\]  REGRESSED")
        self.assertIn("15 rounds", done.stdout)

    def test_passes_if_the_slower_rounds_are_noise(self) -> None:
        self.program("before", {"kiln": [10, 13, 10]})
        self.program("after", {"kiln": [13, 10, 10]})
        done = self.compare()
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_passes_if_a_figure_is_slower_by_less_than_the_limit(self) -> None:
        self.program("before", {"kiln": [10]})
        self.program("after", {"kiln": [10.4]})
        done = self.compare()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1.040 [1.040, 1.040]", done.stdout)
        self.assertIn("5 rounds", done.stdout)

    def test_leaves_out_rivals(self) -> None:
        self.program("before", {"kiln": [10], "critical_section": [10]})
        self.program("after", {"kiln": [10], "critical_section": [20]})
        done = self.compare()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("critical_section", done.stdout)

    def test_fails_with_its_message_if_a_benchmark_fails(self) -> None:
        self.program("before", {"kiln": [10]})
        self.program("after", {"kiln": [10]}, status=3)
        done = self.compare()
        self.assertEqual(done.returncode, 2)
        self.assertIn("after/hit_bench", done.stderr)
        self.assertIn("exited with 3", done.stderr)

    def test_fails_if_a_case_was_skipped_with_an_error(self) -> None:
        self.program("before", {"kiln": [10]})
        self.program("after", {"kiln": []})
        done = self.compare()
        self.assertEqual(done.returncode, 2)
        self.assertIn("hot_key/kiln failed: no device", done.stderr)

    def test_fails_if_the_later_build_does_not_measure_a_figure(self) -> None:
        self.program("before", {"kiln": [10], "kiln/two": [10]})
        self.program("after", {"kiln": [10]})
        done = self.compare()
        self.assertEqual(done.returncode, 2)
        self.assertIn("does not measure hot_key/kiln/two/threads:1 cpu_time", done.stderr)


if __name__ == "__main__":
    unittest.main()
