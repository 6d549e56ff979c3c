"""Tests of the lab itself, without a guest: what it refuses, how it counts, and that its judgements can fail."""

import json
import tempfile
import tomllib
import unittest
from dataclasses import replace
from pathlib import Path

import judge
import overheads
from scenario import Refused, Scenario, parse, read

HERE = Path(__file__).resolve().parent
LEAST = '[upload]\nrate_kbit = 18000\noverhead = 34\n'


def line(text: str = "", upload: str = "") -> Scenario:
    return parse(tomllib.loads(LEAST + upload + "\n" + text), Path("line.toml"))


def found(layer: str, overhead: int, source: str = "measured") -> dict:
    return {"source": source, "layer": layer, "overhead": overhead, "overhead_low": overhead - 1, "overhead_high": overhead + 1}


class Scenarios(unittest.TestCase):
    def test_what_netem_cannot_do_is_refused_by_name(self):
        for text, upload, key in (
            ("", "grant_ms = 3", "upload.grant_ms"),
            ("", "aqm_ms = 30", "upload.aqm_ms"),
            ("", "burst_kbit = 30000", "upload.burst_kbit"),
            ("", "burst_s = 5", "upload.burst_s"),
            ("", 'cell = "ptm"', "upload.cell"),
            ("[path]\njitter_ms = 0.8", "", "path.jitter_ms"),
            ("[router]\nshaper_cpu_kbit = 9000", "", "router.shaper_cpu_kbit"),
            ('[[reflector]]\nname = "a"\nsilent_from_s = 3', "", "reflector.silent_from_s"),
            ('[[reflector]]\nname = "a"\nextra_ms = 3.0', "", "reflector.extra_ms"),
        ):
            with self.subTest(key), self.assertRaisesRegex(Refused, rf"cannot do {key}\b"):
                line(text, upload)

    def test_their_neutral_values_are_accepted(self):
        scenario = line("[path]\njitter_ms = 0.0\n[router]\nshaper_cpu_kbit = 0\n", "grant_ms = 0\naqm_ms = 0")
        self.assertEqual(scenario.upload.rate_kbit, 18000)

    def test_a_mistake_is_named(self):
        for text, upload, words in (
            ("", "rate = 5", "unknown key upload.rate"),
            ("[paht]\nmtu = 1500", "", "unknown key paht"),
            ("", 'buffer_ms = "long"', "upload.buffer_ms is no number"),
        ):
            with self.subTest(words), self.assertRaisesRegex(Refused, words):
                line(text, upload)

    def test_every_scenario_here_can_be_done(self):
        for path in (HERE / "scenarios").glob("*.toml"):
            self.assertEqual(read(path).name, path.stem)

    def test_what_stands_beside_a_scenario_is_read(self):
        lines = HERE.parent / "calibration" / "lines"
        far = read(lines / "far-50.toml")
        self.assertEqual((far.steps, far.target_ms), ("link,search,target,verify", 8))
        self.assertEqual(read(HERE / "scenarios" / "measured-18.toml").steps, "")

    def test_fits_is_counted_as_the_shaper_counts(self):
        fits = line().upload.fits_kbit(1500, 44, 84, "ethernet")
        self.assertAlmostEqual(17800 / fits, 0.983, delta=0.001)  # a row of the project's measurements
        cells = line(upload='cell = "atm"').upload
        self.assertEqual((cells.wire_bytes(40), cells.wire_bytes(1500)), (106, 1696))

    def test_a_pppoe_link_is_a_session(self):
        scenario = line('[router]\nlink = "pppoe"\n[path]\nmtu = 1492', "buffer_packets = 9")
        self.assertEqual((scenario.device, scenario.upload.queue(1492)), ("pppoe-wan", "netem rate 18000kbit 12 limit 9"))
        self.assertIn("SESSION_BYTES=8\n", scenario.world())
        with self.assertRaisesRegex(Refused, "path.mtu above 1492"):
            line('[router]\nlink = "pppoe"')

    def test_the_set_of_overheads_is_what_it_says(self):
        lines = {scenario.name: (scenario.upload.overhead, scenario.upload.cell) for scenario in overheads.scenarios()}
        self.assertEqual(len(lines), 7)
        self.assertEqual((lines["frames-26"], lines["atm-32"]), ((26, "none"), (32, "atm")))

    def test_a_queue_is_what_netem_wants(self):
        upload = line(upload="buffer_ms = 180").upload
        self.assertEqual(upload.queue(1500), "netem rate 18000kbit 20 limit 264")
        self.assertEqual(line(upload='cell = "atm"\nbuffer_packets = 9').upload.queue(1500), "netem rate 18000kbit 20 48 5 limit 9")


