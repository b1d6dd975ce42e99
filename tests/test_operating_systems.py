import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from touchline.envs.player_process import find_player
from touchline.errors import FileHeldError, UsageError
from touchline.operating_systems import (
    HELD_S,
    SYSTEM,
    Launcher,
    ProcessTree,
    open_to_append,
    own_temporary,
    quoted,
    remove_file,
    remove_folder,
    replace_file,
)

SOURCE = Path(__file__).parent.parent / "src" / "touchline"
windows = pytest.mark.skipif(
    SYSTEM != "win32", reason="only Windows refuses to replace a file that is open"
)
HOLD = """
import sys, time
with open(sys.argv[1], "rb"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path, seconds):
    """A second process has the file open for this long."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=subprocess.PIPE
    )
    assert holder.stdout.readline().strip() == b"held"
    return holder


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_no_other_module_looks_at_the_system_it_runs_on(path):
    if path.stem == "operating_systems":
        return
    looks = {("os", "name"), ("sys", "platform"), ("sys", "getwindowsversion")}
    looks |= {("platform", "system"), ("platform", "machine"), ("os", "uname")}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in looks, f"{path}:{node.lineno}"
        if isinstance(node, ast.ImportFrom):
            names = {(node.module, alias.name) for alias in node.names}
            assert not names & looks, f"{path}:{node.lineno}"


@windows
@pytest.mark.parametrize("change", ["replace", "remove", "append", "folder"])
def test_a_file_that_is_open_for_a_moment_elsewhere_is_changed_after_it(
    tmp_path, change
):
    path, new = tmp_path / "run" / "old.txt", tmp_path / "new.txt"
    path.parent.mkdir()
    path.write_text("old")
    new.write_text("new")
    with hold(path, 1.0):
        if change == "replace":
            replace_file(new, path)
            assert path.read_text(encoding="utf-8") == "new"
        elif change == "remove":
            remove_file(path)
            assert not path.exists()
        elif change == "folder":
            remove_folder(path.parent)
            assert not path.parent.exists()
        else:
            with open_to_append(path) as file:
                file.write("er")
            assert path.read_text(encoding="utf-8") == "older"


@windows
def test_a_file_that_stays_open_elsewhere_is_named(tmp_path):
    path, new = tmp_path / "old.txt", tmp_path / "new.txt"
    path.write_text("old")
    new.write_text("new")
    with hold(path, HELD_S + 5) as holder:
        with pytest.raises(FileHeldError, match=r"new\.txt.*close the program") as held:
            replace_file(new, path)
        assert "\n" not in str(held.value)
        holder.kill()
    assert path.read_text(encoding="utf-8") == "old"
    assert new.read_text(encoding="utf-8") == "new"


