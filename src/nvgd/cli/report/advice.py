"""A diagnosis for the command line: its advice names options instead of Python arguments."""

import dataclasses
import re

from nvgd.posterior.diagnostics.diagnosis import Diagnosis

# Phrase of the library → options of `nvgd sample`.
_WORDS = (
    (r"diagnose\(num_replicates=(\d+)\)", r"--num-replicates \1"),
    (r"max_steps=(\d+)", r"--max-steps \1"),
    (r"without num_steps", "without --num-steps"),
    (r"num_steps=(\d+)", r"--num-steps \1"),
    (r"initial='(\w+)'", r"--initial \1"),
    (r"\(initial=\)", "(--initial prior)"),
    (r"NVGD\(\)", "--method nvgd"),
    (r"Take a step size (\w+ times smaller)", r"Take a --step-size \1"),
    (r"Take (\d+) particles or more", r"Use --num-particles \1 or more"),
    (r"take more particles", "raise --num-particles"),
    (r"Take more particles", "Raise --num-particles"),
    (r"\(jax_enable_x64\)", "(set JAX_ENABLE_X64=1)"),
)


def for_command_line(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis, whose advice names options of `nvgd sample`."""
    return dataclasses.replace(
        diagnosis,
        reason=_translated(diagnosis.reason),
        advice=_translated(diagnosis.advice),
        cautions=tuple(_translated(text) for text in diagnosis.cautions),
    )


def _translated(text: str) -> str:
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
