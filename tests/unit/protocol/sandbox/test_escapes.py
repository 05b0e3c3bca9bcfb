"""What a hostile program may try, each tried: contained, the host unharmed, and the next program runs as ever."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from protocol.sandbox.interpreter import ROOM
from protocol.sandbox.limits import MIB
from tests.sandboxes import descendants
from tests.unit.protocol.sandbox.conftest import LIMITS, RunProgram

RAW = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    return libc.syscall(*arguments), ctypes.get_errno()
"""
TRY = """
def attempt(what):
    try:
        return what()
    except BaseException as error:
        return type(error).__name__
"""


def processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def test_a_fork_bomb_has_no_second_process(run: RunProgram) -> None:
    tried = run(
        TRY
        + RAW
        + """
import os, subprocess, multiprocessing
print(attempt(os.fork))
print(attempt(lambda: os.posix_spawn("/python/bin/python3", ["python3"], {})))
print(attempt(lambda: subprocess.run(["/python/bin/python3", "-c", "1"])))
print(attempt(lambda: os.system("true")) != 0)
print(attempt(lambda: multiprocessing.Process(target=print).start()))
print([call(number, *[0] * 5)[0] for number in (56, 57, 58, 435)])  # clone, fork, vfork, clone3
"""
    )
    *errors, numbers = tried.stdout.decode().splitlines()
    assert len(errors) == 5 and all("Error" in line or line == "True" for line in errors)
    assert numbers == "[-1, -1, -1, -1]"


def test_threads_are_bounded_and_gone_with_the_program(run: RunProgram) -> None:
    tried = run(
        TRY
        + """
import os, threading
threading.stack_size(1 << 16)
started = 0
lock = threading.Lock()
lock.acquire()
def start():
    global started
    while started < 10_000:
        threading.Thread(target=lock.acquire, daemon=True).start()
        started += 1
print(attempt(start), started, flush=True)
os._exit(0)
"""
    )
    error, started = tried.stdout.decode().split()
    assert error == "RuntimeError" and LIMITS.num_threads // 2 < int(started) <= LIMITS.num_threads


def test_threads_that_outlive_the_answer_are_ended(run: RunProgram) -> None:
    stubborn = "import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin).start()\nprint(1)"
    assert run(stubborn).ending == "cpu"
    called = run(stubborn + "\ndef f(): return 7", call=("f", []))
    assert (called.ending, called.exit_code, called.returned) == ("exited", 0, b"7")
    waiting = "import threading\nthreading.Thread(target=threading.Event().wait).start()\nprint(1)"
    assert run(waiting).ending == "idle"


def test_a_memory_bomb_ends_in_a_memory_error(run: RunProgram) -> None:
    tried = run("x = []\nwhile True: x.append(bytearray(1 << 20))")
    assert (tried.exit_code, tried.stderr.decode().strip().splitlines()[-1]) == (1, "MemoryError")
    assert tried.peak_bytes <= LIMITS.memory_bytes


@pytest.mark.parametrize(
    "make",
    [
        "mmap.mmap(-1, 1 << 30)",
        "ctypes.CDLL(None).shmget(0, 1 << 30, 0o1777) and None or raised()",
        "os.memfd_create('x')",
    ],
)
def test_memory_elsewhere_is_none(run: RunProgram, make: str) -> None:
    tried = run(TRY + f"import ctypes, mmap, os\ndef raised(): raise MemoryError\nprint(attempt(lambda: {make}))")
    assert tried.stdout.strip() in (b"OSError", b"MemoryError")


def test_a_disk_bomb_fills_only_its_own_tmp(run: RunProgram) -> None:
    free = os.statvfs("/").f_bavail
    tried = run(
        TRY
        + """
import os
def fill(folder):
    written = 0
    for number in range(1000):
        with open(f"{folder}/{number}", "wb") as file:
            while True:
                try:
                    written += file.write(bytes(1 << 16))
                    file.flush()
                except OSError as error:
                    if error.errno in (27, 28): return written
                    raise
print(fill("/tmp"))
print(attempt(lambda: open("/tmp/sparse", "wb").truncate(1 << 40)))
"""
    )
    assert tried.ending in ("exited", "cpu")
    if tried.ending == "exited":
        filled, sparse = tried.stdout.decode().split()
        assert int(filled) <= LIMITS.tmp_bytes and sparse == "OSError"
    assert os.statvfs("/").f_bavail > free - (1 << 20)


@pytest.mark.parametrize("stream", ["stdout", pytest.param("stderr", marks=pytest.mark.slow)])
def test_endless_output_is_cut(run: RunProgram, stream: str) -> None:
    tried = run(f"import sys\nwhile True: sys.{stream}.write('x' * 65536)")
    assert tried.ending == ("output" if stream == "stdout" else "cpu") or tried.ending == "idle"
    assert len(tried.stdout) <= LIMITS.output_bytes and len(tried.stderr) <= 4096


