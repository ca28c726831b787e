"""Whether the bare call `nvgd.sample(target)` can be trusted on models as people write them."""
