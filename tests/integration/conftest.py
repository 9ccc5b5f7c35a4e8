"""Fixtures of the tests of real vLLM servers; `folder`, the model that is served, is the test file's own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from servers import changed

from trlmath.sampling.server_engine import ServerSampler
from trlmath.sampling.server_weights import FilesTransport, ServerWeights
from trlmath.sampling.weight_files import WeightFiles


@pytest.fixture
def open_sampler():
    """Makes the sampler of one or several servers, which takes weights."""
    with ExitStack() as held:

        def make(*urls):
            sampler = ServerSampler(list(urls), 256, timeout=60)
            files = WeightFiles(dtype=torch.float32)
            held.callback(files.close)
            sampler.take_weights_from(ServerWeights(FilesTransport(sampler.connections, files)))
            return sampler

        yield make


@pytest.fixture
def policy(folder):
    """A reference engine around a model whose weights differ from the served ones."""
    return changed(folder)