def test_an_endless_answer_of_a_call_is_cut(run: RunProgram) -> None:
    assert run("def f(): return 'x' * (1 << 22)", call=("f", [])).ending == "output"


def test_a_loop_is_ended_by_its_own_cpu_time(run: RunProgram) -> None:
    tried = run("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert tried.ending == "cpu" and tried.cpu_seconds >= LIMITS.killed_at_cpu_seconds * 0.9


@pytest.mark.parametrize(
    "wait", ["time.sleep(3600)", "threading.Event().wait(3600)", "select.select([], [], [], 3600)"]
)
def test_sleep_costs_nothing_or_ends(run: RunProgram, wait: str) -> None:
    tried = run(f"import time, threading, select\n{wait}\nprint('awake')")
    assert tried.ending == "idle" or (tried.exit_code, tried.stdout) == (0, b"awake\n")
    assert tried.cpu_seconds < LIMITS.cpu_seconds


def test_there_is_no_network(run: RunProgram) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tried = run(
            TRY
            + f"""
import socket
print(attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1)))
print(attempt(lambda: socket.getaddrinfo("example.org", 80)))
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET, 40):
    print(attempt(lambda: socket.socket(family, socket.SOCK_DGRAM)))
a, b = socket.socketpair()
a.send(b"to myself"), print(b.recv(9))
"""
        )
    *refused, allowed = tried.stdout.decode().splitlines()
    assert len(refused) == 8 and all("Error" in line or line == "gaierror" for line in refused)
    assert allowed == "b'to myself'"


def test_files_of_the_host_are_not_there(run: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("the key")
    monkeypatch.setenv("PROOFPOOL_SECRET", "the other key")
    names = [str(tmp_path / "secret"), "/etc/passwd", "/etc/hostname", str(Path.home()), "/proc/self/environ", "/sys"]
    names += [str(Path(__file__).resolve()), "/var", "/home", "/root", "/dev/mem", "/dev/kmsg", "/run", "/boot"]
    tried = run(
        TRY
        + f"""
import os
print([name for name in {names!r} if os.path.exists(name)])
print(sorted(os.listdir("/")), sorted(os.listdir("/dev")), sorted(os.listdir("{ROOM}")))
print(sorted(os.environ), os.getcwd(), os.listdir("."))
"""
    )
    found, places, environment = tried.stdout.decode().splitlines()
    assert found == "[]"
    assert set(json.loads(places.split("]")[0].replace("'", '"') + "]")) <= {"dev", "lib", "lib64", "python", "tmp"}
    assert "key" not in tried.stdout.decode() and "PROOFPOOL" not in environment
    assert environment.endswith("/tmp []")


def test_descriptors_of_the_host_are_not_inherited(run: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    with (tmp_path / "secret").open() as file:
        os.set_inheritable(file.fileno(), True)
        tried = run(
            """
import os
found = []
for number in range(3, 4096):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found)
"""
        )
    assert tried.stdout == b"[]\n"


@pytest.mark.parametrize("place", ["/", "/dev", "/dev/shm", ROOM, f"{ROOM}/lib", "/lib64", "/proc", "/sys", "/etc"])
def test_nothing_is_written_outside_tmp(run: RunProgram, place: str) -> None:
    tried = run(
        TRY
        + f"""
import os
print(attempt(lambda: open("{place}/escaped", "w")), attempt(lambda: os.mkdir("{place}/escaped.d")))
print(attempt(lambda: open("{ROOM}/inside.py", "r+")), attempt(lambda: os.truncate("{ROOM}/inside.py", 0)))
open("/tmp/here", "w").write("x")
print(os.listdir("/tmp"))
"""
    )
    first, second, third = tried.stdout.decode().splitlines()
    assert all("Error" in word for word in [*first.split(), *second.split()])
    assert third == "['here']"
    assert not Path(place, "escaped").exists() and not Path("/tmp/here").exists()


def test_links_lead_nowhere(run: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    tried = run(
        TRY
        + f"""
import os
print(attempt(lambda: os.symlink("{tmp_path}/secret", "/tmp/s")))
print(attempt(lambda: os.link("{ROOM}/inside.py", "/tmp/h")))
print(attempt(lambda: open("/tmp/s").read()), attempt(lambda: open("/tmp/../../..{tmp_path}/secret").read()))
print(attempt(lambda: os.rename("/tmp", "/dev/tmp")), attempt(lambda: os.chmod("{ROOM}/inside.py", 0o777)))
print(attempt(lambda: os.chroot("/tmp")), attempt(lambda: os.mknod("/tmp/sda", 0o60666, 0x800)))
"""
    )
    words = tried.stdout.decode().split()
    assert len(words) == 8 and all("Error" in word for word in words)


def test_signals_reach_nobody_else(run: RunProgram) -> None:
    got: list[int] = []
    mine = os.getpid()
    tried = run(
        TRY
        + f"""
import os, signal
print(os.getpid(), os.getppid())
for number in ({mine}, {os.getppid()}, 2, -2):
    print(attempt(lambda: os.kill(number, signal.SIGKILL)))
print(attempt(lambda: os.killpg(1, 0)), attempt(lambda: os.kill(-1, signal.SIGKILL)))
"""
    )
    first, *others = tried.stdout.decode().splitlines()
    assert first == "1 0" and not got
    assert others[:4] == ["ProcessLookupError"] * 4


def test_system_calls_that_lead_out_are_refused(run: RunProgram) -> None:
    """Each by its number: from a shell code no wrapper of Python is in the way."""
    numbers = {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "mount": 165, "umount2": 166,
        "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "clone3": 435, "open_tree": 428,
        "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "mount_setattr": 442, "keyctl": 250,
        "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "kexec_load": 246,
        "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "personality": 135, "socket": 41, "connect": 42, "bind": 49, "iopl": 172,
        "ioperm": 173, "reboot": 169, "swapon": 167, "sethostname": 170, "settimeofday": 164, "clock_settime": 227,
        "acct": 163, "quotactl": 179, "syslog": 103, "setuid": 105, "setgid": 106, "setgroups": 116, "capset": 126,
        "seccomp": 317, "pidfd_open": 434, "pidfd_getfd": 438, "memfd_create": 319, "memfd_secret": 447, "shmget": 29,
        "msgget": 68, "semget": 64, "mq_open": 240, "fanotify_init": 300, "inotify_init1": 294,
        "migrate_pages": 256, "move_pages": 279, "vmsplice": 278, "splice": 275, "chmod": 90, "mknod": 133, "link": 86,
        "symlink": 88, "setxattr": 188, "setpriority": 141, "sched_setaffinity": 203, "modify_ldt": 154,
    }  # fmt: skip
    tried = run(RAW + f"print([name for name, number in {numbers!r}.items() if call(number, *[0] * 6) != (-1, 38)])")
    assert tried.stdout == b"[]\n", tried.stderr


def test_calls_with_a_dangerous_argument_are_refused(run: RunProgram) -> None:
    attempts = {
        "clone, a new user namespace": (56, 0x10000000 | 17),
        "clone, a thread in a new mount namespace": (56, 0x10000 | 0x20000),
        "ioctl TIOCSTI": (16, 0, 0x5412),
        "prctl PR_SET_DUMPABLE": (157, 4, 1),
        "prctl PR_SET_SECCOMP": (157, 22, 0),
        "prctl PR_SET_PDEATHSIG": (157, 1, 0),
        "socketpair AF_INET": (53, 2, 1, 0),
    }
    tried = run(RAW + f"print([name for name, them in {attempts!r}.items() if call(*them, *[0] * 4) != (-1, 1)])")
    assert tried.stdout == b"[]\n", tried.stderr


@pytest.mark.parametrize(
    ("name", "code"),
    [("x32", "b8 27 00 00 40 0f 05 c3"), ("i386", "b8 14 00 00 00 cd 80 c3")],  # getpid in either
)
def test_another_architectures_calls_end_the_program(run: RunProgram, name: str, code: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("these are of x86-64")
    tried = run(
        f"""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("{code}"))
print("before", flush=True)
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
"""
    )
    assert tried.stdout == b"before\n" and tried.exit_code >= 128


def test_privileges_are_none_and_stay_none(run: RunProgram) -> None:
    tried = run(
        TRY
        + RAW
        + """
import os
print(os.getuid(), os.geteuid(), os.getgid(), attempt(lambda: os.setuid(0)), attempt(lambda: os.setgroups([0])))
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
setuid = [os.path.join(folder, name) for folder, _, names in os.walk("/") for name in names
          if os.lstat(os.path.join(folder, name)).st_mode & 0o6000]
print(setuid)
import resource
print(attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))))
"""
    )
    assert tried.stdout.decode().splitlines() == ["1000 1000 1000 OSError OSError", "[]", "ValueError"]


@pytest.mark.slow
def test_native_code_of_its_own_is_in_the_same_cage(run: RunProgram) -> None:
    """The interpreter may be started anew, within the same limits and filter: it gains nothing by it."""
    again = "import os\ntry: os.fork()\nexcept OSError as error: print(error.errno, flush=True)\nwhile True: pass"
    tried = run(f"import os\nos.execv('{ROOM}/bin/python3', ['{ROOM}/bin/python3', '-S', '-c', {again!r}])")
    assert (tried.ending, tried.stdout) == ("cpu", b"1\n")


@pytest.mark.parametrize(
    "code",
    ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise SystemExit", "import os; os.close(1); os._exit(0)"],
)
def test_an_exit_code_is_no_answer(run: RunProgram, code: str) -> None:
    tried = run(code)
    assert (tried.ending, tried.exit_code, tried.stdout, tried.returned) == ("exited", 0, b"", b"")
    called = run(code, call=("f", [1]))
    assert called.returned == b""


def test_what_is_printed_is_no_returned_value(run: RunProgram) -> None:
    tried = run("def f():\n  print('42'); return 1", call=("f", []))
    assert (tried.stdout, tried.returned) == (b"42\n", b"1")


def test_a_pickle_is_never_opened(run: RunProgram) -> None:
    code = "import pickle\nclass P:\n  def __reduce__(self): return (print, ('harm',))\ndef f(): return {}"
    assert run(code.format("P()"), call=("f", [])).exit_code == 1
    assert run(code.format("pickle.dumps(P())"), call=("f", [])).exit_code == 1
    assert run(code.format("{'plain': [1, None, 'x']}"), call=("f", [])).returned == b'{"plain": [1, null, "x"]}'


def test_the_harness_can_be_patched_and_it_does_not_matter(run: RunProgram) -> None:
    """Whatever the program does to it, all that comes out is a value: what is expected isn't within."""
    tried = run(
        """
import json, os, sys
json.dumps = lambda value: '"forged"'
sys.exit = os._exit = os.write = lambda *_: 0
os.write = lambda fd, data: 8
def f(x):
    return "the real one"
""",
        call=("f", [1]),
    )
    assert tried.returned == b""
    forging = "import json\njson.dumps = lambda value: '[1, 2]'\ndef f(): return 0"
    assert run(forging, call=("f", [])).returned == b"[1, 2]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "print(len(str(7 ** (10 ** 8))))",
        "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')\nprint(1)",
        "x = 10 ** 10 ** 10",
        "print(sum(range(10 ** 12)))",
    ],
)
def test_huge_numbers_and_patterns_end_as_a_loop_does(run: RunProgram, code: str) -> None:
    """They hold the interpreter's lock and let no signal handler run: only the kernel can end them."""
    tried = run(code)
    assert tried.ending == "cpu" or tried.exit_code == 1


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
        "import ctypes\nctypes.string_at(0)",
        "import os\nos.abort()",
        "import sys\nsys.settrace(lambda *_: 1 / 0)\ndef f(): pass\nf()",
        "(" * 100_000,
        "\0",
        "def f(:",
    ],
)
def test_a_crash_is_a_crash(run: RunProgram, code: str) -> None:
    tried = run(code)
    assert tried.exit_code != 0 or tried.ending == "cpu"
    assert tried.stdout == b""


def test_nothing_is_left_when_it_is_over(run: RunProgram) -> None:
    files = names("/tmp")
    run("open('/tmp/left', 'w').write('x')")
    before, descriptors, threads = descendants(), names("/proc/self/fd"), threading.active_count()
    for _ in range(2):
        run("import threading\nopen('/tmp/left', 'w')\nthreading.Thread(target=max, args=(iter(int, 1),)).start()")
    assert len(descendants()) <= len(before) + 2
    assert len(names("/proc/self/fd")) <= len(descriptors) + 12
    assert threading.active_count() <= threads
    assert f" {ROOM}" not in Path("/proc/self/mountinfo").read_text()
    assert "left" not in names("/tmp") - files


def test_sandboxes_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    """Killed, it can clean nothing up: the kernel does."""
    script = """
import sys, time
from protocol.sandbox.limits import Limits
from protocol.sandbox.pool import Pool
from protocol.sandbox.process import Job
pool = Pool(Limits())
pool.run(Job("pass"))
print(*[process._process.pid for process in pool._warm], flush=True)
pool.run(Job("while True: pass"))
"""
    maker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert maker.stdout is not None
    warm = {int(word) for word in maker.stdout.readline().split()}
    assert warm and warm <= processes()
    maker.kill()
    maker.wait()
    maker.stdout.close()
    deadline = time.monotonic() + 30
    while warm & processes() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not warm & processes()


def test_memory_and_tmp_are_what_the_limits_say() -> None:
    assert (LIMITS.memory_bytes, LIMITS.tmp_bytes) == (256 * MIB, 4 * MIB)
