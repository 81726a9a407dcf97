"""The verdict of bench/soak: slow growth is told from wobble and outliers, whatever the length of the run."""

import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import soaking  # noqa: E402  # the path to bench/ is set above

MIB = soaking.MIB
FLAT = {"rss": 200 * MIB, "handles": 80, "threads": 30, "disk": 500 * MIB, "log_lines": 20}


def run_of(seconds, noise=None, **curves):
    """Samples of a run; `curves` give a figure at a second, all others are flat, memory and disk with a wobble of two percent."""
    noise = noise or random.Random(1)
    samples = []
    for second in range(seconds + 1):
        figures = {name: value * (1 + noise.uniform(-0.02, 0.02)) if name in ("rss", "disk") else value for name, value in FLAT.items()}
        figures.update({name: curve(second) for name, curve in curves.items()})
        samples.append({"seconds": float(second), "steps": 50 * second, **figures})
    return soaking.with_rates(samples)


def not_flat(samples):
    """Names of the curves that are not."""
    return [found.measure.name for found in soaking.judge(samples) if not found.flat]


def test_flat_curves_with_wobble_are_flat_in_short_and_long_runs():
    for seconds in (60, 600, 7200):
        assert not_flat(run_of(seconds)) == []


def test_each_curve_that_grows_is_told_by_its_name():
    assert not_flat(run_of(3600, rss=lambda s: 200 * MIB + s * MIB // 30)) == ["rss"]
    assert not_flat(run_of(3600, handles=lambda s: 80 + s // 200)) == ["handles"]
    assert not_flat(run_of(3600, threads=lambda s: 30 + s // 400)) == ["threads"]
    assert not_flat(run_of(3600, disk=lambda s: 500 * MIB + s * MIB // 10)) == ["disk"]
    assert not_flat(run_of(3600, log_lines=lambda s: 20 + s // 60)) == ["log_lines"]


def test_growth_that_ended_before_the_second_half_is_no_growth():
    assert not_flat(run_of(3600, rss=lambda s: min(s, 1500) * MIB)) == []


def test_outliers_do_not_decide():
    assert not_flat(run_of(3600, rss=lambda s: (900 if s % 10 < 2 else 200) * MIB)) == []


def test_work_that_becomes_slower_is_told_and_faster_is_not():
    slower = [{**sample, "rate": 50 - sample["seconds"] / 100} for sample in run_of(3600)]
    assert not_flat(slower) == ["rate"]
    faster = [{**sample, "rate": 50 + sample["seconds"] / 100} for sample in run_of(3600)]
    assert not_flat(faster) == []


def test_the_slope_is_the_median_of_pairs_and_buckets_keep_it():
    line = [(float(x), 3.0 * x + 1) for x in range(1000)]
    assert abs(soaking.slope(line[:50]) - 3) < 1e-9 and abs(soaking.slope(soaking.buckets(line, 40)) - 3) < 1e-9
    assert len(soaking.buckets(line, 40)) == 40 and soaking.slope([(1.0, 5.0)]) == 0


def test_the_limits_are_in_the_help():
    text = soaking.limits_text()
    assert all(measure.title in text for measure in soaking.MEASURES) and "fall of at most 25%" in text


def test_a_chart_is_drawn(tmp_path):
    written = soaking.draw(run_of(60), tmp_path / "soak")
    assert [path.name for path in written] == ["soak.svg", "soak.png"] and all(path.stat().st_size > 1000 for path in written)
