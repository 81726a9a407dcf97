"""Results of the server's storage_engine suite, recorded again from what this server prints.

Why it exists: the results that the packages bring were last recorded many releases ago; more than half of them differ for *every* engine
(a new column in SHOW KEYS, a collation in SHOW CREATE), so as installed the suite tells nothing about one engine.
Rule: a result is replaced only where InnoDB and at least one of MyISAM, Aria and MyRocks print exactly the same text. No expectation
is written by hand, and PBXT has no part in it. A difference that only one engine shows keeps the installed result.
An expectation that none of the four engines prints measures nothing: a test that fails against it counts as skipped, unless the
overlay of its engine brings an expectation of its own.
The baseline is made once per server version (about two minutes on two cores) and kept in build/mtr/baseline-VERSION.
"""

import json
import shutil

from common import server_version
from mtr_root import WORK, MtrRoot, replace_file
from mtr_run import run_mtr

SUITE = "storage_engine"
LEADER = "innobase"
WITNESSES = ("myisam", "maria", "rocksdb")
PARTS = ("", "trx/", "parts/")


def suites_of(folder):
    """The names under which MTR runs the three parts of the suite for one overlay folder."""
    return [f"{SUITE}-{folder}", f"{SUITE}/trx-{folder}", f"{SUITE}/parts-{folder}"]


def results_in(folder):
    """{path inside the suite: text} of the recorded results below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.result"))}


def forget_results(root):
    """Removes every expectation, so that recording writes what each engine prints into its own overlay."""
    places = [root.tests / "suite" / SUITE, *(root.overlay(folder) for folder in (LEADER, *WITNESSES))]
    for place in places:
        for path in [*place.rglob("*.result"), *place.rglob("*.rdiff")]:
            path.unlink()
    (root.tests / "suite" / SUITE / "disabled.def").unlink(missing_ok=True)


def record(parallel):
    """The installed results, and what each engine prints: {path: text}, {overlay folder: {path: text}}."""
    with MtrRoot() as root:
        installed = results_in(root.tests / "suite" / SUITE)
        tests = sorted({path.stem for path in (root.tests / "suite" / SUITE).rglob("*.test")})
        forget_results(root)
        suites = ",".join(suite for folder in (LEADER, *WITNESSES) for suite in suites_of(folder))
        run_mtr(root, "baseline", [f"--suite={suites}", "--record"], tests, parallel)
        return installed, {folder: results_in(root.overlay(folder)) for folder in (LEADER, *WITNESSES)}


def agreed(printed):
    """{path: (text, witnesses)} where InnoDB and at least one witness print the same."""
    found = {}
    for path, text in printed[LEADER].items():
        witnesses = [folder for folder in WITNESSES if printed[folder].get(path) == text]
        if witnesses:
            found[path] = (text, witnesses)
    return found


def unprinted(installed, printed):
    """Paths of the installed results that no engine prints and no two engines replace."""
    replaced = agreed(printed)
    return sorted(
        path
        for path, text in installed.items()
        if path not in replaced and text not in [texts.get(path) for texts in printed.values()]
    )


def baseline_folder():
    """Where the baseline of this server's version is kept."""
    return WORK / f"baseline-{server_version()}"


def make_baseline(parallel=0, force=False):
    """Makes the baseline unless it is there; answers its folder."""
    folder = baseline_folder()
    if folder.exists() and not force:
        return folder
    print("recording the results of the suite storage_engine again (once per server version, about two minutes)")
    installed, printed = record(parallel)
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    notes = {}
    for path, (text, witnesses) in agreed(printed).items():
        replace_file(fresh / "results" / path, text)
        notes[path] = witnesses
    (fresh / "agreed.json").write_text(json.dumps(notes, indent=1, sort_keys=True), encoding="utf-8")
    unmeasured = unprinted(installed, printed)
    (fresh / "unprinted.json").write_text(json.dumps(unmeasured, indent=1), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder


def apply_baseline(root, folder):
    """Puts the recorded results into a root; answers how many differ from the installed ones.

    Where a result changed, InnoDB and its witnesses print the new text, so their installed differences against the old one go.
    """
    notes = json.loads((folder / "agreed.json").read_text(encoding="utf-8"))
    root.make_results_real(SUITE)
    changed = 0
    for path, witnesses in notes.items():
        text = (folder / "results" / path).read_bytes()
        target = root.tests / "suite" / SUITE / path
        if target.exists() and target.read_bytes() == text:
            continue
        changed += 1
        replace_file(target, text)
        for engine in (LEADER, *witnesses):
            for stale in (root.overlay(engine) / path, (root.overlay(engine) / path).with_suffix(".rdiff")):
                stale.unlink(missing_ok=True)
    (root.tests / "suite" / SUITE / "disabled.def").unlink(missing_ok=True)
    return changed


def measures_nothing(root, folder, verdict):
    """Whether a failed test was compared with an expectation that no engine of this server prints."""
    path = f"{verdict.suite}/{verdict.test}.result".removeprefix(f"{SUITE}/")
    own = root.overlay(verdict.overlay) / path
    if own.exists() or own.with_suffix(".rdiff").exists():
        return False
    return path in json.loads((folder / "unprinted.json").read_text(encoding="utf-8"))
