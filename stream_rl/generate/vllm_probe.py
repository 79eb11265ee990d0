"""The probe inside vLLM's worker: one forward of a fixed prompt while the scheduler is paused.

A request through the front door would need the engine running, and others would be sampled from the new weights beside
it. So the worker is given a schedule of its own, the way vLLM warms its kernels up (`vllm/v1/worker/gpu/warmup.py`).
That is safe after a pause that dropped every key and value: no block of the cache belongs to anybody.
"""

from __future__ import annotations

from typing import Any

from stream_rl.generate.options import ModelShape

EXTENSION = f"{__name__}.ProbeExtension"
METHOD = "stream_rl_probe"
SHAPE_METHOD = "stream_rl_shape"
_REQUEST = "stream-rl-probe"


class ProbeExtension:
    """Methods vLLM adds to its worker (`worker_extension_cls`); called through `collective_rpc`."""

    def stream_rl_shape(self) -> dict[str, Any]:
        """The sizes in the config.json of the model served, those that `options.ModelShape` holds."""
        worker: Any = self
        config = worker.model_runner.model_config.hf_text_config
        return {name: getattr(config, name, None) for name in ModelShape.__struct_fields__}

    def stream_rl_probe(self, prompt_ids: list[int]) -> list[float]:
        """Log-probabilities of `prompt_ids[1:]` and of the greedy next token, at temperature 1.

        Only while the scheduler is paused and its cache is dropped. The requests it holds find their state again.
        """
        from vllm import SamplingParams
        from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

        worker: Any = self
        groups = worker.model_runner.kv_cache_config.kv_cache_groups
        step = SchedulerOutput.make_empty()
        step.scheduled_new_reqs = [
            NewRequestData(
                req_id=_REQUEST,
                prompt_token_ids=prompt_ids,
                prefill_token_ids=prompt_ids,
                mm_features=[],
                sampling_params=SamplingParams(temperature=0.0, max_tokens=1, logprobs=0, prompt_logprobs=0),
                pooling_params=None,
                block_ids=tuple(_blocks(len(prompt_ids) + 1, group.kv_cache_spec.block_size) for group in groups),
                num_computed_tokens=0,
                lora_request=None,
            )
        ]
        step.num_scheduled_tokens = {_REQUEST: len(prompt_ids)}
        step.total_num_scheduled_tokens = len(prompt_ids)
        step.num_common_prefix_blocks = [0] * len(groups)
        try:
            output = worker.execute_model(step) or worker.sample_tokens(None)
            output = output.get_output() if hasattr(output, "get_output") else output
        finally:
            over = SchedulerOutput.make_empty()
            over.finished_req_ids = {_REQUEST}
            worker.execute_model(over)
        said = output.prompt_logprobs_dict[_REQUEST].logprobs[:, 0].tolist()
        return [*said, float(output.logprobs.logprobs[0][0])]


def _blocks(num_tokens: int, block_size: int) -> list[int]:
    """Cache blocks from 1 on; block 0 is vLLM's own."""
    return list(range(1, 2 + (num_tokens - 1) // block_size))
