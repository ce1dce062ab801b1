"""The start of vLLM that compiles the kernels of a model. vLLM is a stand-in."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stand_in_modules

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_start

PARSER = "vllm.entrypoints.openai.cli_args"
#: The arguments of the rank 1 of two nodes.
ARGV = ["/m", "--tensor-parallel-size=2", "--pipeline-parallel-size=2", "--nnodes=2", "--node-rank=1", "--dtype=auto"]


class EngineArgs:
    """Those of a release without `data_parallel_backend`."""

    @classmethod
    def from_cli_args(cls, given: argparse.Namespace) -> EngineArgs:
        found = cls()
        vars(found).update(vars(given), load_format="auto", gpu_memory_utilization=0.9, kv_cache_memory_bytes=None)
        vars(found).update(max_model_len=None, max_num_seqs=None, hf_overrides=None, skip_tokenizer_init=False)
        return found


class Engine:
    """Needs two steps for each request."""

    runner_type = "generate"
    started: Engine

    def __init__(self, arguments: EngineArgs) -> None:
        self.arguments, self.requests, self.open = arguments, dict[str, tuple[Any, Any]](), 0
        self.model_config = SimpleNamespace(runner_type=self.runner_type)

    @classmethod
    def from_engine_args(cls, arguments: EngineArgs) -> Engine:
        Engine.started = cls(arguments)
        return Engine.started

    def add_request(self, name: str, prompt: dict[str, list[int]], parameters: SimpleNamespace) -> None:
        self.requests[name], self.open = (prompt, parameters), self.open + 2

    def has_unfinished_requests(self) -> bool:
        return self.open > 0

    def step(self) -> None:
        self.open -= 1


def make_arg_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("model_tag")
    parser.add_argument("--dtype")
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "nnodes", "node-rank"):
        parser.add_argument(f"--{name}", type=int)
    return parser


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Install a release of vLLM without the parser of the arguments."""
    stand_in_modules.add(monkeypatch, "vllm", SamplingParams=SimpleNamespace, __path__=[])
    stand_in_modules.add(monkeypatch, "vllm.utils.argparse_utils", FlexibleArgumentParser=argparse.ArgumentParser)
    stand_in_modules.add(monkeypatch, "vllm.engine.arg_utils", EngineArgs=EngineArgs)
    stand_in_modules.add(monkeypatch, "vllm.v1.engine.llm_engine", LLMEngine=Engine)
    return monkeypatch


def test_the_model_starts_on_one_rank_with_random_weights(vllm: pytest.MonkeyPatch) -> None:
    stand_in_modules.add(vllm, PARSER, make_arg_parser=make_arg_parser)
    found = io_start.engine_args(ARGV)
    assert (found.model, found.dtype, found.load_format) == ("/m", "auto", "dummy")
    ranks = (found.tensor_parallel_size, found.pipeline_parallel_size, found.nnodes, found.node_rank)
    assert ranks == (1, 1, 1, 0)
    # A part of the GPU's memory, whatever the model's arguments are.
    assert 0 < found.gpu_memory_utilization < 1
    assert min(found.kv_cache_memory_bytes, found.max_model_len, found.max_num_seqs) > 0
    assert found.hf_overrides is io_start.shortened
    assert not hasattr(found, "data_parallel_backend"), "an argument that this release does not have"


@pytest.mark.parametrize("name", [PARSER, "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.common.cli_args"])
def test_the_parser_of_the_arguments_has_another_place_in_each_release(vllm: pytest.MonkeyPatch, name: str) -> None:
    stand_in_modules.add(vllm, name, make_arg_parser=make_arg_parser)
    assert io_start.engine_args(ARGV).model == "/m"


def test_a_release_without_a_known_parser_is_an_error(vllm: pytest.MonkeyPatch) -> None:
    stand_in_modules.add(vllm, "vllm.entrypoints")
    with pytest.raises(ImportError, match=rf"none of .*{PARSER} found"):
        io_start.engine_args(ARGV)


@pytest.mark.parametrize("text", ["import no_such_module", "raise ModuleNotFoundError('no_such_module')"])
def test_a_module_that_the_parser_needs_is_not_taken_for_another_release(
    vllm: pytest.MonkeyPatch, text: str, tmp_path: Path
) -> None:
    stand_in_modules.add(vllm, "vllm.entrypoints.openai", __path__=[str(tmp_path)])
    (tmp_path / "cli_args.py").write_text(text, encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        io_start.engine_args(ARGV)


def test_several_requests_run_to_their_end_by_sampling(
    vllm: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in_modules.add(vllm, PARSER, make_arg_parser=make_arg_parser)
    io_start.main(ARGV)
    engine = Engine.started
    assert engine.arguments.load_format == "dummy"
    assert len(engine.requests) > 1 and not engine.has_unfinished_requests()
    for prompt, parameters in engine.requests.values():
        assert prompt["prompt_token_ids"]
        # A temperature of 0 needs no kernel of the sampler, and there is no tokenizer.
        assert parameters.temperature > 0 and parameters.max_tokens > 1 and not parameters.detokenize
    assert capsys.readouterr().out == "every kernel has run\n"


def test_a_model_that_generates_nothing_only_starts(vllm: pytest.MonkeyPatch) -> None:
    stand_in_modules.add(vllm, PARSER, make_arg_parser=make_arg_parser)
    vllm.setattr(Engine, "runner_type", "pooling")
    io_start.main(ARGV)
    assert not Engine.started.requests