class Judgements(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.job = Path(self.scratch.name)
        for word in ("before", "after"):
            (self.job / f"{word}.qdisc").write_text('[{"dev": "wan", "kind": "noqueue", "handle": "0:"}]')
            (self.job / f"{word}.rest").write_text("lan\nwan\n")
        (self.job / "exit").write_text("0\n")

    def tearDown(self):
        self.scratch.cleanup()

    def verdicts(self, kbit=17500, simulated=17500, outcome="tuned", wanted=0) -> dict:
        told = {
            "outcome": outcome,
            "upload": {"kbit": kbit},
            "link": found("ethernet", 34) | {"write_layer": "ethernet", "write_overhead": 34, "write_mpu": 84},
            "latency": {"grade_before": "D", "grade_after": "A+"},
            "cost": {"load_seconds": 40.0, "upload_bytes": 1, "download_bytes": 1},
            "trials": [],
            "target": {"target_ms": 8.0, "why": "it carries more"},
        }
        (self.job / "stdout").write_text(json.dumps(told))
        prediction = {"outcome": "tuned", "upload": {"kbit": simulated}}
        checks = judge.calibration(replace(line(upload="buffer_ms = 180"), target_ms=wanted), self.job, prediction)[1]
        return {check.name: check.passed for check in checks}

    def test_a_good_calibration_passes(self):
        self.assertEqual(set(self.verdicts().values()), {True})

    def test_a_rate_outside_95_to_99_percent_fails(self):
        self.assertFalse(self.verdicts(kbit=17000)["fits"])
        self.assertFalse(self.verdicts(kbit=17900)["fits"])

    def test_a_prediction_more_than_3_percent_off_fails(self):
        self.assertFalse(self.verdicts(simulated=16900)["prediction"])

    def test_no_rate_where_one_is_needed_fails(self):
        verdicts = self.verdicts(kbit=0, outcome="unneeded")
        self.assertEqual((verdicts["outcome"], verdicts["fits"], verdicts["prediction"]), (False, False, False))

    def test_a_download_is_judged_by_the_margin_that_it_needs(self):
        truth = line("[download]\nrate_kbit = 20000\noverhead = 34\nbuffer_ms = 150")
        outcome = {
            "outcome": "tuned",
            "download": {"kbit": 17500, "why": ""},
            "link": {"write_layer": "ethernet", "write_overhead": 34, "write_mpu": 84},
            "latency": {"idle": {"p50": 20.0}, "grade_both": "A"},
        }
        passed = lambda kbit, both="A": {
            c.name: c.passed
            for c in judge.downloaded(
                truth, outcome | {"download": {"kbit": kbit}, "latency": outcome["latency"] | {"grade_both": both}}, outcome
            )
        }
        # 20,000 fit; four flows at 20 ms need 2,400 of it.
        self.assertEqual(set(passed(17500).values()), {True})
        self.assertFalse(passed(17700)["download"])
        self.assertFalse(passed(16600)["download"])
        self.assertFalse(passed(17500, "B")["both at once"])
        self.assertFalse(passed(16800)["prediction of the download"])
    def test_the_target_is_judged_where_it_is_asked_for(self):
        self.assertNotIn("target", self.verdicts())
        self.assertTrue(self.verdicts(wanted=8)["target"])
        self.assertFalse(self.verdicts(wanted=5)["target"])

    def test_a_wrong_link_fails(self):
        frames, cells, policed = line(), line(upload='cell = "atm"'), line(upload="policer_burst_kb = 60")
        for truth, link, right in (
            (frames, found("ethernet", 36), True),
            (frames, found("ptm", 32), True),
            (frames, found("ethernet", 37), False),
            (frames, found("atm", 34), False),
            (frames, found("ethernet", 34, "default"), False),
            (cells, found("atm", 36), True),
            (cells, found("atm", 37), False),
            (cells, found("ethernet", 34), False),
            (policed, found("unknown", 44, "default"), True),
            (policed, found("ethernet", 34), False),
        ):
            with self.subTest(link=link, cell=truth.upload.cell):
                self.assertEqual(judge.link_right(truth, link).passed, right)

    def test_a_session_that_is_not_bound_to_or_not_fitted_fails(self):
        truth = line('[router]\nlink = "pppoe"\n[path]\nmtu = 1492')
        trials = lambda mss: {"trials": [{"step": "search", "mss": mss}, {"step": "link", "mss": 216}]}  # noqa: E731
        self.assertFalse(judge.session(truth, self.job, trials(1452)).passed)
        (self.job / "unbound").write_text("1 packets transmitted, 0 received, 100% packet loss, time 0ms")
        self.assertTrue(judge.session(truth, self.job, trials(1452)).passed)
        self.assertFalse(judge.session(truth, self.job, trials(1460)).passed)

    def test_what_is_left_behind_fails(self):
        self.assertTrue(judge.put_back(self.job).passed)
        (self.job / "after.rest").write_text("lan\nwan\nifb4wan\n")
        self.assertIn("ifb4wan", judge.put_back(self.job).text)
        self.assertFalse(judge.put_back(self.job).passed)

    def test_another_queue_fails(self):
        (self.job / "after.qdisc").write_text('[{"dev": "wan", "kind": "cake", "handle": "8001:"}]')
        self.assertFalse(judge.put_back(self.job).passed)

    def test_no_outcome_fails(self):
        (self.job / "stdout").write_text("")
        self.assertFalse(judge.calibration(line(), self.job, "none")[1][0].passed)


if __name__ == "__main__":
    unittest.main()
