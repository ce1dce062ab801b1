"""Rules of the project that no linter checks.

Each check is a function from text to problems; a test below verifies that it can fail.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any

import pytest
from repository import ROOT, TASK_FILES, files, read, tasks_of, tracked_files

MODULE_UTILS = "ansible_collections.gb10.cluster.plugins.module_utils"
#: Module -> its packages, of the core.
MODULES: dict[str, set[str]] = {}
for place in files("plugins/module_utils/*/*.py"):
    MODULES.setdefault(PurePosixPath(place).stem, set()).add(place.split("/")[2])

#: Standard library modules that access anything outside the process, or whose results differ between calls.
IMPURE_MODULES = frozenset(
    "asyncio ctypes fcntl getpass glob http importlib io logging multiprocessing os pwd random secrets select "
    "shutil signal socket sqlite3 ssl subprocess sysconfig tempfile threading time urllib.request uuid".split()
)
IMPURE_CALLS = frozenset("open print input exec eval __import__ breakpoint".split())
IMPURE_METHODS = frozenset("read_text read_bytes write_text write_bytes now utcnow today".split())


def purity_problems(text: str) -> Iterator[str]:
    """Find I/O in a pure module, and imports other than the standard library and pure modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from import_problems(node.lineno, alias.name, "")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield f"line {node.lineno}: relative import; write {MODULE_UTILS}..."
            for alias in node.names:
                yield from import_problems(node.lineno, node.module or "", alias.name)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
                yield f"line {node.lineno}: {called.id}() is I/O; only io_*.py may do that"
            if isinstance(called, ast.Attribute) and called.attr in IMPURE_METHODS:
                yield f"line {node.lineno}: .{called.attr}() is I/O; only io_*.py may do that"


def import_problems(line: int, module: str, name: str) -> Iterator[str]:
    """Check one import. ``name`` is the imported name of ``module``, empty for a plain import."""
    if module == MODULE_UTILS or module.startswith(MODULE_UTILS + "."):
        # The catalog is data of this collection, which is the same in each run.
        if re.search(r"\.io_(?!catalog$)", f"{module}.{name}"):
            yield f"line {line}: a pure module imports {name or module}, which does I/O"
    elif (package := module.partition(".")[0]) not in sys.stdlib_module_names:
        yield f"line {line}: {module} is neither the standard library nor {MODULE_UTILS}"
    elif (module, name) == ("io", "BytesIO"):
        return
    elif {module, package, f"{module}.{name}"} & IMPURE_MODULES or (module, name) == ("pathlib", "Path"):
        yield f"line {line}: {module} {name} reaches outside the process; only io_*.py may do that"


def named_module_problems(text: str) -> Iterator[str]:
    """Find modules of this collection that a text names, which neither mypy nor an editor follows."""
    for number, found in lines_with(r"^(?! *(?:from|import) ).*ansible_collections\..*", text):
        yield f"line {number}: {found[0].strip()} has the name of a module. Fix: import it"


def header_problems(text: str) -> Iterator[str]:
    """Check for the license header in the first 20 lines."""
    head = "\n".join(text.splitlines()[:20])
    for needed in (
        "GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)",
        "SPDX-License-Identifier: GPL-3.0-or-later",
    ):
        if needed not in head:
            yield f"the first 20 lines lack: {needed}"


