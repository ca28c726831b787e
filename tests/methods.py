"""Every method that the conformance suite drives: a new one is a line here."""

import optax

import nvgd

METHODS: dict[str, nvgd.ParticleFlow] = {
    # Its own coordinates take long to compile, and have tests of their own.
    "nvgd": nvgd.NVGD(coordinates=nvgd.Diagonal()),
    "nvgd-paper": nvgd.NVGD.paper(0.1, learning_rate=1e-2, max_inner_steps=10),
    "nvgd-paper-variants": nvgd.NVGD.paper(
        optimizer=optax.adam(2e-2),
        learning_rate=1e-2,
        divergence=nvgd.HutchinsonDivergence("gaussian", num_probes=2),
        restore_best=False,
    ),
    "svgd": nvgd.SVGD(0.3),
    "svgd-imq": nvgd.SVGD(0.3, kernel=nvgd.IMQ()),
    "svgd-fixed-bandwidth": nvgd.SVGD(0.3, kernel=nvgd.RBF(1.0)),
    "svgd-rescaled": nvgd.SVGD(0.05, rescale=True),
    "svgd-rmsprop": nvgd.SVGD(optimizer=optax.rmsprop(2e-2)),
    "svgd-diagonal": nvgd.SVGD(0.3, coordinates=nvgd.Diagonal()),
    "ula": nvgd.ULA(0.05),
    "sgld": nvgd.SGLD(nvgd.polynomial_decay(0.1, offset=10.0, power=0.5)),
}
