"""Coverage-guided fuzzing of the compiled code.

A target is a file `fuzz_<name>.py` with three names: `MODULES`, the compiled modules under test;
`SEEDS`, the first inputs; and `check(data)`, which runs one input and asserts the properties that
hold for every input. `make fuzz` runs each target for a while (`run.py`); `make test` replays the
seeds. Inputs that the fuzzer finds become seeds of their target.
"""