def task_problems(text: str) -> Iterator[str]:
    """Find commands without a comment, uses of a shell, hidden errors, and long files.

    ansible-lint's rule no-changed-when finds commands without changed_when.
    """
    if (count := len(text.splitlines())) > 150:
        yield f"{count} lines. Expected: at most 150. Fix: split the file"
    explained = False
    for task in tasks_of(text):
        where = f"line {task.line} ({task.data.get('name')})"
        actions = {key.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.") for key in task.data}
        if actions & {"shell", "raw", "script"}:
            yield f"{where}: no shell, raw or script; use a module, or command with argv"
        if "command" in actions:
            # One comment suffices for consecutive commands.
            explained = explained or bool(re.search(r"(^|\s)#", task.text, re.MULTILINE))
            if not explained:
                yield f"{where}: command without a comment that explains why no module is used"
        else:
            explained = False
        if not selects(task.data):
            yield f"{where}: a tag that selects none of the included tasks. Fix: add apply"
        if "ignore_errors" in task.data:
            yield f"{where}: ignore_errors"
        if task.data.get("failed_when") is False:
            yield f"{where}: failed_when: false"


def selects(task: dict[str, Any]) -> bool:
    """Return whether the tag of a dynamic include selects its tasks too."""
    included = task.get("ansible.builtin.include_role") or task.get("ansible.builtin.include_tasks")
    tags = task.get("tags", "always")
    return not included or tags == "always" or (isinstance(included, dict) and included.get("apply") == {"tags": tags})


def lines_with(pattern: str, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the matches of a pattern within a line, with the line's number."""
    for found in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE):
        yield text.count("\n", 0, found.start()) + 1, found


def uncommented(text: str) -> str:
    return re.sub(r"(?:^|[ \t])#.*", "", text, flags=re.MULTILINE)


#: Variables named ansible_* that are not facts: Ansible's own, connection variables, and a key of molecule.yml.
NOT_FACTS = re.compile(
    r"ansible_(managed|collections|check_mode|diff_mode|host|port|user|password|connection|become\w*|ssh_\w+|shell_\w+|control_path\w*|pipelining"
    r"|timeout|remote_tmp|async_dir|python_interpreter|play_\w+|playbook_python|config_file|loop|loop_var|index_var|search_path|verbosity"
    r"|version|forks|limit|run_tags|skip_tags|role_names?|parent_role_\w+|dependent_role_names|collection_name|inventory_sources"
    r"|failed_task|failed_result|playbook|job_id)"
)


def fact_problems(text: str) -> Iterator[str]:
    """Find facts.

    Any result of a node may replace ansible_facts, also those of other hosts; a module's registered result has a type.
    """
    for number, found in lines_with(r"\bansible_[a-z]\w*", uncommented(text)):
        if not NOT_FACTS.fullmatch(found[0]):
            yield f"line {number}: {found[0]} may come from any result of a node. Fix: register the result of a module"


def group_problems(text: str) -> Iterator[str]:
    """Find groups in a role. A role gets its hosts as a variable; only playbooks and inventories use groups."""
    for number, _found in lines_with(r"\bgroups[ \t]*(\[|\.\w)|\bgroup_names\b", uncommented(text)):
        yield f"line {number}: a role names a group. Fix: pass the hosts as a variable"


def machine_problems(text: str) -> Iterator[str]:
    """Find folders and package sources of the developer's machine in a tracked file."""
    for number, found in lines_with(r"/(?<![\w}>.~$/-]/)(?:work|root)/\S*", text):
        yield f"line {number}: {found[0]} is a path of one machine"
    for number, url in lines_with(r"(?:index|find)[-_](?:url|links)[^\w\n]+((?:https?|file)://[^\s/\"']*)", text):
        if url[1] != "https://download.pytorch.org":
            yield f"line {number}: {url[1]} is one machine's package source; use the user's own pip configuration"


def layers() -> list[str]:
    """Return the packages of module_utils in the order of docs/architecture.md. Each imports only those above it."""
    return re.findall(r"^\| `(\w+)` \|", read("docs/architecture.md").partition("## Packages")[2], re.MULTILINE)


def layer_problems(package: str, text: str, order: list[str]) -> Iterator[str]:
    """Find imports from a package below, and from files outside any package."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{MODULE_UTILS}."):
            imported = (node.module or "").removeprefix(MODULE_UTILS).removeprefix(".").partition(".")[0]
            if imported not in order:
                yield f"line {node.lineno}: {imported or node.names[0].name} is not a package of docs/architecture.md"
            elif order.index(imported) > order.index(package):
                yield f"line {node.lineno}: {package} imports {imported}, which is below it in docs/architecture.md"


def fact_action_problems(text: str) -> Iterator[str]:
    """Find actions that choose a module or a command by ansible_facts, which any result of a node may replace."""
    used = {key.removeprefix("ansible.builtin.") for task in tasks_of(text) for key in task.data}
    yield from used & {"gather_facts", "package", "reboot", "service", "setup", "wait_for_connection"}


def alias_problems(text: str) -> Iterator[str]:
    """Find aliases other than the module's name with its package, which a reader finds without the import."""
    for node in ast.parse(text).body:
        for package in re.findall(r"\.module_utils\.(\w+)$", getattr(node, "module", None) or ""):
            for each in node.names if isinstance(node, ast.ImportFrom) else ():
                if each.asname and package in MODULES.get(each.name, ()) and each.asname != f"{package}_{each.name}":
                    yield f"{each.name} is named {each.asname}"


def unknown_name_problems(text: str) -> Iterator[str]:
    """Find imported names that a module of the collection does not have. mypy does not check tests."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ansible_collections.gb10."):
            module = import_module(str(node.module))
            for each in node.names:
                inside = hasattr(module, "__path__") and find_spec(f"{node.module}.{each.name}")
                if not (hasattr(module, each.name) or inside):
                    yield f"line {node.lineno}: {node.module} has no {each.name}"


def split_problems(text: str) -> Iterator[str]:
    """Find arguments of modules that are one template with an equals sign: Ansible would split it there."""
    yield from re.findall(r"^\s+(?:gb10\.cluster|ansible\.builtin)\.\w+: ['\"]?\{\{.*=.*", text, re.MULTILINE)


def core_of(starts: list[str]) -> set[str]:
    """Return the files of the core that these files import, also indirectly and inside functions."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        for node in ast.walk(ast.parse(read(waiting.pop()))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{MODULE_UTILS}."):
                place = f"plugins/module_utils{str(node.module).removeprefix(MODULE_UTILS).replace('.', '/')}"
                new = {f"{place}.py", *(f"{place}/{each.name}.py" for each in node.names)} & set(CORE) - found
                found |= new
                waiting += new
    return found


