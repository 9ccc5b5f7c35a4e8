"""Generation: one Sampler protocol, several engines behind it."""

from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings

__all__ = ["Sampler", "SamplingSettings"]
