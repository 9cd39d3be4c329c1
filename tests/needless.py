"""Leaves out what TensorFlow and Beam do for each graph and no test needs: a fifth of the CPU time of builds."""

import argparse
import sys


def set_optimizer(*, on: bool) -> None:
    """Turns TensorFlow's graph optimizer on or off: 0.2 to 2 s of CPU a graph. It may change bits, as of `x / 255`."""
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": not on})


def without_needless() -> None:
    """Works on what this process has loaded."""
    set_optimizer(on=False)
    if operations := sys.modules.get("tensorflow.python.framework.ops"):
        # TensorFlow notes for each operation of a graph the lines that led to it, unless `extract_traceback` is False.
        vars(operations)["_create_c_op"].__defaults__ = (None, False)
    if beam := sys.modules.get("apache_beam.transforms.userstate"):
        # Beam looks through each step's methods for its state and timers, which ours lack.
        vars(beam)["get_dofn_specs"] = lambda step: (set(), set())
    if options := sys.modules.get("apache_beam.options.pipeline_options"):
        # For each of hundreds of options Beam asks for the width of the terminal.
        formatter = argparse.HelpFormatter("")
        vars(options)["_BeamArgumentParser"]._get_formatter = lambda parser: formatter