PYTHON = ("plugins/**/*.py",)
CORE = files("plugins/module_utils/*/*.py")
ROLE_FILES = ("roles/*/*/**/*.yml", "roles/*/templates/**/*")


def broken(paths: list[str], check: Callable[[str], Iterator[str]]) -> dict[str, list[str]]:
    """Return the problems of the files that have some."""
    return {path: found for path in paths if (found := list(check(read(path))))}


@pytest.mark.parametrize(
    ("check", "patterns"),
    [
        (header_problems, PYTHON),
        (named_module_problems, PYTHON),
        (alias_problems, PYTHON),
        (unknown_name_problems, ("tests/**/*.py",)),
        (task_problems, TASK_FILES),
        (fact_action_problems, TASK_FILES),
        (split_problems, TASK_FILES),
        (fact_problems, (*TASK_FILES, *ROLE_FILES, "inventories/**/*.yml")),
        (group_problems, ROLE_FILES),
    ],
)
def test_files_keep_the_rule(check: Callable[[str], Iterator[str]], patterns: tuple[str, ...]) -> None:
    assert broken(files(*patterns), check) == {}


def test_imports_go_one_way_through_the_packages_of_the_page() -> None:
    order = layers()
    assert sorted(order) == sorted({path.split("/")[2] for path in CORE})
    assert files("plugins/module_utils/*.py") == []
    found = {path: list(layer_problems(path.split("/")[2], read(path), order)) for path in CORE}
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_no_module_needs_the_catalog() -> None:
    """Ansible sends a module's Python files to a node, and no YAML."""
    catalog = "plugins/module_utils/model/io_catalog.py"
    assert catalog in core_of(files("plugins/action/*.py"))
    assert catalog not in core_of(files("plugins/modules/*.py", "plugins/module_utils/*/io_*.py"))


def test_the_core_is_pure() -> None:
    pure = [path for path in CORE if not PurePosixPath(path).name.startswith("io_") and "/node_steps/" not in path]
    assert pure and broken(pure, purity_problems) == {}


def test_an_action_has_a_module() -> None:
    assert all((ROOT / path.replace("/action/", "/modules/")).is_file() for path in files("plugins/action/*.py"))


def test_tracked_files_name_no_machine() -> None:
    found = {}
    for path in tracked_files():
        try:
            text = read(path)
        except UnicodeDecodeError:
            continue  # a binary file, such as an image
        if problems := list(machine_problems(text)):
            found[path] = problems
    assert found == {}


