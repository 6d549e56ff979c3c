"""Tests of the lab itself, without a guest: what it refuses, how it counts, and that its judgements can fail."""

import json
import tempfile
import tomllib
import unittest
from dataclasses import replace
from pathlib import Path

import apply
import judge
import kernel_tests
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
        (self.job / "peak").write_text("9000")

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

    def test_more_than_12_megabytes_of_memory_or_none_fail(self):
        for peak in ("12289", "0", ""):
            (self.job / "peak").write_text(peak)
            self.assertFalse(self.verdicts()["memory"])

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
        short = line("[download]\nrate_kbit = 20000\noverhead = 34\nbuffer_ms = 3")
        zero = lambda kbit: judge.downloaded(short, outcome | {"download": {"kbit": kbit, "why": "adds 2 ms"}}, outcome)[0].passed
        self.assertEqual((zero(0), zero(17500), zero(None)), (True, False, False))
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


class Applied(unittest.TestCase):
    """What the agent has written, and the ways in which that can be wrong."""

    BEFORE = "\nconfig queue 'eth7'\n\toption interface 'eth7'\n\nconfig queue\n\toption interface 'wan'\n\toption enabled '1'\n" + (
        "\toption download '24000'\n\toption upload '3000'\n\toption script 'layer_cake.qos'\n\toption linklayer 'none'\n\toption mine 'a # b'\n\n"
    )
    OUTCOME = {"upload": {"kbit": 5700}, "link": {"write_layer": "ethernet", "write_overhead": 34, "write_mpu": 84}}

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.job = Path(self.scratch.name)
        self.state("before", self.BEFORE)
        self.state("after", apply.expected(self.BEFORE, self.OUTCOME), up=5700, overhead=34, mpu=84)

    def tearDown(self):
        self.scratch.cleanup()

    def state(self, word, text, up=3000, down=24000, overhead=0, mpu=0, packets=9, redirect=True, boot="disabled", files=""):
        def cake(device, kbit):
            options = {"bandwidth": kbit * 125, "diffserv": "diffserv3" if device == "wan" else "besteffort", "rtt": 100000, "overhead": overhead, "mpu": mpu, "atm": "noatm"}
            return {"dev": device, "kind": "cake", "handle": "1:", "root": True, "packets": packets, "options": options}

        for part, what in (
            ("sqm", text),
            ("boot", boot),
            ("calls", ""),
            ("filter", "action order 1: mirred (Egress Redirect to device ifb4wan) stolen" if redirect else ""),
            ("qdisc", json.dumps([cake("wan", up), cake("ifb4wan", down)])),
            ("files", "\n".join([*apply.LEFT, files])),
        ):
            (self.job / f"{word}.{part}").write_text(what)

    def test_the_owners_options_stay_and_ours_go_to_the_end(self):
        after = apply.expected(self.BEFORE, self.OUTCOME)
        self.assertIn("config queue\n\toption interface 'wan'\n\toption enabled '1'\n\toption download '24000'\n\toption script 'layer_cake.qos'\n", after)
        self.assertTrue(after.endswith("\toption mine 'a # b'\n\toption upload '5700'\n\toption linklayer 'ethernet'\n\toption overhead '34'\n"
            "\toption linklayer_advanced '1'\n\toption tcMPU '84'\n\toption linklayer_adaptation_mechanism 'default'\n\n"))
        self.assertTrue(apply.bytes_written(self.job, "after", self.OUTCOME).passed)
        for wrong in (after.replace("a # b", "a"), after.replace("eth7", "eth8"), after + "\n", after.replace("5700", "5701"), ""):
            (self.job / "after.sqm").write_text(wrong)
            self.assertFalse(apply.bytes_written(self.job, "after", self.OUTCOME).passed, wrong)

    def test_a_kernel_that_does_something_else_fails(self):
        self.assertTrue(apply.follows(self.job, "after").passed, apply.follows(self.job, "after").text)
        right = {"up": 5700, "overhead": 34, "mpu": 84}
        text = apply.expected(self.BEFORE, self.OUTCOME)
        for wrong in ({"up": 5600}, {"down": 23000}, {"overhead": 38}, {"mpu": 0}, {"redirect": False}, {"packets": 0}):
            self.state("after", text, **(right | wrong))
            self.assertFalse(apply.follows(self.job, "after").passed, wrong)
        self.assertTrue(apply.follows(self.job, "before").passed)

    def test_what_is_not_put_back_fails(self):
        self.state("revert", self.BEFORE)
        self.assertTrue(apply.put_back(self.job, "revert").passed)
        for wrong in ({"text": self.BEFORE + "\n"}, {"text": ""}, {"up": 3001}, {"redirect": False}, {"boot": "enabled"}, {"files": "/etc/sqm-autotune/begun.json"}):
            self.state("revert", **({"text": self.BEFORE} | wrong))
            self.assertFalse(apply.put_back(self.job, "revert").passed, wrong)

    def row(self, at, calls=2, file="1 1", memory="7", **wan):
        return {"at": at, "exit": 0, "answer": {"wans": [{"due": False, "written": False, "outcome": None, "why": "", **wan}]}, "calls": calls, "file": file, "memory": memory}

    def judged_day(self, retuned="4740", **wrong):
        """A day as it should be, with one row done otherwise."""
        run = dict(due=True, written=True, outcome="tuned", calls=6, file="2 2", memory="8")
        rows = [self.row(f"1 13:{minute}") for minute in range(10, 60)]
        rows += [self.row("1 14:00"), self.row("1 15:00"), self.row("1 15:02", calls=4), self.row("1 16:00", calls=4)]
        rows += [self.row("2 03:15", **run)] + [self.row(f"2 13:{minute}", calls=6, file="2 2", memory="9") for minute in range(10, 60)]
        for at, values in wrong.items():
            rows = [self.row(row["at"], **(run if row["at"] == "2 03:15" else {"calls": row["calls"], "file": row["file"], "memory": row["memory"]}) | values) if row["at"] == at else row for row in rows]
        (self.job / "day.jsonl").write_text("\n".join(map(json.dumps, rows)))
        text = apply.expected(self.BEFORE, {**self.OUTCOME, "upload": {"kbit": int(retuned)}})
        (self.job / "apply.exit").write_text("0")
        self.state("healed", self.BEFORE, packets=0)
        for word in ("retuned", "after"):
            self.state(word, text, up=int(retuned), overhead=34, mpu=84)
        return {check.name: check.passed for check in apply.day(self.job)}

    def test_a_day_is_judged_by_its_only_run(self):
        self.assertEqual(set(self.judged_day().values()), {True}, self.judged_day())
        for name, wrong in (
            ("one run", {"2 03:15": {"written": False}}),
            ("one run", {"2 13:20": {"written": True}}),
            ("in the window", {"2 13:20": {"outcome": "tuned"}}),
            ("no run for a training", {"1 14:00": {"outcome": "failed"}}),
            ("nothing written before the drop", {"1 13:30": {"memory": "8"}}),
            ("nothing written before the drop", {"1 13:30": {"due": True}}),
            ("nothing written after the run", {"2 13:30": {"file": "3 3"}}),
            ("nothing written after the run", {"2 13:30": {"calls": 7}}),
            ("CAKE comes back", {"1 15:02": {"calls": 2}}),
        ):
            with self.subTest(name, wrong=wrong):
                self.assertFalse(self.judged_day(**wrong)[name])
        self.assertFalse(self.judged_day(retuned="5700")["fits"])

    def test_a_test_that_is_skipped_or_missing_fails(self):
        good = "running 2 tests\ntest a ... ok\ntest b ... said\nok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n"
        (self.job / "exit").write_text("0")
        for out, fine in (
            (good, True),
            (good.replace("said", "skipped: no CAKE"), False),
            (good.replace("test b", "text b"), False),
            (good.replace("... ok", "... FAILED"), False),
            ("", False),
        ):
            (self.job / "stdout").write_text(out)
            self.assertEqual(all(check.passed for check in kernel_tests.tested(self.job)), fine, out)


if __name__ == "__main__":
    unittest.main()
