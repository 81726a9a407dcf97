"""The parts of `make run`: data set, test drive, timings, crash. scripts/run_demo.py starts them one after the other."""
