"""Coverage-guided fuzzing of the compiled code.

A target is a file `fuzz_<name>.py` with three names: `MODULES`, the compiled modules it is after;
`SEEDS`, inputs to start from; and `check(data)`, which feeds them one input and asserts what must
hold for every input. `make fuzz` runs each for a while (`run.py`); `make test` replays the seeds.
What the fuzzer finds becomes a seed of its target.
"""
