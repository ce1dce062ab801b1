"""The examples of docs/clients.md and of the README, as they are there apart from address, key and model."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from clients.doors import PACKAGES, Door
from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.gateway.report import client_settings
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ModelState

URL, MODEL = "http://192.168.1.11:8000", "Qwen3.8-27B-NVFP4"


def blocks(text: str) -> list[str]:
    """Return the indented blocks of a page's text, without the indentation."""
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def section(title: str) -> str:
    """Return the only block of a section."""
    (found,) = blocks(read("docs/clients.md").partition(f"\n## {title}\n")[2].partition("\n## ")[0])
    return found


def environment() -> str:
    return blocks(read("docs/clients.md"))[0]


def run(door: Door, script: str) -> str:
    """Run a script for bash with a server's address, key and model."""
    for old, new in ((URL, door.url), (MODEL, door.model), ("=KEY", f"={door.key}")):
        assert old in script
        script = script.replace(old, new)
    variables = door.environment()
    variables["PATH"] = f"{PACKAGES / 'bin'}:{variables['PATH']}"
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"):
        del variables[name]
    done = subprocess.run(
        ["bash", "-eu"], input=script, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("title", ["OpenAI's library", "Anthropic's library", "LangChain"])
def test_an_example_in_python(door: Door, title: str) -> None:
    found = run(door, f"{environment()}python - <<'END'\n{section(title)}END\n")
    assert found == "one two three" if door.known else found


def test_the_example_of_curl(door: Door) -> None:
    answer = json.loads(run(door, environment() + section("curl")))
    assert answer["model"] == door.model and answer["choices"][0]["message"]["content"]


def test_the_commands_of_the_readme(door: Door) -> None:
    (block,) = (block for block in blocks(read("README.md")) if "curl" in block)
    answer = json.loads(run(door, block.partition("\n")[2]))
    assert answer["choices"][0]["message"]["content"]


def addresses(found: Any) -> set[str]:
    return set(re.findall(r"https?://[\d.:]+(?:/v1)?", json.dumps(found)))


def test_the_settings_that_no_test_runs() -> None:
    web = dict(line.split("=") for line in section("Open WebUI").splitlines())
    assert web == {"OPENAI_API_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": "KEY"}
    editor = load_yaml(section("Continue"))
    (model,) = editor["models"]
    assert {"name", "version", "schema"} < editor.keys()
    assert (model["provider"], model["model"], model["apiBase"], model["apiKey"]) == (
        "openai",
        MODEL,
        f"{URL}/v1",
        "KEY",
    )
    # Anthropic's clients append /v1 themselves.
    assert addresses(json.loads(section("Claude Code"))) == {URL}


def test_the_settings_are_those_that_the_gateway_shows() -> None:
    shown = "\n".join(client_settings(f"{URL}/v1", [ModelState("", MODEL, "", "generate", True, "", 0)])).replace(
        "YOUR_KEY", "KEY"
    )
    code = json.loads(section("Claude Code"))["env"]
    for name, value in code.items():
        assert f"{name}={value}" in shown
    own = shown.partition("opencode.json:\n")[2].partition("\nOpen WebUI")[0]
    assert json.loads(own) == json.loads(section("OpenCode"))
    for line in (environment().splitlines()[0], *section("Open WebUI").splitlines()):
        assert line.removeprefix("export ") in shown
