"""A server's worker without trlmath's care: it says that it has loaded weights, and uses packed old ones."""

from __future__ import annotations


class TrappedWorker:
    """The methods of `trlmath.sampling.vllm_worker.WorkerExtension`, over vLLM's own `reload_weights`."""

    trlmath_version = ""

    def trlmath_load_weights(self, folder: str, version: str) -> dict[str, str]:
        self.reload_weights(weights_path=folder)
        return self.trlmath_set_version(version)

    def trlmath_set_version(self, version: str) -> dict[str, str]:
        self.trlmath_version = version
        return {"version": version}

    def trlmath_weights_version(self) -> dict[str, str]:
        return {"version": self.trlmath_version}