def below_common(text: str) -> Iterator[str]:
    """Check ``text`` as a file of the uppermost package."""
    return layer_problems("common", text, layers())


COMMAND = "- name: Ask\n  ansible.builtin.command: {argv: [x]}\n"
# Split into two parts, so that this file passes its own check.
FOLDER = "/" + "work/main"
INDEX = "https" + "://mirror.example/simple"


@pytest.mark.parametrize(
    ("check", "text", "expected"),
    [
        (purity_problems, "import yaml", "neither the standard library"),
        (purity_problems, "from ansible.module_utils.basic import AnsibleModule", "neither the standard library"),
        (purity_problems, "from .problems import Problem", "relative import"),
        (purity_problems, f"from {MODULE_UTILS}.io_files import read", "which does I/O"),
        (purity_problems, f"from {MODULE_UTILS} import io_files", "which does I/O"),
        (purity_problems, f"from {MODULE_UTILS}.fabric import io_files", "which does I/O"),
        (below_common, f"from {MODULE_UTILS}.node import parse", "common imports node, which is below it"),
        (below_common, f"from {MODULE_UTILS}.node.parse import names", "common imports node, which is below it"),
        (below_common, f"from {MODULE_UTILS} import problems", "problems is not a package"),
        (purity_problems, "import subprocess", "reaches outside"),
        (purity_problems, "import os.path", "reaches outside"),
        (purity_problems, "from os import system", "reaches outside"),
        (purity_problems, "from urllib.request import urlopen", "reaches outside"),
        (purity_problems, "from urllib import request", "reaches outside"),
        (purity_problems, "from io import open", "reaches outside"),
        (purity_problems, "from pathlib import Path", "reaches outside"),
        (purity_problems, "def f():\n    return open('x')", "open() is I/O"),
        (purity_problems, "def f(p):\n    return p.read_text()", ".read_text() is I/O"),
        (named_module_problems, f"core = import_module('{MODULE_UTILS}.common')", "has the name of a module"),
        (named_module_problems, f"core = import_module(f'{MODULE_UTILS}.{{topic}}')", "has the name of a module"),
        (task_problems, "- name: Ask\n  ansible.builtin.shell: x\n", "no shell"),
        (
            task_problems,
            "- hosts: all\n  tasks:\n    - name: Ask\n      block:\n        - name: Ask\n          shell: x\n",
            "line 5 (Ask): no shell",
        ),
        (task_problems, COMMAND + "  changed_when: false\n", "without a comment"),
        (
            task_problems,
            COMMAND + "  changed_when: false\n\n# the next one's\n- name: Next\n  meta: noop\n",
            "without a comment",
        ),
        (task_problems, "- name: Try\n  ansible.builtin.meta: noop\n  ignore_errors: true\n", "ignore_errors"),
        (task_problems, "- name: Try\n  ansible.builtin.meta: noop\n  failed_when: false\n", "failed_when: false"),
        (task_problems, "- name: Try\n  ansible.builtin.include_role: {name: x}\n  tags: serve\n", "selects none"),
        (task_problems, "- name: Try\n  ansible.builtin.include_tasks: x.yml\n  tags: serve\n", "selects none"),
        (task_problems, "- name: Long\n" + "  # line\n" * 150, "151 lines"),
        (fact_problems, "when: ansible_architecture == 'aarch64'", "ansible_architecture may come"),
        (fact_problems, "when: ansible_facts['architecture'] == 'aarch64'", "ansible_facts may come"),
        (fact_problems, "{{ ansible_hostname }} {{ ansible_host }}", "ansible_hostname"),
        (fact_action_problems, "- name: Try\n  ansible.builtin.setup:\n", "setup"),
        (alias_problems, f"from {MODULE_UTILS}.fabric import plan as x", "plan is named x"),
        (unknown_name_problems, f"from {MODULE_UTILS}.fabric.plan import nothing", "has no nothing"),
        (split_problems, "  gb10.cluster.x: \"{{ a | combine({'b': c == 'd'}) }}\"\n", "gb10.cluster.x"),
        (group_problems, "loop: \"{{ groups['worker'] }}\"", "names a group"),
        (group_problems, 'loop: "{{ groups.worker }}"', "names a group"),
        (group_problems, "when: \"'head' in group_names\"", "names a group"),
        (machine_problems, f"cd {FOLDER}", "a path of one machine"),
        (machine_problems, f"home='{FOLDER}'", "a path of one machine"),
        (machine_problems, f"extra-index-url = {INDEX}", "https://mirror.example is one machine's"),
        (header_problems, "# SPDX-License-Identifier: GPL-3.0-or-later", "lack: GNU General"),
        (header_problems, "# GNU General Public License v3.0+", "lack: SPDX"),
        # Without a problem.
        (
            purity_problems,
            "import re\nfrom pathlib import PurePosixPath\nfrom urllib.parse import quote\nfrom "
            f"{MODULE_UTILS}.fabric import plan",
            "",
        ),
        (purity_problems, "from io import BytesIO", ""),
        (named_module_problems, f"from {MODULE_UTILS} import common", ""),
        (alias_problems, f"from {MODULE_UTILS}.fabric import plan as fabric_plan", ""),
        (unknown_name_problems, f"from {MODULE_UTILS}.fabric import plan", ""),
        (split_problems, '  gb10.cluster.x: "{{ a | combine(b) }}"\n  when: c == d\n', ""),
        (task_problems, "# Only nvidia-smi knows.\n" + COMMAND + "  changed_when: false\n", ""),
        (task_problems, COMMAND + "  changed_when: false  # only reads; no module does\n", ""),
        (fact_problems, "{{ ansible_host }} {{ ansible_managed | comment }}  # not ansible_hostname", ""),
        (machine_problems, "upper: {{ lab_folder }}/work/spark1\nuses ~/.ssh and $HOME/work/x", ""),
    ],
)
def test_a_check_finds_its_problem_alone(check: Callable[[str], Iterator[str]], text: str, expected: str) -> None:
    problems = list(check(text))
    assert any(expected in problem for problem in problems) if expected else problems == [], problems