CHILD = """
import subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(grandchild.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def is_alive(pid):
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("seconds", [600, 0])
def test_what_a_process_has_started_ends_with_it_even_where_it_ended_before(seconds):
    tree = ProcessTree(
        [sys.executable, "-c", CHILD, str(seconds)],
        ends_with_us=True,
        stdout=subprocess.PIPE,
    )
    with tree, tree.stdout as output:
        grandchild = int(output.readline())
        if not seconds:
            tree.wait(30)
        assert is_alive(grandchild)
        tree.end()
        tree.wait(30)
        deadline = time.monotonic() + 30
        while is_alive(grandchild):
            assert time.monotonic() < deadline, "it outlived its parent"
            time.sleep(0.05)
        tree.end()  # a second call changes nothing


@pytest.mark.parametrize(
    ("argument", "on_windows"),
    [
        ("3DBall", "3DBall"),
        (r"C:\runs\3DBall", r"C:\runs\3DBall"),
        (r"C:\my runs\3DBall", r'"C:\my runs\3DBall"'),
        ("microrts:map?steps=3&bot=x", '"microrts:map?steps=3&bot=x"'),
        ("it's", '"it\'s"'),
        ("C:\\my runs\\", '"C:\\my runs\\\\"'),
        ("", '""'),
    ],
)
def test_windows_shells_get_double_quotes_alone(argument, on_windows):
    assert quoted(argument, "win32") == on_windows
    assert quoted("it's", "linux") == "'it'\"'\"'s'"


@pytest.mark.skipif(SYSTEM != "win32", reason="cmd.exe is a program of Windows")
@pytest.mark.parametrize(
    "argument", ["a b", "a&b|c", "it's", "C:\\my runs\\", "é (1)^;,"]
)
def test_a_quoted_argument_is_one_argument_to_cmd(argument):
    shown = "import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode())"
    command = f'{quoted(sys.executable)} -c "{shown}" {quoted(argument)}'
    printed = subprocess.run(
        f'cmd.exe /d /s /c "{command}"', stdout=subprocess.PIPE, check=True
    ).stdout
    assert printed.decode() == repr([argument])


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_a_launcher_is_where_a_unity_build_has_its_executable(tmp_path, system):
    if system == "win32":
        pytest.importorskip("distlib")
    (tmp_path / "shown.py").write_text(
        "import os, sys\n"
        "def main(arguments=None):\n"
        "    print(arguments or sys.argv[1:], os.environ['GRPC_VERBOSITY'])\n"
        "    return 7\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(main())\n"
    )
    launcher = Launcher("A test.", "shown", ["a", "--b"], [str(tmp_path)])
    written = launcher.write(tmp_path / "my builds", "Game", system)
    assert find_player(tmp_path / "my builds" / "Game", system) == written
    if (system == "win32") != (SYSTEM == "win32"):
        return
    ended = subprocess.run([str(written), "c d"], stdout=subprocess.PIPE)
    assert ended.stdout.decode().strip() == "['a', '--b', 'c d'] NONE"
    assert ended.returncode == 7


def test_a_launcher_takes_folders_and_arguments_as_they_are_written(tmp_path):
    if SYSTEM == "win32":
        pytest.importorskip("distlib")
    odd = "100 %PATH% $(touch broken) `touch broken` it's $HOME"
    if SYSTEM != "win32":
        odd += ' "quoted" \\n'
    modules = tmp_path / odd
    modules.mkdir()
    (modules / "shown.py").write_text(
        "import sys\n"
        "def main(arguments=None):\n"
        "    print(ascii(arguments or sys.argv[1:]))\n"
        "    return 0\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(main())\n"
    )
    written = Launcher("", "shown", [odd], [str(modules)]).write(modules, "Game")
    ended = subprocess.run([written, odd], stdout=subprocess.PIPE, cwd=tmp_path)
    assert ended.stdout.decode().strip() == ascii([odd, odd])
    assert list(tmp_path.iterdir()) == [modules]


def test_a_launcher_refuses_a_folder_that_pythonpath_would_split(tmp_path):
    launcher = Launcher("", "shown", [], ["/games", "/a:b"])
    with pytest.raises(UsageError, match=r"^/a:b: Python splits PYTHONPATH at each"):
        launcher.write(tmp_path / "build", "Game", "linux")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(SYSTEM == "win32", reason="Windows replaces no file that is open")
def test_a_launcher_is_replaced_in_one_step(tmp_path):
    """Whoever runs the one that is there runs all of it."""
    launcher = Launcher("title", "touchline.player", ["3DBall"], [])
    path = launcher.write(tmp_path, "game", "linux")
    before = path.open(encoding="utf-8")
    whole = path.read_text(encoding="utf-8")
    assert launcher.write(tmp_path, "game", "linux") == path
    assert before.read() == whole
    assert path.stat().st_mode & 0o111
    assert [file.name for file in tmp_path.iterdir()] == ["game.x86_64"]
    before.close()


@pytest.mark.skipif(SYSTEM == "win32", reason="there each user has a folder")
def test_what_is_executed_lies_in_no_folder_that_another_user_has_made(
    tmp_path, monkeypatch
):
    folder = own_temporary("players", tmp_path)
    assert own_temporary("players", tmp_path) == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(PermissionError, match="players-12345 belongs to another user"):
        own_temporary("players", tmp_path)