def proves(code: ast.AST, helpers: dict[str, ast.AST]) -> bool:
    """Return whether code, or one of the helpers that it calls, can fail with an assertion."""
    if any(isinstance(node, ast.Assert) for node in ast.walk(code)):
        return True
    called = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(code) if isinstance(node, ast.Call)}
    others = {name: helper for name, helper in helpers.items() if name not in called}
    return any(name == "raises" or name.startswith("assert_") for name in called) or any(
        proves(helpers[name], others) for name in called & helpers.keys()
    )


def test_every_test_can_fail() -> None:
    found = set()
    for path in files("tests/**/test_*.py"):
        functions = {
            node.name: node
            for node in ast.walk(ast.parse(read(path)))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        tests = {name: node for name, node in functions.items() if name.startswith("test_")}
        found |= {f"{path}::{name}" for name, node in tests.items() if not proves(node, functions)}
    assert found == set()


def test_locks_name_no_host_of_a_registry() -> None:
    # An owner's index has the same files. Hashes identify them.
    locks = files("requirements*.txt", "tests/clients/package-lock.json")
    assert [(path, line) for path in locks for line in re.findall(r".*://.*", read(path))] == []


def test_every_installation_of_tools_has_hashes() -> None:
    installs = [
        line
        for path in ("Makefile", *files(".ci/*", ".github/workflows/*"))
        for line in re.findall(r"^.*\bpip install\b.*$", read(path), re.MULTILINE)
        if "--require-hashes" not in line
    ]
    # The target compat says why.
    assert [line.split()[-1] for line in installs] == ["build/compat/requirements.in"]


@pytest.mark.parametrize(
    ("name", "package"), [("Node", "cluster"), ("Settings", "cluster"), ("Plan", "plan"), ("Rail", "plan")]
)
def test_a_central_type_has_one_meaning(name: str, package: str) -> None:
    """Node and Settings are the inputs of a plan, Plan and Rail its results. Others say whose they are."""
    found = [path for path in CORE if re.search(rf"^class {name}\b", read(path), re.MULTILINE)]
    assert found == [f"plugins/module_utils/{package}/schema.py"]
